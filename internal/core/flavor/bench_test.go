package flavor

import (
	"fmt"
	"testing"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// busy is a world of n flavors × 3 resources, of which the last flavor fits, and two
// pod sets that tolerate no taint.
func busy(n int) (*world, []workload.PodSet) {
	w := newWorld()
	names := []string{"cpu", "gpu", "memory"}
	var g Group
	for _, name := range names {
		g.Resources = append(g.Resources, w.Table.ID(name))
	}
	for i := range n {
		o := Offer{Flavor: &Flavor{Name: fmt.Sprint("f", i), Labels: map[string]string{"type": fmt.Sprint(i)}}}
		if i == 0 && n > 1 {
			o.Flavor.Taints = []workload.Taint{{Key: "spot", Effect: "NoSchedule"}}
		}
		for _, name := range names {
			fr := w.offer(o.Flavor.Name, name, grade{Fit, 1})
			if i < n-1 {
				w.used = w.used.Plus(fr, 8)
			}
			o.FRs = append(o.FRs, fr)
		}
		g.Offers = append(g.Offers, o)
	}
	w.Groups = []Group{g}
	w.recompute()
	var podSets []workload.PodSet
	for _, name := range []string{"driver", "workers"} {
		ps := podSet(name)
		for _, id := range g.Resources {
			ps.Requests = append(ps.Requests, workload.Request{Resource: id, Amount: 4})
		}
		podSets = append(podSets, ps)
	}
	return w, podSets
}

// TestAllocs: a search that is used again needs no memory, and a copy little.
func TestAllocs(t *testing.T) {
	for name, n := range map[string]int{"one flavor": 1, "four flavors": 4} {
		t.Run(name, func(t *testing.T) {
			w, podSets := busy(n)
			podSets[0].Group, podSets[1].Group = "g", "g"
			var a Assignment
			if got := testing.AllocsPerRun(100, func() { w.Assign(podSets, &a) }); got != 0 || a.Mode != Fit {
				t.Errorf("%v allocations to assign, mode %s", got, a.Mode)
			}
			podSets[0].Group, podSets[1].Group = "", ""
			w.Pins = []workload.Pin{{PodSet: "driver", FR: resource.FR(3*n - 1)}}
			w.Resume = []workload.Tried{{Next: int32(n - 1)}}
			if got := testing.AllocsPerRun(100, func() { w.Assign(podSets, &a) }); got != 0 || a.Mode != Fit {
				t.Errorf("%v allocations to resume, mode %s", got, a.Mode)
			}
			if n > 1 && len(a.Refusals) == 0 {
				t.Error("nothing was refused")
			}
			var copied *Holding
			if got := testing.AllocsPerRun(100, func() { copied = a.Holding() }); got > 4 || len(copied.PodSets) != 2 {
				t.Errorf("%v allocations to copy", got)
			}
			var wants []workload.Want
			if got := testing.AllocsPerRun(100, func() { wants = w.Wants(podSets, wants) }); got != 0 || len(wants) != 6*min(n, 3) {
				t.Errorf("%v allocations for %d wants", got, len(wants))
			}
		})
	}
}

func BenchmarkAssign(b *testing.B) {
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprintf("%d flavors", n), func(b *testing.B) {
			w, podSets := busy(n)
			var a Assignment
			b.ReportAllocs()
			for b.Loop() {
				w.Assign(podSets, &a)
			}
		})
	}
}

func BenchmarkWants(b *testing.B) {
	w, podSets := busy(4)
	var wants []workload.Want
	b.ReportAllocs()
	for b.Loop() {
		wants = w.Wants(podSets, wants)
	}
}
