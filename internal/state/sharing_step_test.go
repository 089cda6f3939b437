package state

import (
	"testing"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestTouchedInAStep: a tree that loses a start with places on nodes shares no nodes any more. The trees that do have their turn in the same step.
func TestTouchedInAStep(t *testing.T) {
	gates := topology.DefaultGates()
	s := New(Options{Options: immediately(), Topology: &gates})
	s.Apply(SetNamespace{Name: "n"})
	for _, name := range []string{"a", "b"} {
		s.Apply(SetFlavor{Name: name, Levels: []string{"rack", topology.Hostname}})
		s.Apply(SetQueue{
			Name: name, Namespaces: []workload.Term{{}}, Backfill: cycle.Easy, Groups: []Group{{Resources: []string{"cpu"}, Flavors: []FlavorQuota{{
				Flavor: name, Resources: []Quota{{Resource: "cpu", Nominal: 8, Borrow: quota.NoLimit, Lend: quota.NoLimit}},
			}}}},
		})
		s.Apply(SetLocalQueue{Namespace: "n", Name: name, Queue: name})
	}
	s.Apply(SetNode{
		Name: "h", Labels: map[string]string{"rack": "r", topology.Hostname: "h"}, Ready: true, Schedulable: true,
		Allocatable: []Request{{Resource: "cpu", Amount: 4}, {Resource: "pods", Amount: 9}},
	})
	step := func(now workload.Instant) {
		t.Helper()
		if s.Step(now, 1000).More {
			t.Errorf("at %d there is more to decide", now)
		}
	}
	for i, uid := range []string{"runs", "waits"} {
		request := []Request{{Resource: "cpu", Amount: 3}}
		s.Apply(SetWorkload{
			UID: uid, Namespace: "n", Name: uid, Version: 1, LocalQueue: "a", Queueable: true, Bound: 100, Since: workload.Instant(i),
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: request, PerPod: append(request, Request{Resource: "pods", Amount: 1}), Topology: &workload.Topology{Required: "rack"}}},
		})
		step(workload.Instant(1 + i))
	}
	if a := s.Attempt("waits"); a == nil || a.Start == nil {
		t.Fatalf("it has no start: %v", a)
	}
	s.Apply(SetFlavor{Name: "a"})
	step(10)
}
