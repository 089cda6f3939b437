package lifecycle

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// MultiKueuePrefix begins the names of Berth's own annotations and conditions of MultiKueue. They belong to one object, and are copied to no other.
const MultiKueuePrefix = "multikueue.berth.dev/"

// RunsRemotelyCondition reports whether pods of the Workload may run on a worker cluster although the status of its job does not show it. While
// it is True the Workload keeps its quota, evicted or not (spec: 40 §4.7). It is a condition, and no annotation, so that one write reports
// the admission by a worker and this condition, and so that an eviction, which resets all other state, keeps it.
const RunsRemotelyCondition = MultiKueuePrefix + "RunsRemotely"

// Reasons of RunsRemotely.
const (
	reasonDispatched  = "Dispatched"
	reasonNothingLeft = "NothingLeft"
)

// RunsRemotely reports whether the condition is True.
func RunsRemotely(w *kueue.Workload) bool { return isTrue(w, RunsRemotelyCondition) }

// RunOn records that pods of the Workload may run on a worker cluster from now on, and reports whether that is a change.
func (m Machine) RunOn(w *kueue.Workload, cluster string, now metav1.Time) bool {
	return set(w, RunsRemotelyCondition, metav1.ConditionTrue, reasonDispatched, fmt.Sprintf("Its pods run on %q", cluster), now)
}

// RunNowhere records that no pods do any more. It only changes a Workload whose condition is True.
func (m Machine) RunNowhere(w *kueue.Workload, now metav1.Time) bool {
	return RunsRemotely(w) && set(w, RunsRemotelyCondition, metav1.ConditionFalse, reasonNothingLeft, "No worker cluster runs pods of it any more", now)
}

// MayRunElsewhere reports whether the Workload has its worker cluster, or had one and is not released yet.
func MayRunElsewhere(w *kueue.Workload) bool {
	return IsReserved(w) && !IsFinished(w) && (w.Status.ClusterName != "" || IsEvicted(w))
}
