package lifecycle

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Reserve gives the Workload quota: it sets the admission and QuotaReserved=True, and turns the conditions of an earlier eviction
// off. Preemption gates close, since they were opened for this one attempt (spec: 20 §4.14). Required checks that
// the status does not list yet become Pending, and Admitted is synced in the same change. A finished Workload does
// not change (spec: 10 §4.9).
func (m Machine) Reserve(w *kueue.Workload, admission *kueue.Admission, required []kueue.AdmissionCheckReference, now metav1.Time) bool {
	if IsFinished(w) {
		return false
	}
	w.Status.Admission = admission
	forgetRejection(w)
	set(w, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, kueue.ReasonQuotaReserved,
		"Quota reserved in ClusterQueue "+string(admission.ClusterQueue), now)
	for _, t := range []string{kueue.WorkloadEvicted, kueue.WorkloadPreempted, kueue.WorkloadBlockedOnPreemptionGates} {
		turnOff(w, t, kueue.ReasonQuotaReserved, now)
	}
	closeGates(w, now)
	if m.WaitForPodsReady && Condition(w, kueue.WorkloadPodsReady) == nil {
		m.PodsReady(w, false, now)
	}
	for _, r := range required {
		if !slices.ContainsFunc(w.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.Name == r }) {
			w.Status.AdmissionChecks = append(w.Status.AdmissionChecks, pendingCheck(r, now))
		}
	}
	m.SyncAdmitted(w, now)
	return true
}

func pendingCheck(name kueue.AdmissionCheckReference, now metav1.Time) kueue.AdmissionCheckState {
	return kueue.AdmissionCheckState{Name: name, State: kueue.CheckStatePending, LastTransitionTime: now}
}

// SyncAdmitted makes Admitted follow the reservation, the listed checks and delayed placements. Do not call it on an
// evicted Workload before its release: its checks are reset, but its pods still run (spec: 10 §4.9). It admits no variant, see AdmitVariant.
func (m Machine) SyncAdmitted(w *kueue.Workload, now metav1.Time) bool {
	return m.syncAdmitted(w, VariantOf(w) == "" || IsAdmitted(w), now)
}

// syncAdmitted is SyncAdmitted; may is false if the Workload must not become admitted.
func (m Machine) syncAdmitted(w *kueue.Workload, may bool, now metav1.Time) bool {
	if IsFinished(w) {
		return false
	}
	was := IsAdmitted(w)
	status, reason, message := m.admitted(w)
	if status == metav1.ConditionTrue && !may {
		status, reason, message = metav1.ConditionFalse, kueue.ReasonUnsatisfiedAdmissionChecks, waiting+"its turn among the variants of its job"
	}
	is := status == metav1.ConditionTrue
	if m.LegacyReasons && !was && !is {
		return false
	}
	if !m.ExplicitStatus && !isKnown(w) {
		return false
	}
	if was && !is {
		addExecutionTime(w, now)
	}
	changed := set(w, kueue.WorkloadAdmitted, status, reason, inTheirWords(w, reason, message), now)
	if is {
		changed = waivePlaces(w) || changed
	}
	if is && len(w.Status.ResourceRequests) > 0 {
		w.Status.ResourceRequests = nil
		changed = true
	}
	return changed
}

// isKnown reports whether a Workload has a condition about its admission.
func isKnown(w *kueue.Workload) bool {
	return Condition(w, kueue.WorkloadQuotaReserved) != nil || Condition(w, kueue.WorkloadAdmitted) != nil
}

// waiting begins the messages that name what a Workload waits for, and change with that.
const waiting = "Waiting for "

// inTheirWords returns the message of the Admitted condition: that of another controller, if its reason is the same. Otherwise a takeover
// would write every waiting Workload only to change words.
func inTheirWords(w *kueue.Workload, reason, message string) string {
	if c := Condition(w, kueue.WorkloadAdmitted); c != nil && c.Reason == reason && !strings.HasPrefix(c.Message, waiting) {
		return c.Message
	}
	return message
}

// admitted computes the Admitted condition.
func (m Machine) admitted(w *kueue.Workload) (status metav1.ConditionStatus, reason, message string) {
	var open []string // checks that are not Ready
	for _, c := range w.Status.AdmissionChecks {
		if c.State != kueue.CheckStateReady {
			open = append(open, string(c.Name))
		}
	}
	reserved := IsReserved(w)
	switch {
	case reserved && len(open) == 0 && !m.waitsForPlacement(w):
		return metav1.ConditionTrue, kueue.ReasonAdmitted, "The workload is admitted"
	case !reserved && len(open) > 0 && m.LegacyReasons:
		return metav1.ConditionFalse, kueue.ReasonNoReservationUnsatisfiedChecks, "The workload has no quota, and not all admission checks are ready"
	case !reserved:
		return metav1.ConditionFalse, kueue.ReasonNoReservation, "The workload has no quota"
	case len(open) > 0:
		reason = kueue.ReasonUnsatisfiedAdmissionChecks
		if m.LegacyReasons {
			reason = kueue.ReasonUnsatisfiedChecks
		}
		return metav1.ConditionFalse, reason, waiting + "admission checks: " + strings.Join(open, ", ")
	default:
		return metav1.ConditionFalse, kueue.ReasonPendingDelayedTopologyRequests, waiting + "the placement of pods"
	}
}

// WaitsForPlacement returns the pod sets of a reservation that wait for the places of their pods (spec: 20 §4.7.4).
func WaitsForPlacement(w *kueue.Workload) (podSets []string) {
	if w.Status.Admission == nil {
		return nil
	}
	for _, a := range w.Status.Admission.PodSetAssignments {
		if a.DelayedTopologyRequest != nil && *a.DelayedTopologyRequest == kueue.DelayedTopologyRequestPending {
			podSets = append(podSets, string(a.Name))
		}
	}
	return podSets
}

func (m Machine) waitsForPlacement(w *kueue.Workload) bool {
	return !m.IgnorePlaces && len(WaitsForPlacement(w)) > 0
}

// waivePlaces ends the wait for places of an admitted Workload, which would not be admitted any more once IgnorePlaces is off again.
func waivePlaces(w *kueue.Workload) (changed bool) {
	for _, name := range WaitsForPlacement(w) {
		at := slices.IndexFunc(w.Status.Admission.PodSetAssignments, func(a kueue.PodSetAssignment) bool { return string(a.Name) == name })
		w.Status.Admission.PodSetAssignments[at].DelayedTopologyRequest = new(kueue.DelayedTopologyRequestReady)
		changed = true
	}
	return changed
}

// MayPlace reports whether pods whose placement was delayed get their places now: all admission checks are ready (spec: 20 §4.7.4). Without any
// check left, as after its removal from the queue, there is nothing to wait for. A worker cluster places its own pods.
func MayPlace(w *kueue.Workload) bool {
	return IsReserved(w) && !IsEvicted(w) && !IsAdmitted(w) && w.Status.ClusterName == "" &&
		!slices.ContainsFunc(w.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.State != kueue.CheckStateReady })
}

// Placed sets the new places of the pods of a reservation: delayed ones are there now, and no node is unhealthy any more. Pod sets that
// have no pods by now have no places, and do not wait for any. Admitted is synced (spec: 20 §4.5, §4.7.4, §4.9).
func (m Machine) Placed(w *kueue.Workload, admission *kueue.Admission, now metav1.Time) bool {
	if IsFinished(w) || IsEvicted(w) || !IsReserved(w) {
		return false
	}
	changed := false
	for i := range w.Status.Admission.PodSetAssignments {
		a := &w.Status.Admission.PodSetAssignments[i]
		at := slices.IndexFunc(admission.PodSetAssignments, func(o kueue.PodSetAssignment) bool { return o.Name == a.Name })
		if at < 0 {
			continue
		}
		placed := &admission.PodSetAssignments[at]
		switch {
		case placed.TopologyAssignment != nil:
			a.TopologyAssignment, changed = placed.TopologyAssignment, true
		case a.DelayedTopologyRequest == nil || placed.Count == nil || *placed.Count > 0:
			continue
		}
		if a.DelayedTopologyRequest != nil {
			changed = changed || *a.DelayedTopologyRequest != kueue.DelayedTopologyRequestReady
			a.DelayedTopologyRequest = new(kueue.DelayedTopologyRequestReady)
		}
	}
	w.Status.UnhealthyNodes = nil
	m.SyncAdmitted(w, now)
	return changed
}

// addExecutionTime adds the time of an admission that ends. At the end of the maximum execution time it resets the sum instead: a reactivated
// Workload has the whole time again (spec: 20 §4.16).
func addExecutionTime(w *kueue.Workload, now metav1.Time) {
	if reachedExecutionTime(w) {
		w.Status.AccumulatedPastExecutionTimeSeconds = nil
		return
	}
	spent := now.Sub(Condition(w, kueue.WorkloadAdmitted).LastTransitionTime.Time).Seconds()
	spent += float64(ptr.Deref(w.Status.AccumulatedPastExecutionTimeSeconds, 0))
	w.Status.AccumulatedPastExecutionTimeSeconds = new(int32(max(spent, 0)))
}

// reachedExecutionTime reports whether a Workload is deactivated for its execution time, or is about to be.
func reachedExecutionTime(w *kueue.Workload) bool {
	target := Condition(w, kueue.WorkloadDeactivationTarget)
	return (target != nil && target.Status == metav1.ConditionTrue && target.Reason == kueue.ReasonMaximumExecutionTimeExceeded) ||
		(IsEvicted(w) && Condition(w, kueue.WorkloadEvicted).Reason == FullReason(kueue.ReasonDeactivated, kueue.ReasonMaximumExecutionTimeExceeded))
}

// Pending writes why the Workload has no reservation: QuotaReserved=False with a reason of spec 10 §5.1, or with its
// older name under LegacyReasons. It drops a reservation, which is not an eviction: for stopped queues, jobs
// on hold and gates. A Workload on a worker cluster leaves it. An earlier rejection is over, and Admitted is synced.
func (m Machine) Pending(w *kueue.Workload, reason, message string, now metav1.Time) bool {
	if IsFinished(w) {
		return false
	}
	forgotten := forgetRejection(w)
	if forgotten && DeactivatedByBerth(w) { // the rejection had replaced the condition
		set(w, kueue.WorkloadRequeued, metav1.ConditionTrue, kueue.ReasonReactivated, isActiveAgain, now)
	}
	return m.pending(w, reason, message, now) || forgotten
}

// Reject keeps a pending Workload out of its queue, because the devices that its pods claim cannot be charged. The rejection is over as soon
// as they can; the next write removes it (spec: 20 §4.12).
func (m Machine) Reject(w *kueue.Workload, message string, now metav1.Time) bool {
	if !IsPending(w) {
		return false
	}
	changed := m.pending(w, kueue.ReasonMisconfigured, message, now)
	return set(w, kueue.WorkloadRequeued, metav1.ConditionFalse, kueue.ReasonInadmissible, message, now) || changed
}

// IsRejected reports whether the last write about the Workload was a rejection.
func IsRejected(w *kueue.Workload) bool {
	c := Condition(w, kueue.WorkloadRequeued)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == kueue.ReasonInadmissible
}

func forgetRejection(w *kueue.Workload) bool {
	return IsRejected(w) && remove(w, kueue.WorkloadRequeued)
}

func (m Machine) pending(w *kueue.Workload, reason, message string, now metav1.Time) bool {
	changed := set(w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, m.PendingReason(reason), message, now)
	if w.Status.Admission != nil {
		w.Status.Admission = nil
		changed = true
	}
	if w.Status.ClusterName != "" {
		leaveCluster(w, "with the end of the reservation", now)
		changed = true
	}
	return m.SyncAdmitted(w, now) || changed
}

// PendingReason returns the name of a reason of QuotaReserved=False, the older one under LegacyReasons.
func (m Machine) PendingReason(reason string) string {
	if !m.LegacyReasons {
		return reason
	}
	switch reason {
	case kueue.ReasonMisconfigured, kueue.ReasonSuspended:
		return kueue.ReasonInadmissible
	case kueue.ReasonWaitingForPodsReady:
		return kueue.ReasonWaiting
	case kueue.ReasonWaitingForQuota, kueue.ReasonNoMatchingFlavor, kueue.ReasonExceedsMaxQuota, kueue.ReasonTopologyPlacementFailed,
		kueue.ReasonWaitingForPreemptedWorkloads, kueue.ReasonPendingEvaluation:
		return kueue.ReasonPending
	}
	return reason
}

// PodsReady records whether the pods of the job are ready. The reason follows from the previous one. The same status
// and reason are no change, regardless of the message (spec: 30 §4.8).
func (m Machine) PodsReady(w *kueue.Workload, ready bool, now metav1.Time) bool {
	before := Condition(w, kueue.WorkloadPodsReady)
	status, reason, message := metav1.ConditionFalse, kueue.ReasonWaitForStart, "Not all pods are ready yet"
	lost := before != nil && (before.Reason == kueue.ReasonWaitForRecovery || before.Status == metav1.ConditionTrue)
	back := before != nil && (before.Reason == kueue.ReasonWaitForRecovery || before.Reason == kueue.ReasonRecovered)
	switch {
	case !IsAdmitted(w):
	case ready && back:
		status, reason, message = metav1.ConditionTrue, kueue.ReasonRecovered, "All pods are ready again"
	case ready:
		status, reason, message = metav1.ConditionTrue, kueue.ReasonStarted, "All pods are ready"
	case lost:
		reason, message = kueue.ReasonWaitForRecovery, "At least one pod is not ready any more"
	}
	if before != nil && before.Status == status && before.Reason == reason {
		return false
	}
	return set(w, kueue.WorkloadPodsReady, status, reason, message, now)
}

// WaitForReplacements records whether the job lacks pods; absent is their number. While it does, the Workload does not return
// to its queue. The reason is the reason of the eviction, or PodsFailed, which a later eviction replaces and a later
// admission does not (spec: 30 §4.9).
func (m Machine) WaitForReplacements(w *kueue.Workload, absent int, now metav1.Time) bool {
	waits := isTrue(w, kueue.WorkloadWaitingForReplacementPods)
	switch {
	case IsFinished(w) || (absent == 0 && !waits):
		return false
	case absent == 0:
		return set(w, kueue.WorkloadWaitingForReplacementPods, metav1.ConditionFalse, kueue.ReasonPodsReady, "All pods are there", now)
	case IsEvicted(w):
		evicted := Condition(w, kueue.WorkloadEvicted)
		return set(w, kueue.WorkloadWaitingForReplacementPods, metav1.ConditionTrue, evicted.Reason, evicted.Message, now)
	case waits:
		return false
	default:
		return set(w, kueue.WorkloadWaitingForReplacementPods, metav1.ConditionTrue, kueue.ReasonPodsFailed, "Some pods failed, and their replacements are not there yet", now)
	}
}

// Finish ends the life of the Workload. The quota is free at once; nothing else of the status changes. A Workload
// finishes once: later calls change nothing (spec: 30 §5.1).
func (m Machine) Finish(w *kueue.Workload, reason, message string, now metav1.Time) bool {
	if IsFinished(w) {
		return false
	}
	return set(w, kueue.WorkloadFinished, metav1.ConditionTrue, reason, message, now)
}
