package lifecycle

import (
	"fmt"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Evict asks the job to give its quota back. It keeps the reservation until Release, and resets the state of this
// admission: admission checks, clusters, unhealthy nodes, preemption gates. cause refines some reasons, else it is empty;
// with reason Deactivated it becomes part of the condition's reason. After a request for its deactivation the Workload is evicted for that,
// whatever comes first: the request is removed with it. An evicted or finished Workload does not change (spec: 10 §4.11).
func (m Machine) Evict(w *kueue.Workload, reason, cause, message string, now metav1.Time) bool {
	if IsFinished(w) || IsEvicted(w) {
		return false
	}
	if isTrue(w, kueue.WorkloadDeactivationTarget) {
		target := Condition(w, kueue.WorkloadDeactivationTarget)
		reason, cause, message = kueue.ReasonDeactivated, target.Reason, deactivated+target.Message
	}
	full := FullReason(reason, cause)
	set(w, kueue.WorkloadEvicted, metav1.ConditionTrue, full, message, now)
	countEviction(w, reason, cause)
	w.Status.UnhealthyNodes = nil
	leaveCluster(w, "after eviction", now)
	turnOff(w, kueue.WorkloadBlockedOnPreemptionGates, full, now)
	closeGates(w, now)
	return true
}

// deactivated begins the messages about a deactivation.
const deactivated = "The workload is deactivated: "

// Preempt evicts the Workload to make room for another one. The reason names the rule that allowed it, such as
// InClusterQueue.
func (m Machine) Preempt(w *kueue.Workload, reason, message string, now metav1.Time) bool {
	if !m.Evict(w, kueue.ReasonPreempted, "", message, now) {
		return false
	}
	set(w, kueue.WorkloadPreempted, metav1.ConditionTrue, reason, message, now)
	Condition(w, kueue.WorkloadPreempted).ObservedGeneration = 0 // the one condition without it (spec: 10 §4.9)
	return true
}

// RequestDeactivation asks for spec.active=false, and keeps the cause until then. If the cause is the execution time, the
// time is reset, so that a reactivated Workload starts anew; its release does not add the time of this admission again.
func (m Machine) RequestDeactivation(w *kueue.Workload, cause, message string, now metav1.Time) bool {
	if IsFinished(w) {
		return false
	}
	changed := set(w, kueue.WorkloadDeactivationTarget, metav1.ConditionTrue, cause, message, now)
	if changed && cause == kueue.ReasonMaximumExecutionTimeExceeded {
		w.Status.AccumulatedPastExecutionTimeSeconds = nil
	}
	return changed
}

// Deactivate follows spec.active=false: it evicts, for the requested cause if there is one, and drops the
// backoff. An evicted Workload keeps its reason. It also applies to Workloads that never had a quota reservation.
func (m Machine) Deactivate(w *kueue.Workload, now metav1.Time) bool {
	if IsFinished(w) {
		return false
	}
	if isTrue(w, kueue.WorkloadDeactivationTarget) && !IsReserved(w) && !IsRequeueBlocked(w) {
		turnOff(w, kueue.WorkloadEvicted, kueue.ReasonPending, now) // an earlier eviction is over, although the condition stays until a reservation
	}
	changed := m.Evict(w, kueue.ReasonDeactivated, "", deactivated+"spec.active is false", now)
	if evicted := Condition(w, kueue.WorkloadEvicted); changed && evicted.Reason != kueue.ReasonDeactivated && !IsReserved(w) {
		set(w, kueue.WorkloadRequeued, metav1.ConditionFalse, evicted.Reason, evicted.Message, now) // no release follows, which writes it otherwise
	}
	// The request is fulfilled, also by an earlier eviction: if it stayed, it would end every later activation.
	changed = remove(w, kueue.WorkloadDeactivationTarget) || changed
	if w.Status.RequeueState != nil {
		w.Status.RequeueState = nil
		changed = true
	}
	return changed
}

// Release gives the quota of an evicted Workload back, once no pod of it is left. After a preemption or the failure of
// nodes it may return to its queue at once; after all other evictions it needs a Requeue. noRequeue forces
// the latter, for a Workload that is owned by a single pod. A Workload without a reservation does not change
// (spec: 30 §4.3 step 14).
func (m Machine) Release(w *kueue.Workload, noRequeue bool, now metav1.Time) bool {
	evicted := Condition(w, kueue.WorkloadEvicted)
	if IsFinished(w) || !IsReserved(w) || evicted == nil || evicted.Status != metav1.ConditionTrue {
		return false
	}
	reason, message := evicted.Reason, evicted.Message
	requeued := metav1.ConditionFalse
	if !noRequeue && (reason == kueue.ReasonPreempted || reason == kueue.ReasonNodeFailures) {
		requeued = metav1.ConditionTrue
	}
	set(w, kueue.WorkloadRequeued, requeued, reason, message, now)
	m.Pending(w, kueue.ReasonPendingEvaluation, message, now)
	if Condition(w, kueue.WorkloadPodsReady) != nil {
		m.PodsReady(w, false, now)
	}
	return true
}

// Requeue returns an evicted Workload to its queue: Requeued=True with the given reason, such as BackoffFinished.
// A Workload that is not blocked does not change.
func (m Machine) Requeue(w *kueue.Workload, reason, message string, now metav1.Time) bool {
	if IsFinished(w) || !IsRequeueBlocked(w) {
		return false
	}
	return set(w, kueue.WorkloadRequeued, metav1.ConditionTrue, reason, message, now)
}

// FullReason joins the reason and the cause of an eviction, as the Evicted condition shows them: only Deactivated includes
// the cause. Events prefix it with EvictedDueTo.
func FullReason(reason, cause string) string {
	if reason == kueue.ReasonDeactivated && cause != "" {
		return reason + "DueTo" + cause
	}
	return reason
}

// DeactivatedByBerth reports whether the Workload was evicted because Berth, not a user, deactivated it, and was not activated since: Evicted
// stays True until the next reservation.
func DeactivatedByBerth(w *kueue.Workload) bool {
	if !IsEvicted(w) || !strings.HasPrefix(Condition(w, kueue.WorkloadEvicted).Reason, kueue.ReasonDeactivated+"DueTo") {
		return false
	}
	return IsReserved(w) || !isTrue(w, kueue.WorkloadRequeued) && !IsRejected(w) // only Workloads in their queue are rejected
}

func countEviction(w *kueue.Workload, reason, cause string) {
	if w.Status.SchedulingStats == nil {
		w.Status.SchedulingStats = &kueue.SchedulingStats{}
	}
	stats := w.Status.SchedulingStats
	for i := range stats.Evictions {
		if e := &stats.Evictions[i]; e.Reason == reason && e.UnderlyingCause == cause {
			e.Count++
			return
		}
	}
	stats.Evictions = append(stats.Evictions, kueue.EvictionCount{Reason: reason, UnderlyingCause: cause, Count: 1})
}

// leaveCluster removes the worker clusters and sets every check that is not Pending back to Pending, for the given reason. It counts the
// retries.
func leaveCluster(w *kueue.Workload, why string, now metav1.Time) {
	w.Status.ClusterName, w.Status.NominatedClusterNames = "", nil
	for i := range w.Status.AdmissionChecks {
		c := &w.Status.AdmissionChecks[i]
		if c.State == kueue.CheckStatePending {
			continue
		}
		if c.State == kueue.CheckStateRetry {
			c.RetryCount = new(ptr.Deref(c.RetryCount, 0) + 1)
		}
		c.Message = Cut(fmt.Sprintf("Reset to Pending %s, previously %s: %s", why, c.State, c.Message), MaxMessage)
		c.State, c.LastTransitionTime, c.PodSetUpdates = kueue.CheckStatePending, now, nil
	}
}

// Cut shortens a text to at most limit bytes, whole characters, and ends a shortened text with " ...".
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}
