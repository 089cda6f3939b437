package topology_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/topology/topologytest"
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
