package lifecycle

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// RunsRemotelyCondition reports whether pods of the Workload may run on a worker cluster, of a job whose own status does not tell: while it is
// True the Workload keeps its quota, evicted or not (spec: 40 §4.7). It is a condition, and no annotation, so that the write which says that
// a worker has admitted the Workload says this as well, and so that an eviction, which resets all else, leaves it.
const RunsRemotelyCondition = "multikueue.berth.dev/RunsRemotely"

// Reasons of RunsRemotely.
const (
	reasonDispatched  = "Dispatched"
	reasonNothingLeft = "NothingLeft"
)

// RunsRemotely reports whether that is True.
func RunsRemotely(w *kueue.Workload) bool { return isTrue(w, RunsRemotelyCondition) }

// RunOn says that pods of the Workload may run on a worker cluster from now on, and tells whether that changed anything.
func (m Machine) RunOn(w *kueue.Workload, cluster string, now metav1.Time) bool {
	return set(w, RunsRemotelyCondition, metav1.ConditionTrue, reasonDispatched, fmt.Sprintf("Its pods run on %q", cluster), now)
}

// RunNowhere says that none does any more. A Workload of which that was never said is not changed.
func (m Machine) RunNowhere(w *kueue.Workload, now metav1.Time) bool {
	return RunsRemotely(w) && set(w, RunsRemotelyCondition, metav1.ConditionFalse, reasonNothingLeft, "No worker cluster runs pods of it any more", now)
}
