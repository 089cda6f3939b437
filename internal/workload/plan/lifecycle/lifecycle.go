// Package lifecycle is the state machine of a Workload. Each transition is a
// function that changes the Workload it is given, which must be the caller's
// own copy, and reports whether anything changed. All conditions of a
// Workload are built here.
//
//	           Reserve                SyncAdmitted            Finish
//	pending ───────────► reserved ───────────────► admitted ─────────► finished
//	 ▲   ▲                 │   │                       │               (final)
//	 │   └──── Pending ────┘   └─────────┐   ┌─────────┘
//	 │  (the queue stopped, on hold …)   │   │ Evict, Preempt, Deactivate
//	 │                                   ▼   ▼
//	 └────────────── Release ────────── evicting
//	              (its pods are gone)
//
// The state follows from the conditions, first match:
//
//	finished   Finished=True, regardless of the others
//	evicting   Evicted=True and QuotaReserved=True: the quota is still in use
//	admitted   Admitted=True
//	reserved   QuotaReserved=True
//	pending    otherwise; Evicted=True stays until the next reservation
//
// An eviction therefore has two phases. Evict asks for the end and resets the
// state of this admission; Release gives the quota back, once the job reports
// that no pod is left. Deactivation is an eviction after a request
// (RequestDeactivation), so that a crash between the two loses nothing.
//
// Requeue, PodsReady and BlockOnPreemptionGates write conditions that are
// independent of the state.
package lifecycle

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// MaxMessage is how many bytes of the message of a condition, or of an entry of a check, the API keeps (spec: 10 §4.9, 40 §5).
const MaxMessage = 32 * 1024

const ellipsis = " ..."

// Machine makes the transitions. The zero value behaves like upstream's defaults.
type Machine struct {
	// LegacyReasons brings back the coarse reasons of QuotaReserved=False and Admitted=False: feature gate
	// UnadmittedWorkloadsObservability is off.
	LegacyReasons bool
	// ExplicitStatus writes QuotaReserved=False and Admitted=False also on Workloads that never had the condition:
	// feature gate UnadmittedWorkloadsExplicitStatus.
	ExplicitStatus bool
	// WaitForPodsReady writes PodsReady=False together with reservation and release.
	WaitForPodsReady bool
	// IgnorePlaces waits for no places of pods: feature gate TopologyAwareScheduling is off.
	IgnorePlaces bool
}

// Condition returns the condition of the given type, or nil.
func Condition(w *kueue.Workload, conditionType string) *metav1.Condition {
	return apimeta.FindStatusCondition(w.Status.Conditions, conditionType)
}

func isTrue(w *kueue.Workload, conditionType string) bool {
	return apimeta.IsStatusConditionTrue(w.Status.Conditions, conditionType)
}

// TrueSince returns when a condition became true, zero if it is not.
func TrueSince(w *kueue.Workload, conditionType string) time.Time {
	if c := Condition(w, conditionType); c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// The states of a Workload, in the order of its life. spec: 70 §4.9.
const (
	StatePending       = "pending"
	StateQuotaReserved = "quotareserved"
	StateAdmitted      = "admitted"
	StateFinished      = "finished"
)

// StateOf returns the state of a Workload. It depends on the conditions alone.
func StateOf(w *kueue.Workload) string {
	switch {
	case IsFinished(w):
		return StateFinished
	case IsAdmitted(w):
		return StateAdmitted
	case IsReserved(w):
		return StateQuotaReserved
	}
	return StatePending
}

// InLineSince returns when a Workload was created, or was requeued the last time. spec: 70 §5.3.
func InLineSince(w *kueue.Workload) time.Time {
	if c := Condition(w, kueue.WorkloadRequeued); c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return w.CreationTimestamp.Time
}

// IsReserved reports whether the Workload holds quota. An evicted Workload does until its release.
func IsReserved(w *kueue.Workload) bool { return isTrue(w, kueue.WorkloadQuotaReserved) }

// IsAdmitted reports whether the job of the Workload may run. Check IsEvicted as well before starting anything.
func IsAdmitted(w *kueue.Workload) bool { return isTrue(w, kueue.WorkloadAdmitted) }

// IsFinished reports whether the Workload is in its final state.
func IsFinished(w *kueue.Workload) bool { return isTrue(w, kueue.WorkloadFinished) }

// IsEvicted reports whether the Workload was evicted and has not reserved quota again since.
func IsEvicted(w *kueue.Workload) bool { return isTrue(w, kueue.WorkloadEvicted) }

// IsLeaving reports whether the Workload was evicted and has not given back its quota yet.
func IsLeaving(w *kueue.Workload) bool { return IsEvicted(w) && IsReserved(w) }

// IsActive reports whether the Workload may be admitted at all: spec.active is not false.
func IsActive(w *kueue.Workload) bool { return w.Spec.Active == nil || *w.Spec.Active }

// Unreserved returns the condition with the reason why a Workload has no quota reservation, or nil.
func Unreserved(w *kueue.Workload) *metav1.Condition {
	if c := Condition(w, kueue.WorkloadQuotaReserved); c != nil && c.Status == metav1.ConditionFalse {
		return c
	}
	return nil
}

// IsOnHold reports whether the job itself asked not to run.
func IsOnHold(w *kueue.Workload) bool {
	c := Unreserved(w)
	return c != nil && c.Reason == kueue.ReasonOnHold
}

// IsRequeueBlocked reports whether an evicted Workload must not return to its queue yet: Requeued=False
// (spec: 10 §4.11).
func IsRequeueBlocked(w *kueue.Workload) bool {
	return apimeta.IsStatusConditionFalse(w.Status.Conditions, kueue.WorkloadRequeued)
}

// set writes a condition with the generation of the Workload. The same status, reason and message again are no
// change, so that a new generation alone causes no write.
func set(w *kueue.Workload, conditionType string, status metav1.ConditionStatus, reason, message string, now metav1.Time) bool {
	message = Cut(message, MaxMessage)
	old := Condition(w, conditionType)
	if old != nil && old.Status == status && old.Reason == reason && old.Message == message {
		return false
	}
	apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: message,
		ObservedGeneration: w.Generation, LastTransitionTime: now,
	})
	return true
}

// turnOff sets a condition that is True to False, and keeps its message after "Previously: ".
func turnOff(w *kueue.Workload, conditionType, reason string, now metav1.Time) {
	if c := Condition(w, conditionType); c != nil && c.Status == metav1.ConditionTrue {
		set(w, conditionType, metav1.ConditionFalse, reason, "Previously: "+c.Message, now)
	}
}

func remove(w *kueue.Workload, conditionType string) bool {
	return apimeta.RemoveStatusCondition(&w.Status.Conditions, conditionType)
}
