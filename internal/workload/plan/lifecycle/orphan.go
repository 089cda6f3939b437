package lifecycle

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// ReleaseOrphan takes the next step of a Workload without a job: it finishes w, or reports that the finalizer is to be removed, or neither.
// finish is false without the gate FinishOrphanedWorkloads and for a job that may exist. A Workload that is being deleted is not finished.
// Evidence decides about the caller, and no Workload has both: the controller of a kind, which alone reads its jobs and may run in a
// process of its own, releases Workloads with an owner of that kind; workload/follow releases Workloads without an owner.
// spec: 10 §4.10 step 1.
func (m Machine) ReleaseOrphan(w *kueue.Workload, finish bool, now metav1.Time) (finished, unfinalize bool) {
	if finish && w.DeletionTimestamp == nil && m.Finish(w, kueue.ReasonOwnerNotFound, "The job of this workload no longer exists", now) {
		return true, false
	}
	return false, HasFinalizer(w)
}

// HasFinalizer reports whether w has the finalizer that keeps it until its job or its check controller has released it.
func HasFinalizer(w *kueue.Workload) bool {
	return slices.Contains(w.Finalizers, kueue.ResourceInUseFinalizer)
}
