package state

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestReshape: places are charged for what the pods request by now, in a restored State and in the present one: before and after
// the admission is written. An edit that says the same pods, or other counts of them, changes nothing.
func TestReshape(t *testing.T) {
	pods := func(count int32, gpus int64) []PodSet {
		return []PodSet{{
			Name: "main", Count: count, Requests: []Request{{"gpu", resource.Amount(gpus * int64(count))}}, Topology: &workload.Topology{},
			PerPod: []Request{{"gpu", resource.Amount(gpus)}, {"pods", 1}},
		}}
	}
	tests := map[string]struct {
		now  []PodSet
		want int64
	}{
		"the same":   {pods(2, 3), 6},
		"more":       {pods(2, 4), 8},
		"less":       {pods(2, 1), 2},
		"fewer pods": {pods(1, 3), 6},
		"other pods": {[]PodSet{{Name: "other", Count: 1, PerPod: []Request{{"pods", 1}}}}, 0},
	}
	for name, tc := range tests {
		for when, written := range map[string]bool{"while it is written": false, "after that": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				s := New(Options{Options: cycle.Defaults(), Topology: new(topology.DefaultGates())})
				s.Apply(SetNamespace{Name: "n"})
				s.Apply(SetFlavor(flavor.Flavor{Name: "f", Topology: "t", Levels: []string{topology.Hostname}}))
				s.Apply(SetNode{Name: "a", Labels: map[string]string{topology.Hostname: "a"}, Ready: true, Schedulable: true, Allocatable: []Request{{"gpu", 9}, {"pods", 9}}})
				s.Apply(SetLocalQueue{Namespace: "n", Name: "q", Queue: "q"})
				s.Apply(SetQueue{Name: "q", Namespaces: []workload.Term{{}}, Groups: []Group{{Resources: []string{"gpu"}, Flavors: []FlavorQuota{
					{Flavor: "f", Resources: []Quota{{Resource: "gpu", Nominal: 9, Borrow: quota.NoLimit, Lend: quota.NoLimit}}},
				}}}})
				def := Workload{UID: "w", Namespace: "n", Name: "w", Version: 1, LocalQueue: "q", Queueable: true, PodSets: pods(2, 3)}
				s.Apply(SetWorkload(def))
				d := s.Step(1, 100).Decisions[0]
				if written {
					g := s.Grant(&d)
					def.Version, def.Reserved, def.Admitted, def.Queue, def.ReservedAt = 2, true, true, g.Queue, d.Workload.ReservedAt
					def.Held, def.Placed = g.PodSets[0].Held, []PodSetPlacement{{"main", *g.PodSets[0].Placement}}
					s.Apply(AdmissionWritten(def))
				}
				def.Version, def.PodSets = def.Version+1, tc.now
				s.Apply(SetWorkload(def))
				restored, err := Restore(s.Checkpoint().Snapshot())
				if err != nil {
					t.Fatal(err)
				}
				for which, of := range map[string]*State{"present": s, "restored": restored} {
					eachLeaf(of, "f", func(_ *topology.Leaf, _, used amounts) {
						if used["gpu"] != resource.Amount(tc.want) {
							t.Errorf("the %s State has %d GPUs in use, not %d", which, used["gpu"], tc.want)
						}
					})
				}
				if diff := cmp.Diff(s.Dump(), restored.Dump()); diff != "" {
					t.Errorf("restored (-present +restored):\n%s", diff)
				}
			})
		}
	}
}
