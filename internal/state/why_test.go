package state

import (
	"testing"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestReasonsOfAll: every workload that waits has a reason, whether it was evaluated itself or not. spec: 20 §4.22.
func TestReasonsOfAll(t *testing.T) {
	s := New(Options{Options: immediately()})
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
		d, ok := s.Why(uid)
		if got := s.Reason(uid); got != want || ok != (want != "") {
			t.Errorf("%s: %q, want %q", uid, got, want)
		}
		if ok && (d.Attempt.Reason != want || d.Attempt.UID != uid || d.Attempt.Workload != "ns/"+uid || d.Attempt.Verdict != trace.Waits) {
			t.Errorf("%s: %+v", uid, d.Attempt)
		}
	}
	if d, _ := s.Why("second"); d.Attempt.Sentence() != s.Attempt("first").Sentence() {
		t.Errorf("the second says %q, the first %q", d.Attempt.Sentence(), s.Attempt("first").Sentence())
	}
	s.Apply(SetLocalQueue(LocalQueue{Namespace: "ns", Name: "none", Queue: "strict"}))
	if got := s.Reason("nowhere"); got != trace.Misconfigured && got != trace.PendingEvaluation {
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
		if got := s.Reason(uid); got != tc.want {
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
