package topology

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/core/workload"
)

func newYard() *Yard { return NewYard(newTable(), 10, 25, 40, 6) }

// place measures one request: mean, and the 99th percentile as p99-ns.
func place(b *testing.B, y *Yard, request func(i int) []PodSet, before func(i int)) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	took := make([]time.Duration, 0, b.N)
	for i := range b.N {
		if before != nil {
			b.StopTimer()
			before(i)
			b.StartTimer()
		}
		began := time.Now() //nolint:forbidigo // a benchmark measures time
		placed, f := y.Place(request(i), Options{})
		took = append(took, time.Since(began)) //nolint:forbidigo // as above
		if f != nil || len(placed[0].Domains) == 0 {
			b.Fatal(f)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
}

// BenchmarkWarm places a gang of 64 pods in a rack of 10,000 nodes; each time another gang has moved.
func BenchmarkWarm(b *testing.B) {
	y := newYard()
	gang := y.Gang(64, YardRack, "")
	placed, f := y.Place(gang, Options{})
	if f != nil {
		b.Fatal(f)
	}
	p := y.Part([]Charge{{placed[0], gang[0].Requests}}).(*part)
	place(b, y, func(int) []PodSet { return gang }, func(i int) { y.apply(p, int64(1-i%2*2), nil) })
}

// BenchmarkCold places a gang of 64 pods whose shape was never used.
func BenchmarkCold(b *testing.B) {
	y := newYard()
	gang := y.Gang(64, YardRack, "")
	place(b, y, func(int) []PodSet { return gang }, func(int) { y.Forget() })
}

// BenchmarkMany places 10,000 pods over 10,000 nodes.
func BenchmarkMany(b *testing.B) {
	y := newYard()
	gang := y.Gang(10000, "", YardRack)
	place(b, y, func(int) []PodSet { return gang }, nil)
}

// BenchmarkUnconstrained places 8 pods anywhere on 10,000 nodes.
func BenchmarkUnconstrained(b *testing.B) {
	y := newYard()
	gang := y.Gang(8, "", "")
	place(b, y, func(int) []PodSet { return gang }, nil)
}

// shapesOf are requests of different shapes.
func shapesOf(y *Yard, n int) (out [][]PodSet) {
	for i := range n {
		gang := y.Gang(4, YardRack, "")
		gang[0].Requests = append(y.Pod(1), workload.Request{Resource: cpu, Amount: 0})
		gang[0].Layers = []Layer{{YardRack, int32(i%4 + 1)}}
		gang[0].Constraints = &workload.Constraints{Selector: map[string]string{"pool": YardFlavor}}
		for range i / 4 {
			gang[0].Constraints.Tolerations = append(gang[0].Constraints.Tolerations, workload.Toleration{Key: fmt.Sprint("k", i)})
		}
		out = append(out, gang)
	}
	return out
}

// BenchmarkFlip flips a node, and brings 50 shapes up to date.
func BenchmarkFlip(b *testing.B) {
	y := newYard()
	t := y.trees[YardFlavor]
	for _, r := range shapesOf(y, 50) {
		if _, f := y.Place(r, Options{}); f != nil {
			b.Fatal(f)
		}
	}
	if len(t.shapes) != 50 {
		b.Fatal(len(t.shapes))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		y.Flip(i * 7919 % len(y.Nodes))
		for _, sh := range t.shapes {
			t.refresh(sh)
		}
	}
}

// BenchmarkBytes reports the memory of a node with 20 shapes.
func BenchmarkBytes(b *testing.B) {
	for range b.N {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		y := newYard()
		for _, r := range shapesOf(y, 20) {
			if _, f := y.Place(r, Options{}); f != nil {
				b.Fatal(f)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(y.Nodes)), "B/node")
		runtime.KeepAlive(y)
	}
}
