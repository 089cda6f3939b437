package dash

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// lived is a Workload with an admission to a ClusterQueue, and conditions that are true since some time ago.
func lived(name, queue string, now time.Time, ago map[string]time.Duration, reason string) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if queue != "" {
		w.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue)}
	}
	for kind, since := range ago {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(now.Add(-since))})
	}
	return w
}

// TestHistory: a run ends when its Workload finishes, is evicted or deleted, and is forgotten after an hour.
func TestHistory(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	now := start
	held := func(name string) *kueue.Workload {
		return lived(name, "cq", now, map[string]time.Duration{kueue.WorkloadQuotaReserved: 20 * time.Minute, kueue.WorkloadAdmitted: 10 * time.Minute}, "Any")
	}
	done := func(name, reason string, ago time.Duration) *kueue.Workload {
		return lived(name, "cq", now, map[string]time.Duration{
			kueue.WorkloadQuotaReserved: ago + 2*time.Minute, kueue.WorkloadAdmitted: ago + time.Minute, kueue.WorkloadFinished: ago,
		}, reason)
	}
	h := newHistory(func() time.Time { return now })
	h.observe(nil, held("runs"))
	h.observe(nil, done("found", kueue.ReasonSucceeded, 30*time.Minute))
	h.observe(nil, done("long-ago", kueue.ReasonSucceeded, 61*time.Minute))
	h.observe(done("found", kueue.ReasonSucceeded, 30*time.Minute), done("found", kueue.ReasonSucceeded, 30*time.Minute))
	h.observe(held("failed"), done("failed", kueue.ReasonFailed, 0))
	h.observe(held("evicted"), lived("evicted", "", now, map[string]time.Duration{kueue.WorkloadEvicted: time.Minute}, "Preempted"))
	h.observe(held("deleted"), nil)
	h.observe(lived("waits", "", now, nil, ""), nil)
	h.observe(held("other"), held("other"))
	got := func() (names []string) {
		runs, _ := h.of("cq")
		for _, r := range runs {
			names = append(names, fmt.Sprint(r.name, " ", r.outcome, " ", r.end.Sub(r.start)))
		}
		slices.Sort(names)
		return names
	}
	want := []string{"deleted deleted 10m0s", "evicted evicted 9m0s", "failed failed 1m0s", "found finished 1m0s"}
	if names := got(); !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if runs, _ := h.of("another"); len(runs) > 0 {
		t.Errorf("another queue has %v", runs)
	}
	now = start.Add(45 * time.Minute)
	if names := got(); slices.Contains(names, want[3]) || len(names) != 3 {
		t.Errorf("45 minutes later: %q", names)
	}
}

// The memory of a history is bounded, and it says from when on it is complete.
func TestHistoryIsBounded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	h := newHistory(func() time.Time { return now })
	if _, complete := h.of("cq"); !complete.Equal(now.Add(-time.Hour)) {
		t.Errorf("complete since %v", complete)
	}
	const over = 5
	for i := range keptRuns + over {
		ago := time.Duration(keptRuns+over-i) * 100 * time.Millisecond
		h.observe(nil, lived(fmt.Sprint(i), "cq", now, map[string]time.Duration{kueue.WorkloadAdmitted: ago + time.Second, kueue.WorkloadFinished: ago}, "Any"))
	}
	runs, complete := h.of("cq")
	if len(runs) != keptRuns || len(h.ring) != keptRuns {
		t.Errorf("%d runs", len(runs))
	}
	if lost := now.Add(-time.Duration(keptRuns+1) * 100 * time.Millisecond); !complete.Equal(lost) {
		t.Errorf("complete since %v, the last one lost is of %v", complete, lost)
	}
}
