package lifecycle

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Obstacle is what keeps a Workload out of its queue.
type Obstacle int8

// The obstacles. Of several, the first of this list counts.
const (
	NoObstacle Obstacle = iota
	Finished
	Deleted           // it is being deleted
	Inactive          // spec.active is false
	Gated             // its annotation names admission gates, or its status still says so
	OnHold            // its job asked not to run
	WaitingForNewPods // it has WaitingForReplacementPods
)

// KeptOut returns what keeps a Workload out of its queue, and its reservation from counting as one of the queue's;
// NoObstacle if it may queue. It is the one answer to that question: the engine, the writer of admissions, the metrics and
// the explanations all ask it. Whether quota is free, and whether a backoff is over (IsRequeueBlocked), are other questions.
// gates reports whether the annotation admission-gated-by counts: feature gate AdmissionGatedBy. spec: 10 §4.4.
func KeptOut(w *kueue.Workload, gates bool) Obstacle {
	reserved := Condition(w, kueue.WorkloadQuotaReserved)
	// The controller that follows the Workload reports first that the gates are gone, so that no client misses it.
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
	}
	return NoObstacle
}

// MayQueue reports whether nothing keeps the Workload out of its queue; see KeptOut.
func MayQueue(w *kueue.Workload, gates bool) bool { return KeptOut(w, gates) == NoObstacle }

// IsPending reports whether the Workload has no quota and is neither finished nor being deleted. One that is kept out of its
// queue is pending as well.
func IsPending(w *kueue.Workload) bool {
	return !IsReserved(w) && !IsFinished(w) && w.DeletionTimestamp == nil
}
