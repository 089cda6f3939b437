package lifecycle

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// KeptOut depends on the Workload alone: all callers (the conversion, the writer of admissions, metrics,
// explanations, the jobs' decisions) get the same answer.
func TestKeptOut(t *testing.T) {
	is := func(kind, reason string, status metav1.ConditionStatus) func(*kueue.Workload) {
		return func(w *kueue.Workload) {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason})
		}
	}
	annotated := func(gates string) func(*kueue.Workload) {
		return func(w *kueue.Workload) { w.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: gates} }
	}
	deleted := func(w *kueue.Workload) { w.DeletionTimestamp = new(metav1.Now()) }
	inactive := func(w *kueue.Workload) { w.Spec.Active = new(false) }
	finished := is(kueue.WorkloadFinished, "Succeeded", metav1.ConditionTrue)
	held := is(kueue.WorkloadQuotaReserved, kueue.ReasonOnHold, metav1.ConditionFalse)
	type changes = []func(*kueue.Workload)
	for name, tc := range map[string]struct {
		change  changes
		noGates bool
		want    Obstacle
		pending bool
	}{
		"new":                       {nil, false, NoObstacle, true},
		"waiting for quota":         {changes{is(kueue.WorkloadQuotaReserved, "WaitingForQuota", metav1.ConditionFalse)}, false, NoObstacle, true},
		"with a reservation":        {changes{is(kueue.WorkloadQuotaReserved, "QuotaReserved", metav1.ConditionTrue)}, false, NoObstacle, false},
		"in a backoff":              {changes{is(kueue.WorkloadRequeued, "PodsReadyTimeout", metav1.ConditionFalse)}, false, NoObstacle, true},
		"finished":                  {changes{finished, deleted, inactive}, false, Finished, false},
		"deleted":                   {changes{deleted, inactive}, false, Deleted, false},
		"inactive":                  {changes{inactive, annotated("a/b"), held}, false, Inactive, true},
		"active by name":            {changes{func(w *kueue.Workload) { w.Spec.Active = new(true) }}, false, NoObstacle, true},
		"gated":                     {changes{annotated("a/b"), held}, false, Gated, true},
		"gated by blanks":           {changes{annotated(" ")}, false, NoObstacle, true},
		"gated, the feature is off": {changes{annotated("a/b")}, true, NoObstacle, true},
		"gates gone, not reported":  {changes{is(kueue.WorkloadQuotaReserved, kueue.ReasonAdmissionGated, metav1.ConditionFalse)}, false, Gated, true},
		"on hold":                   {changes{held}, false, OnHold, true},
		"lost pods":                 {changes{is(kueue.WorkloadWaitingForReplacementPods, "", metav1.ConditionTrue)}, false, WaitingForNewPods, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &kueue.Workload{}
			for _, change := range tc.change {
				change(w)
			}
			got := KeptOut(w, !tc.noGates)
			if got != tc.want || MayQueue(w, !tc.noGates) != (tc.want == NoObstacle) || IsPending(w) != tc.pending {
				t.Errorf("kept out by %d, pending %t; want %d and %t", got, IsPending(w), tc.want, tc.pending)
			}
		})
	}
}
