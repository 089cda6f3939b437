package lifecycle

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Obstacle is a reason that keeps a Workload out of its queue.
type Obstacle int8

// The obstacles, by precedence.
const (
	NoObstacle Obstacle = iota
	Finished
	Deleted           // it is being deleted
	Inactive          // spec.active is false
	Gated             // its annotation, or its status, names admission gates
	OnHold            // its job asked not to run
	WaitingForNewPods // it has WaitingForReplacementPods
	Divided           // its variants are queued in its place
)

// KeptOut returns the obstacle that keeps a Workload out of its queue, and its reservation from counting in the queue;
// NoObstacle if it may queue. The engine, the writer of admissions, the metrics and the explanations all use this one
// function. It considers neither free quota nor backoff (IsRequeueBlocked).
// gates reports whether the annotation admission-gated-by counts: feature gate AdmissionGatedBy. spec: 10 §4.4.
func KeptOut(w *kueue.Workload, gates bool) Obstacle {
	reserved := Condition(w, kueue.WorkloadQuotaReserved)
	// workload/follow reports first that the gates were removed, so that no client misses it.
	saysGated := reserved != nil && reserved.Status == metav1.ConditionFalse && reserved.Reason == kueue.ReasonAdmissionGated
	switch {
	case IsFinished(w):
		return Finished
	case w.DeletionTimestamp != nil:
		return Deleted
	case !IsActive(w):
		return Inactive
	case gates && (saysGated || strings.TrimSpace(w.Annotations[kueue.AdmissionGatedByAnnotation]) != ""):
		return Gated
	case IsOnHold(w):
		return OnHold
	case isTrue(w, kueue.WorkloadWaitingForReplacementPods):
		return WaitingForNewPods
	case IsParent(w):
		return Divided
	}
	return NoObstacle
}

// MayQueue reports whether the Workload may queue; see KeptOut.
func MayQueue(w *kueue.Workload, gates bool) bool { return KeptOut(w, gates) == NoObstacle }

// IsPending reports whether the Workload has no reservation and is neither finished nor being deleted. A Workload that is kept out of its
// queue is pending as well.
func IsPending(w *kueue.Workload) bool {
	return !IsReserved(w) && !IsFinished(w) && w.DeletionTimestamp == nil
}
