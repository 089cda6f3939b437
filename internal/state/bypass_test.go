package state

import (
	"testing"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// A workload that joins a parked class is not looked at. If it has said before that it
// waits, it says from now on what its class waits for; one that has said nothing
// stays silent. spec: 10 §4.4.
func TestBypassedAreToldWhy(t *testing.T) {
	s := New(Options{Options: immediately()})
	s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(SetNamespace{Name: "ns", Labels: nil})
	s.Apply(SetQueue(Queue{Name: "cq", Namespaces: []workload.Term{{}}, Groups: []Group{{
		Resources: []string{"cpu"}, Flavors: []FlavorQuota{{Flavor: "f", Resources: []Quota{
			{Resource: "cpu", Nominal: 4000, Borrow: quota.NoLimit, Lend: quota.NoLimit},
		}}},
	}}}))
	s.Apply(SetLocalQueue(LocalQueue{Namespace: "ns", Name: "lq", Queue: "cq"}))
	since := workload.Instant(0)
	submit := func(uid string, cores int64, told bool) {
		since++
		s.Apply(SetWorkload(Workload{
			UID: uid, Namespace: "ns", Name: uid, Version: 1, LocalQueue: "lq", Since: since, Queueable: true, Told: told,
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "cpu", Amount: resource.Amount(1000 * cores)}}}},
		}))
	}
	submit("runs", 3, false)
	submit("first", 2, false)
	s.Step(1, 10)
	submit("silent", 2, false)
	submit("told", 2, true)
	r := s.Step(2, 10)
	if len(r.Decisions) != 1 || r.Cycles != 0 {
		for _, d := range r.Decisions {
			t.Log(d.Attempt)
		}
		t.Fatalf("%d decisions in %d cycles, want one without a look", len(r.Decisions), r.Cycles)
	}
	d := r.Decisions[0]
	if d.Workload.UID != "told" || d.Attempt.Reason != trace.WaitingForQuota || d.Attempt.UID != "told" || d.Attempt.Workload != "ns/told" {
		t.Errorf("told is decided as %+v", d.Attempt)
	}
	if want := s.Attempt("first").Sentence(); d.Attempt.Sentence() != want {
		t.Errorf("it says %q, its class %q", d.Attempt.Sentence(), want)
	}
	if s.Attempt("first").Workload != "ns/first" {
		t.Error("the record of the one that was looked at was changed")
	}
}
