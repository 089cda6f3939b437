package state

import (
	"testing"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestBarredHead: a workload that fits in no flavor blocks its strict queue, until it waits for others of its job. Random worlds found that (TestMachine).
func TestBarredHead(t *testing.T) {
	s := New(Options{Options: cycle.Defaults()})
	s.Apply(SetNamespace{Name: "n"})
	s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(SetQueue{Name: "q", Strict: true, Variants: true, Namespaces: []workload.Term{{}}, Groups: []Group{{
		Resources: []string{"cpu"}, Flavors: []FlavorQuota{{Flavor: "f", Resources: []Quota{{Resource: "cpu", Nominal: 4}}}},
	}}})
	s.Apply(SetLocalQueue{Namespace: "n", Name: "q", Queue: "q"})
	ask := func(uid string, cpu resource.Amount) SetWorkload {
		return SetWorkload{
			UID: uid, Namespace: "n", Name: uid, Version: 1, LocalQueue: "q", Queueable: true,
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "cpu", Amount: cpu}}, Constraints: &workload.Constraints{}}},
		}
	}
	behind := ask("behind", 1)
	behind.Since = 1
	s.Apply(ask("head", 5))
	s.Apply(behind)
	if got := s.Step(10, 100).Decisions; len(got) != 1 || got[0].Attempt.UID != "head" || got[0].Attempt.Verdict != trace.Waits {
		t.Fatalf("the head does not block: %v", got)
	}
	head := s.records["head"].wl
	head.Variant, s.world.Barred = true, func(*workload.Workload) string { return "another variant of its job is admitted" }
	if !s.world.EvaluateAgain(head) || s.world.EvaluateAgain(s.records["behind"].wl) {
		t.Error("a head is to be evaluated again, and what is behind it is not")
	}
	got := s.Step(11, 100).Decisions
	if len(got) != 2 || got[0].Attempt.Reason != trace.PendingEvaluation || got[1].Attempt.UID != "behind" || got[1].Attempt.Verdict != trace.Admitted {
		t.Errorf("%v, want that the head waits for others and the workload behind it is admitted", got)
	}
}
