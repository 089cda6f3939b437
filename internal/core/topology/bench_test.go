package topology_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/topology/topologytest"
	"github.com/berth-project/berth/internal/core/workload"
)

func newYard() *topologytest.Yard { return topologytest.NewYard(10, 25, 40, 6) }

// place measures one request: mean, and the 99th percentile as p99-ns. Both are wall time.
func place(b *testing.B, y *topologytest.Yard, request func(i int) []topology.PodSet, before func(i int)) {
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
		ask := request(i)
		began := time.Now()
		placed, f := y.Place(ask, topology.Options{})
		took = append(took, time.Since(began))
		if f != nil || len(placed[0].Domains) == 0 {
			b.Fatal(f)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
}

// BenchmarkWarm places a gang of 64 pods in a rack of 10,000 nodes; each time another gang has come or left.
func BenchmarkWarm(b *testing.B) {
	y := newYard()
	gang := y.Gang(64, topologytest.Rack, "")
	placed, f := y.Place(gang, topology.Options{})
	if f != nil {
		b.Fatal(f)
	}
	usage := y.Usage(placed[0])
	place(b, y, func(int) []topology.PodSet { return gang }, func(i int) {
		if i%2 == 0 {
			y.Ledger.Charge(y.Queue, usage)
		} else {
			y.Ledger.Release(y.Queue, usage)
		}
	})
}

// BenchmarkSpeculate charges a gang, places another one, and rolls back.
func BenchmarkSpeculate(b *testing.B) {
	y := newYard()
	gang := y.Gang(64, topologytest.Rack, "")
	placed, f := y.Place(gang, topology.Options{})
	if f != nil {
		b.Fatal(f)
	}
	usage := y.Usage(placed[0])
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		mark := y.Ledger.Mark()
		y.Ledger.Charge(y.Queue, usage)
		if _, f := y.Place(gang, topology.Options{}); f != nil {
			b.Fatal(f)
		}
		y.Ledger.Rollback(mark)
	}
}

// BenchmarkCold places gangs whose shape was not used before.
func BenchmarkCold(b *testing.B) {
	y := newYard()
	place(b, y, y.Shape, nil)
}

// BenchmarkMany places 10,000 pods over 10,000 nodes.
func BenchmarkMany(b *testing.B) {
	y := newYard()
	gang := y.Gang(10000, "", topologytest.Rack)
	place(b, y, func(int) []topology.PodSet { return gang }, nil)
}

// either alternates between gangs of n and n-1 pods, so that none is placed as the one before was.
func either(n int32, of func(n int32) []topology.PodSet) func(int) []topology.PodSet {
	gangs := [][]topology.PodSet{of(n), of(n - 1)}
	return func(i int) []topology.PodSet { return gangs[i%2] }
}

// BenchmarkBalanced places 64 pods, two to a host, evenly over a rack of 250 with 40 hosts each.
func BenchmarkBalanced(b *testing.B) {
	y := topologytest.NewYard(10, 25, 40, 6, func(g *topology.Gates) { g.Balanced = true })
	place(b, y, either(32, func(n int32) []topology.PodSet {
		gang := y.Gang(2*n, "", topologytest.Rack)
		gang[0].Layers = []topology.Layer{{Level: topology.Hostname, Size: 2}}
		return gang
	}), nil)
}

// BenchmarkBalancedFew places 8 pods evenly in one of 10 racks with 64 hosts each.
func BenchmarkBalancedFew(b *testing.B) {
	y := topologytest.NewYard(1, 10, 64, 6, func(g *topology.Gates) { g.Balanced = true })
	place(b, y, either(8, func(n int32) []topology.PodSet { return y.Gang(n, "", topologytest.Rack) }), nil)
}

// BenchmarkUnconstrained places 8 pods anywhere on 10,000 nodes.
func BenchmarkUnconstrained(b *testing.B) {
	y := newYard()
	place(b, y, either(8, func(n int32) []topology.PodSet { return y.Gang(n, "", "") }), nil)
}

// BenchmarkFlip flips a node, and brings 50 shapes up to date.
func BenchmarkFlip(b *testing.B) {
	y := newYard()
	for i := range 50 {
		if _, f := y.Place(y.Shape(i), topology.Options{}); f != nil {
			b.Fatal(f)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		y.Flip(i * 7919 % len(y.Nodes))
		y.Refresh()
	}
}

// BenchmarkRelease releases a gang that 1,000 gangs of other shapes wait beside: each needs more than the release can give it. It
// reports how many of them had to look at all nodes.
func BenchmarkRelease(b *testing.B) {
	y := topologytest.NewYard(10, 25, 40, 10)
	d := y.Dimension()
	gang := y.Gang(8, topologytest.Rack, "")
	placed, f := y.Place(gang, topology.Options{})
	if f != nil {
		b.Fatal(f)
	}
	usage := y.Usage(placed[0])
	waiting := map[int]resource.Amount{}
	for i := range 1000 {
		shape := y.Shape(i)
		shape[0].Count = 1200
		number, needed, _ := y.MeasureOf(shape, false)
		d.Measure(number)
		waiting[number] = needed
	}
	looks := 0
	b.ReportAllocs()
	for b.Loop() {
		y.Ledger.Charge(y.Queue, usage)
		y.Ledger.Release(y.Queue, usage)
		for number, needed := range waiting { //berth:unordered each is asked alone
			if d.AtMost(number) >= needed {
				d.Measure(number)
				looks++
			}
		}
	}
	b.ReportMetric(float64(looks)/float64(b.N), "looks/op")
}

// BenchmarkForeign changes the foreign pods of a node that single pods of other shapes wait beside: they select labels of no node. It reports
// how many of them had to look at all nodes.
func BenchmarkForeign(b *testing.B) {
	for _, waiting := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			y := newYard()
			d := y.Dimension()
			numbers := make([]int, waiting)
			for i := range numbers {
				pod := y.Gang(1, topology.Hostname, "")
				pod[0].Constraints = &workload.Constraints{Selector: map[string]string{"x": fmt.Sprint(i)}}
				numbers[i], _, _ = y.MeasureOf(pod, false)
				d.Measure(numbers[i])
			}
			one := y.Gang(1, topology.Hostname, "")[0].Requests
			looks, i := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				y.SetForeign(y.Nodes[i*7919%len(y.Nodes)].Name, one)
				i++
				for _, number := range numbers {
					if d.AtMost(number) >= 2 {
						d.Measure(number)
						looks++
					}
				}
			}
			b.ReportMetric(float64(looks)/float64(i), "looks/op")
		})
	}
}

// TestBoundOfMissedChanges: a measure whose bound has missed changes of the nodes has none.
func TestBoundOfMissedChanges(t *testing.T) {
	y := topologytest.NewYard(1, 1, 2, 10)
	d := y.Dimension()
	number, _, _ := y.MeasureOf(y.Gang(4, topologytest.Rack, ""), false)
	d.Measure(number)
	full := d.AtMost(number)
	one := func(host string) ledger.Usage {
		return y.Usage(&topology.Placement{Flavor: topologytest.Flavor, Levels: []string{topology.Hostname}, Domains: []topology.Domain{{Values: []string{host}, Count: 1}}})
	}
	y.Ledger.Release(y.Queue, one(y.Nodes[0].Name))
	for range 2000 { // more than is noted
		y.Ledger.Charge(y.Queue, one(y.Nodes[1].Name))
		y.Place(y.Gang(1, topology.Hostname, ""), topology.Options{})
		y.Ledger.Release(y.Queue, one(y.Nodes[1].Name))
		y.Place(y.Gang(1, topology.Hostname, ""), topology.Options{})
	}
	if most, is := d.AtMost(number), d.Measure(number); most < is || is <= full {
		t.Errorf("the measure is %d, its bound %d; with full nodes it was %d", is, most, full)
	}
}

// BenchmarkCopy adds 10,000 nodes to a new Space, as a forecast does for each of its runs.
func BenchmarkCopy(b *testing.B) {
	y := newYard()
	b.ReportAllocs()
	for b.Loop() {
		y.Copy()
	}
}

// BenchmarkBytes reports the memory of a node with 20 shapes.
func BenchmarkBytes(b *testing.B) {
	for range b.N {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		y := newYard()
		for i := range 20 {
			if _, f := y.Place(y.Shape(i), topology.Options{}); f != nil {
				b.Fatal(f)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(y.Nodes)), "B/node")
		runtime.KeepAlive(y)
	}
}
