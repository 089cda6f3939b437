package state

import (
	"testing"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// reasonNow is why a workload waits, as the model has it; "" for others.
func (s *State) reasonNow(uid string) trace.Reason {
	for last := range s.Publish().Lasts() {
		if last.UID() == uid {
			return last.Reason()
		}
	}
	if r := s.records[uid]; r != nil && r.in == nil {
		reason, _ := s.Publish().Unqueued(r.lq.name.Namespace, r.lq.name.Name)
		return reason
	}
	return ""
}

// TestReasonsOfAll: every workload that waits has a reason, whether it was evaluated itself or not. spec: 20 §4.22.
func TestReasonsOfAll(t *testing.T) {
	s := New(Options{Options: immediately()})
	s.Publish() // from now on traces are kept
	s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(SetNamespace{Name: "ns", Labels: nil})
	for _, name := range []string{"cq", "strict"} {
		s.Apply(SetQueue(Queue{Name: name, Strict: name == "strict", Namespaces: []workload.Term{{}}, Groups: []Group{{
			Resources: []string{"cpu"}, Flavors: []FlavorQuota{{Flavor: "f", Resources: []Quota{
				{Resource: "cpu", Nominal: 4000, Borrow: quota.NoLimit, Lend: quota.NoLimit},
			}}},
		}}}))
		s.Apply(SetLocalQueue(LocalQueue{Namespace: "ns", Name: name, Queue: name}))
	}
	since := workload.Instant(0)
	submit := func(uid, queue string, cores int64) {
		since++
		s.Apply(SetWorkload(Workload{
			UID: uid, Namespace: "ns", Name: uid, Version: 1, LocalQueue: queue, Since: since, Queueable: true,
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "cpu", Amount: resource.Amount(1000 * cores)}}}},
		}))
	}
	submit("runs", "cq", 3)
	submit("first", "cq", 2)
	submit("second", "cq", 2) // parked with the first
	submit("nowhere", "none", 1)
	submit("head", "strict", 5)
	submit("behind", "strict", 1)
	s.Step(1, 10)
	submit("newcomer", "cq", 2)
	for uid, want := range map[string]trace.Reason{
		"runs": "", "unknown": "", "first": trace.WaitingForQuota, "second": trace.WaitingForQuota, "newcomer": trace.WaitingForQuota,
		"nowhere": trace.Misconfigured, "head": trace.ExceedsMaxQuota, "behind": trace.PendingEvaluation,
	} {
		if got := s.reasonNow(uid); got != want {
			t.Errorf("%s: %q, want %q", uid, got, want)
		}
	}
	for uid, of := range map[string]string{"first": "first", "second": "first", "newcomer": "first", "head": "head"} {
		last, place, found := s.Publish().Find(s.QueueOf(uid), uid, 0, s.records[uid].def.Since)
		if !found || place < 0 {
			t.Fatalf("%s is not found, or at place %d", uid, place)
		}
		attempt, kept := last.Attempt()
		if !kept || attempt.UID != uid || attempt.Workload != "ns/"+uid || attempt.Verdict != trace.Waits || attempt.Sentence() != s.Attempt(of).Sentence() {
			t.Errorf("the trace of %s is kept: %v\n%v\nwant that of %s\n%v", uid, kept, attempt, of, s.Attempt(of))
		}
		if passed, _, found := s.Publish().Find(s.QueueOf(uid), uid, 7, 0); !found || passed.wl != last.wl {
			t.Errorf("%s is found by its place in line only", uid)
		}
	}
	last, _, _ := s.Publish().Find("strict", "behind", 0, s.records["behind"].def.Since)
	if attempt, kept := last.Attempt(); kept {
		t.Errorf("behind was not evaluated, and has the trace\n%v", attempt)
	}
	s.Apply(DeleteWorkload("first"))
	for _, uid := range []string{"second", "newcomer"} {
		if got := s.reasonNow(uid); got != trace.WaitingForQuota {
			t.Errorf("after the evaluated one was deleted, %s: %q", uid, got)
		}
	}
	s.Apply(SetLocalQueue(LocalQueue{Namespace: "ns", Name: "none", Queue: "strict"}))
	if got := s.reasonNow("nowhere"); got != trace.Misconfigured && got != trace.PendingEvaluation {
		t.Errorf("after its queue was made: %q", got)
	}
}

// TestMisfits: what no queue would take says so before it is evaluated, and so also while admission is paused.
func TestMisfits(t *testing.T) {
	s := New(Options{Options: immediately()})
	s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(SetNamespace{Name: "ns", Labels: nil})
	s.Apply(SetNamespace{Name: "other", Labels: nil})
	s.Apply(SetQueue(Queue{Name: "cq", Namespaces: []workload.Term{{{Key: "team", Op: workload.In, Values: []string{"a"}}}}, Groups: []Group{{
		Resources: []string{"cpu"}, Flavors: []FlavorQuota{{Flavor: "f", Resources: []Quota{
			{Resource: "cpu", Nominal: 4000, Borrow: quota.NoLimit, Lend: quota.NoLimit},
		}}},
	}}}))
	s.Apply(SetNamespace{Name: "ns", Labels: map[string]string{"team": "a"}})
	for uid, tc := range map[string]struct {
		namespace string
		problem   *workload.Problem
		want      trace.Reason
	}{
		"fits":         {namespace: "ns", want: trace.PendingEvaluation},
		"not selected": {namespace: "other", want: trace.Misconfigured},
		"beyond range": {namespace: "ns", problem: &workload.Problem{Reason: string(trace.Misconfigured), Note: "n"}, want: trace.Misconfigured},
	} {
		s.Apply(SetLocalQueue(LocalQueue{Namespace: tc.namespace, Name: "cq", Queue: "cq"}))
		s.Apply(SetWorkload(Workload{
			UID: uid, Namespace: tc.namespace, Name: uid, Version: 1, LocalQueue: "cq", Queueable: true, Problem: tc.problem,
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "cpu", Amount: 1000}}}},
		}))
		if got := s.reasonNow(uid); got != tc.want {
			t.Errorf("%s: %q, want %q", uid, got, tc.want)
		}
	}
}

// TestNoticesOfAPause: without steps, workloads that no cycle is about get their reason, and none is admitted.
func TestNoticesOfAPause(t *testing.T) {
	s := New(Options{Options: immediately()})
	s.Apply(SetWorkload(Workload{UID: "u", Namespace: "ns", Name: "w", Version: 1, LocalQueue: "none", Queueable: true}))
	got := s.Notices()
	if len(got) != 1 || got[0].Attempt.Reason != trace.Misconfigured || got[0].Admitted != nil {
		t.Errorf("%+v", got)
	}
	if again := s.Notices(); again != nil {
		t.Errorf("told twice: %+v", again)
	}
}
