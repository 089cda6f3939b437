package admit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// A Workload that may not return to its queue yet has only the news that the queue is back; one that was rejected has none.
func TestOutOfLine(t *testing.T) {
	s := state.New(state.Options{})
	s.Apply(state.SetQueue{Name: "runs"})
	s.Apply(state.SetQueue{Name: "rests", Closed: "it is stopped"})
	for name, queue := range map[string]string{"to-runs": "runs", "to-rests": "rests", "to-none": "none"} {
		s.Apply(state.SetLocalQueue{Namespace: "ns", Name: name, Queue: queue})
	}
	blocked := func(shown string) []metav1.Condition {
		return []metav1.Condition{
			{Type: kueue.WorkloadRequeued, Status: metav1.ConditionFalse, Reason: kueue.ReasonPodsReadyTimeout},
			{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: shown},
		}
	}
	rejected := &kueue.Workload{}
	lifecycle.Machine{}.Reject(rejected, "no such device", metav1.Now())
	for _, tc := range []struct {
		queue      string
		conditions []metav1.Condition
		want       trace.Reason
	}{
		{"to-none", nil, trace.Misconfigured},
		{"to-runs", nil, ""},
		{"to-runs", blocked(kueue.ReasonSuspended), trace.PendingEvaluation},
		{"to-runs", blocked(kueue.ReasonPendingEvaluation), ""},
		{"to-rests", blocked(kueue.ReasonSuspended), ""},
		{"to-none", blocked(kueue.ReasonMisconfigured), ""},
		{"to-runs", rejected.Status.Conditions, ""},
	} {
		w := &kueue.Workload{}
		w.Namespace, w.Spec.QueueName, w.Status.Conditions = "ns", kueue.LocalQueueName(tc.queue), tc.conditions
		if got, _ := outOfLine(s.Publish(), w); got != tc.want {
			t.Errorf("%s %v: %q, want %q", tc.queue, tc.conditions, got, tc.want)
		}
	}
}

// The reasons of a burst are written within the budget, those first that wait longest. Another namespace does not wait for them.
func TestReasonsOfABurst(t *testing.T) {
	began := time.Unix(1000, 0)
	teller := NewTeller(nil, nil)
	teller.since = map[types.UID]different{}
	for i := range 300 {
		w := &kueue.Workload{}
		w.UID, w.CreationTimestamp = types.UID(fmt.Sprintf("%03d", i)), metav1.NewTime(began.Add(time.Duration(i)*time.Second))
		teller.since[w.UID] = different{wl: w, at: began}
	}
	early := &kueue.Workload{}
	early.UID = "early"
	teller.since[early.UID] = different{wl: early, at: began.Add(-time.Second)}
	other := &kueue.Workload{}
	other.UID, other.Namespace = "other", "other"
	teller.since[other.UID] = different{wl: other, at: began.Add(time.Second)}
	for _, round := range []struct {
		after       time.Duration
		count       int
		first, last types.UID
	}{
		{teller.Patience - time.Millisecond, 1, "early", "early"},
		{teller.Patience, 199, "299", "101"},
		{teller.Patience + time.Second, 0, "", ""},
		{teller.Patience + 5*time.Second, 10, "100", "092"},
		{teller.Patience + 6*time.Second, 0, "", ""},
		{time.Hour, 92, "091", "000"},
	} {
		var due []types.UID
		if now := began.Add(round.after); teller.affords(now) {
			due = teller.due(now)
		}
		if len(due) != round.count || round.count > 0 && (due[0] != round.first || due[len(due)-1] != round.last) {
			t.Errorf("after %s: %d, %v", round.after, len(due), due)
		}
		if at := slices.Index(due, "other"); at >= 0 && (at != 1 || round.count != 10) {
			t.Errorf("after %s: the other namespace has place %d", round.after, at)
		}
		for _, uid := range due {
			delete(teller.since, uid) // as once the status shows it
		}
	}
}
