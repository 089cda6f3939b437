package occupancy

import (
	"fmt"
	"testing"

	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// BenchmarkReader is a reader of racks of 40 nodes: the first model, a model with one changed node, and the sums of all levels.
func BenchmarkReader(b *testing.B) {
	for _, nodes := range []int{400, 10_000} {
		w := newWorld()
		set := func(i int, ready bool) {
			name := fmt.Sprint("n", i)
			w.Apply(state.SetNode{
				Name: name, Labels: map[string]string{"rack": fmt.Sprint("r", i/40), topology.Hostname: name}, Ready: ready, Schedulable: true,
				Allocatable: []state.Request{{Resource: "gpu", Amount: 4}, {Resource: "pods", Amount: 110}},
			})
		}
		for i := range nodes {
			set(i, true)
		}
		for i := range min(240, nodes/80) {
			w.submit(fmt.Sprint("w", i), 4, &workload.Topology{Required: "rack"})
		}
		gates := topology.DefaultGates()
		b.Run(fmt.Sprint("first/", nodes), func(b *testing.B) {
			for b.Loop() {
				New(w.Publish, &gates).Read(func(*Reader) {})
			}
		})
		m := New(w.Publish, &gates)
		m.Read(func(*Reader) {})
		ready := true
		b.Run(fmt.Sprint("publish/", nodes), func(b *testing.B) {
			for b.Loop() {
				ready = !ready
				set(3, ready)
				w.Publish()
			}
		})
		b.Run(fmt.Sprint("change/", nodes), func(b *testing.B) {
			for b.Loop() {
				ready = !ready
				set(3, ready)
				m.Read(func(*Reader) {})
			}
		})
		b.Run(fmt.Sprint("sums/", nodes), func(b *testing.B) {
			for b.Loop() {
				m.Read(func(r *Reader) {
					f := r.Flavors("dc")[0]
					for level := range f.Levels {
						FillOf(&f, r.Domains(&f, level, nil))
					}
				})
			}
		})
	}
}
