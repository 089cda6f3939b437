package state

import (
	"testing"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// A watch that starts over may leave out the version with the admission and show only
// that the workload lost it again. The report of the write is older than that, and
// still ends the assumption: the workload is back in line and admitted anew.
func TestAdmissionWrittenAfterItsLoss(t *testing.T) {
	s := New(Options{Options: immediately()})
	s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(SetNamespace{Name: "ns", Labels: nil})
	s.Apply(SetQueue(Queue{Name: "cq", Namespaces: []workload.Term{{}}, Groups: []Group{{
		Resources: []string{"cpu"}, Flavors: []FlavorQuota{{Flavor: "f", Resources: []Quota{
			{Resource: "cpu", Nominal: 1, Borrow: quota.NoLimit, Lend: quota.NoLimit},
		}}},
	}}}))
	s.Apply(SetLocalQueue(LocalQueue{Namespace: "ns", Name: "lq", Queue: "cq"}))
	w := Workload{
		UID: "w", Namespace: "ns", Name: "w", Version: 1, LocalQueue: "lq", Queueable: true,
		PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "cpu", Amount: 1}}}},
	}
	s.Apply(SetWorkload(w))
	if r := s.Step(1, 10); len(r.Decisions) != 1 || r.Decisions[0].Attempt.Verdict != trace.Admitted {
		t.Fatalf("decisions %+v", r.Decisions)
	}
	lost, written := w, w
	lost.Version = 12
	s.Apply(SetWorkload(lost))
	if r := s.Step(2, 10); len(r.Decisions) != 0 {
		t.Fatalf("decided %+v while the admission is being written", r.Decisions)
	}
	written.Version, written.Reserved, written.Queue = 10, true, "cq"
	written.Held = []Held{{Flavor: "f", Resource: "cpu", Amount: 1}}
	s.Apply(AdmissionWritten(written))
	if r := s.Step(3, 10); len(r.Decisions) != 1 || r.Decisions[0].Attempt.Verdict != trace.Admitted {
		t.Errorf("decisions %+v, want a second admission", r.Decisions)
	}
	s.Apply(DeleteWorkload("w"))
	s.Apply(AdmissionWritten(written))
	if v, _ := s.Publish().Queue("cq"); v.Reserved != 0 {
		t.Errorf("a report brought back a deleted workload: %+v", v)
	}
}
