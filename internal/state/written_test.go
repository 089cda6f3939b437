package state

import (
	"slices"
	"strings"
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
	s, w := writtenWorld()
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

// writtenWorld is a queue with quota for one of its workloads, and a first one.
func writtenWorld() (*State, Workload) {
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
	return s, w
}

// TestQuotaUntilTheReport: what a watch shows does not end an admission that is being written. Its writer may know a later version than the watch,
// and only its report ends it.
func TestQuotaUntilTheReport(t *testing.T) {
	s, w := writtenWorld()
	second := w
	second.UID, second.Name, second.Since = "v", "v", 1
	s.Apply(SetWorkload(second))
	admitted := func(now workload.Instant) (uids []string) {
		for _, d := range s.Step(now, 10).Decisions {
			if d.Admitted != nil {
				uids = append(uids, d.Workload.UID)
			}
		}
		return uids
	}
	expect := func(now workload.Instant, want ...string) {
		t.Helper()
		if got := admitted(now); !slices.Equal(got, want) {
			t.Fatalf("admitted %v, want %v", got, want)
		}
	}
	expect(1, "w")
	w.Queueable, w.Version = false, 2 // it is deactivated
	s.Apply(SetWorkload(w))
	expect(2)
	w.Queueable, w.Version = true, 3
	s.Apply(SetWorkload(w))
	s.Apply(AdmissionFailed{"w", 0}) // the report about an earlier one
	expect(3)
	w.Queueable, w.Version = false, 4
	s.Apply(SetWorkload(w))
	s.Apply(AdmissionFailed{"w", 1})
	expect(4, "v")
}

// TestWrittenAndDeactivated: the admission was written, and when its writer gets to know that, the Workload is deactivated and holds nothing any more.
func TestWrittenAndDeactivated(t *testing.T) {
	s, w := writtenWorld()
	s.Record(100)
	if r := s.Step(1, 10); len(r.Decisions) != 1 || r.Decisions[0].Admitted == nil {
		t.Fatalf("decisions %+v", r.Decisions)
	}
	w.Version, w.Queueable = 3, false
	s.Apply(AdmissionWritten(w))
	w.UID, w.Name, w.Queueable = "v", "v", true
	s.Apply(SetWorkload(w))
	if r := s.Step(2, 10); len(r.Decisions) != 1 || r.Decisions[0].Admitted == nil {
		t.Errorf("decisions %+v, want the admission of another workload", r.Decisions)
	}
	_, events := s.Publish().Record().Contents()
	if !slices.ContainsFunc(events, func(e Event) bool { _, is := e.(AdmissionWritten); return is }) {
		t.Errorf("the report is recorded as an event that keeps the quota: %v", events)
	}
}

// TestReplacedSliceOfADeletedQueue: a queue is deleted after a slice has replaced another one in it. The first one holds its quota again once the
// second has ended, also if the queue comes back only then. Their LocalQueue leads to another queue by now.
func TestReplacedSliceOfADeletedQueue(t *testing.T) {
	s, w := writtenWorld()
	cq := s.queues["cq"].def
	s.Apply(SetLocalQueue(LocalQueue{Namespace: "ns", Name: "lq", Queue: "other"}))
	hold := func(w Workload, version uint64) {
		w.Version, w.Reserved, w.Admitted, w.Queue = version, true, true, "cq"
		w.Held = []Held{{Flavor: "f", Resource: "cpu", Amount: 1}}
		s.Apply(SetWorkload(w))
	}
	second := w
	second.UID, second.Name, second.Replaces = "v", "v", "w"
	hold(w, 2)
	hold(second, 2)
	s.Apply(DeleteQueue("cq"))
	second.Version, second.Queueable = 3, false // it has finished
	s.Apply(SetWorkload(second))
	s.Apply(SetQueue(cq))
	if dump := s.Dump(); !strings.Contains(dump, "holds ns/w: f/cpu=") {
		t.Errorf("the first slice holds nothing:\n%s", dump)
	}
}
