package state

import (
	"testing"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// A second pass is part of the first cycle of its step, and succeeds if it finds places or evicts. spec: 10 §4.5.
func TestCyclesOfSecondPass(t *testing.T) {
	for name, tc := range map[string]struct {
		spare, failFast          bool
		head                     int64 // the GPUs that a pending workload requests, 0 for none
		cycles, admitting, heads int
	}{
		"without a node":          {cycles: 1, heads: 1},
		"without a node, evicted": {failFast: true, cycles: 1, admitting: 1, heads: 1},
		"placed":                  {spare: true, cycles: 1, admitting: 1, heads: 1},
		"placed, beside a head that does not fit": {spare: true, head: 99, cycles: 1, admitting: 1, heads: 2},
		"placed, beside an admitted head":         {spare: true, head: 1, cycles: 1, admitting: 1, heads: 2},
		"without a node, beside an admitted head": {head: 1, cycles: 1, admitting: 1, heads: 2},
		"without a node, beside one too large":    {head: 99, cycles: 1, heads: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Options{Options: cycle.Defaults(), Topology: new(topology.DefaultGates()), FailFast: tc.failFast})
			s.Apply(SetNamespace{Name: "n"})
			s.Apply(SetFlavor(flavor.Flavor{Name: "f", Topology: "t", Levels: []string{topology.Hostname}}))
			s.Apply(SetFlavor(flavor.Flavor{Name: "plain"}))
			nodes := []string{"failed"}
			if tc.spare {
				nodes = append(nodes, "spare")
			}
			for _, node := range nodes {
				s.Apply(SetNode{
					Name: node, Labels: map[string]string{topology.Hostname: node}, Ready: node == "spare", Schedulable: true,
					Allocatable: []Request{{"gpu", 9}, {"pods", 9}},
				})
			}
			submit := func(uid, localQueue string, change func(*Workload)) {
				def := Workload{UID: uid, Namespace: "n", Name: uid, Version: 1, LocalQueue: localQueue, Queueable: true}
				change(&def)
				s.Apply(SetWorkload(def))
			}
			for queue, of := range map[string]string{"q": "f", "other": "plain"} {
				s.Apply(SetLocalQueue{Namespace: "n", Name: queue, Queue: queue})
				s.Apply(SetQueue{Name: queue, Namespaces: []workload.Term{{}}, Groups: []Group{{Resources: []string{"gpu"}, Flavors: []FlavorQuota{
					{Flavor: of, Resources: []Quota{{Resource: "gpu", Nominal: 9, Borrow: quota.NoLimit, Lend: quota.NoLimit}}},
				}}}})
			}
			submit("runs", "q", func(def *Workload) {
				def.PodSets = []PodSet{{
					Name: "main", Count: 2, Requests: []Request{{"gpu", 2}}, Topology: &workload.Topology{}, PerPod: []Request{{"gpu", 1}, {"pods", 1}},
				}}
				def.Reserved, def.Admitted, def.Queue, def.ReservedAt = true, true, "q", 1
				def.Held = []Held{{Flavor: "f", Resource: "gpu", Amount: 2, PodSet: "main"}}
				def.Placed = []PodSetPlacement{{"main", trace.Placement{
					Flavor: "f", Levels: []string{topology.Hostname}, Domains: []trace.Domain{{Values: []string{"failed"}, Count: 2}},
				}}}
				def.Unhealthy = []string{"failed"}
			})
			if r := s.Step(1, 100); r.Cycles != 0 || len(r.Decisions) != 0 {
				t.Fatalf("%d cycles before the second pass is due", r.Cycles)
			}
			if tc.head > 0 {
				submit("head", "other", func(def *Workload) {
					def.PodSets = []PodSet{{Name: "main", Count: 1, Requests: []Request{{"gpu", resource.Amount(tc.head)}}}}
				})
			}
			r := s.Step(1+firstPause, 100)
			if r.Cycles != tc.cycles || r.Admitting != tc.admitting || len(r.Decisions) != tc.heads || r.Heads != tc.heads {
				t.Errorf("%d cycles, %d of which admit, with %d heads: %v; want %d, %d and %d",
					r.Cycles, r.Admitting, r.Heads, texts(r.Decisions), tc.cycles, tc.admitting, tc.heads)
			}
		})
	}
}
