package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Rules are the configuration of the life of Workloads.
type Rules struct {
	Machine
	Ready *ReadyRules // nil if Workloads do not wait for ready pods
	// KeepFinished is how long a finished Workload is retained; nil is for ever.
	KeepFinished *time.Duration
	// Orphans finishes Workloads that lost their job: feature gate FinishOrphanedWorkloads.
	Orphans bool
	// Gated honours the annotation that keeps Workloads out of their queue: feature gate AdmissionGatedBy.
	Gated bool
}

// ReadyRules are the rules for Workloads whose pods do not get ready (spec: 20 §4.15).
type ReadyRules struct {
	Timeout  time.Duration // from admission until all pods are ready
	Recovery time.Duration // until they are ready again; 0 is no limit
	// The n-th requeue comes after Base·2^(n−1), at most Max.
	Base, Max time.Duration
	// Limit is the number of requeues; negative is no limit.
	Limit int
}

// World holds the objects that decide about a Workload beside itself.
type World struct {
	// LocalQueue is the LocalQueue of the Workload, nil if it does not exist.
	LocalQueue *kueue.LocalQueue
	// ClusterQueue is the ClusterQueue of its admission or, without a reservation, of the LocalQueue; nil if it
	// does not exist.
	ClusterQueue *kueue.ClusterQueue
	// Dispatchers are its checks of MultiKueue.
	Dispatchers []kueue.AdmissionCheckReference
	// Devices is why the devices that its pods claim cannot be charged, "" if they can.
	Devices string
	// Replaced is the slice whose pods an admitted one has taken over, nil without one or if it is gone.
	Replaced *kueue.Workload
	// Since is when Workloads began to be followed. What happened to its job before may not be in its status yet.
	Since time.Time
}

// Event is an event to emit about a Workload.
type Event struct {
	Warning      bool
	Reason, Note string
}

// Followed is the result of Follow: at most one write, in the order of the fields, after which the Workload is
// reconciled again.
type Followed struct {
	Status     bool // its status was changed
	Deactivate bool // spec.active is to be false
	Unfinalize bool // the finalizer is to be removed
	Delete     bool // it is to be deleted
	Events     []Event
	Wake       time.Time // when to requeue, without an event; zero is never
}

// follower is one run of Follow.
type follower struct {
	*Rules
	World
	w   *kueue.Workload
	now metav1.Time
	out Followed
}

// Follow applies a Workload's conditions, deadlines, admission checks and queues, regardless of their writer.
// It changes the Workload, which must be the caller's own copy. The steps are those in spec 10 §4.10.
func (r *Rules) Follow(w *kueue.Workload, in World, now metav1.Time) Followed {
	f := &follower{Rules: r, World: in, w: w, now: now}
	switch {
	case f.orphaned():
	case IsFinished(w):
		f.retain()
	case w.DeletionTimestamp != nil: // the owner of its finalizer removes it
	default:
		f.mirrorGates()
		f.raiseBackoff()
		if f.activity() {
			f.restart()
			f.gate()
			f.devices()
			f.listChecks()
			f.explicit()
			f.sync()
			f.hold()
		}
	}
	if f.out.Status {
		f.out.Deactivate, f.out.Unfinalize, f.out.Delete = false, false, false
	}
	return f.out
}

func (f *follower) changed(is bool) bool {
	f.out.Status = f.out.Status || is
	return is
}

func (f *follower) tell(warning bool, reason, note string) {
	f.out.Events = append(f.out.Events, Event{warning, reason, note})
}

// wakeAt asks for a requeue at a time in the future.
func (f *follower) wakeAt(at time.Time) {
	if at.After(f.now.Time) && (f.out.Wake.IsZero() || at.Before(f.out.Wake)) {
		f.out.Wake = at
	}
}

// evict begins an eviction, and emits an event if there was a reservation.
func (f *follower) evict(reason, cause, message string) {
	if f.changed(f.Evict(f.w, reason, cause, message, f.now)) {
		f.tellEviction()
	}
}

func (f *follower) tellEviction() {
	if c := Condition(f.w, kueue.WorkloadEvicted); f.w.Status.Admission != nil {
		f.tell(false, "EvictedDueTo"+c.Reason, c.Message)
	}
}

// orphaned (step 1) ends a Workload that lost its job, and reports whether the Workload is an orphan.
func (f *follower) orphaned() bool {
	_, ofJob := f.w.Labels[kueue.JobUIDLabel]
	deleted := f.w.DeletionTimestamp != nil
	if len(f.w.OwnerReferences) > 0 || (!deleted && (!ofJob || !f.Orphans)) {
		return false
	}
	finished, unfinalize := f.ReleaseOrphan(f.w, f.Orphans, f.now)
	f.changed(finished)
	f.out.Unfinalize = unfinalize
	if !finished && !unfinalize && !deleted {
		f.retain()
	}
	return true
}

// retain (step 3) deletes a finished Workload after its retention time. As long as a job exists that could not be started, its Workload stays: a new
// one would be admitted, and the start refused again.
func (f *follower) retain() {
	finished := Condition(f.w, kueue.WorkloadFinished)
	if f.KeepFinished == nil || f.w.DeletionTimestamp != nil || (finished.Reason == kueue.ReasonFailedToStart && len(f.w.OwnerReferences) > 0) {
		return
	}
	due := finished.LastTransitionTime.Add(*f.KeepFinished)
	if due.After(f.now.Time) {
		f.wakeAt(due)
		return
	}
	if f.out.Unfinalize = HasFinalizer(f.w); !f.out.Unfinalize {
		f.out.Delete = true
		f.tell(false, "Deleted", fmt.Sprintf("Deleted %s after it finished (objectRetentionPolicies.workloads.afterFinished)", *f.KeepFinished))
	}
}

// mirrorGates (step 2) gives every preemption gate of the spec a position, initially Closed, and unblocks when all are open.
func (f *follower) mirrorGates() {
	have := f.w.Status.PreemptionGates
	var want []kueue.PreemptionGateState
	for _, g := range f.w.Spec.PreemptionGates {
		at := slices.IndexFunc(have, func(s kueue.PreemptionGateState) bool { return s.Name == g.Name })
		if at >= 0 {
			want = append(want, have[at])
			continue
		}
		want = append(want, kueue.PreemptionGateState{Name: g.Name, Position: kueue.PreemptionGateClosed, LastTransitionTime: f.now})
	}
	same := func(a, b kueue.PreemptionGateState) bool { return a.Name == b.Name }
	if !slices.EqualFunc(have, want, same) {
		f.w.Status.PreemptionGates = want
		f.changed(true)
	}
	f.changed(f.UnblockFromPreemptionGates(f.w))
}

// raiseBackoff (step 4) extends the backoff to the longest that a check with a retry requests.
func (f *follower) raiseBackoff() {
	for _, c := range f.w.Status.AdmissionChecks {
		if c.State != kueue.CheckStateRetry || c.RequeueAfterSeconds == nil {
			continue
		}
		f.notBefore(c.LastTransitionTime.Add(time.Duration(*c.RequeueAfterSeconds) * time.Second))
	}
}

// notBefore moves the end of the backoff to a later time, never to an earlier one.
func (f *follower) notBefore(at time.Time) {
	s := f.w.Status.RequeueState
	if !at.After(f.now.Time) || (s != nil && s.RequeueAt != nil && !at.After(s.RequeueAt.Time)) {
		return
	}
	if s == nil {
		s = &kueue.RequeueState{}
		f.w.Status.RequeueState = s
	}
	s.RequeueAt = new(metav1.NewTime(at))
	f.changed(true)
}

// isActiveAgain is the message of Requeued with the reason Reactivated.
const isActiveAgain = "The workload is active again"

// activity (step 6) follows spec.active and the backoff, and reports whether the other steps apply.
func (f *follower) activity() bool {
	if !IsActive(f.w) {
		f.inactive()
		return false
	}
	if isTrue(f.w, kueue.WorkloadDeactivationTarget) {
		f.out.Deactivate = true
		return false
	}
	waits := false
	if s := f.w.Status.RequeueState; s != nil && s.RequeueAt != nil {
		f.wakeAt(s.RequeueAt.Time)
		waits = s.RequeueAt.After(f.now.Time)
		if !waits { // also while an eviction is unfinished: the backoff is over, and the release need not wait for another reconcile
			s.RequeueAt = nil
			if s.Count == nil {
				f.w.Status.RequeueState = nil
			}
			f.changed(true)
		}
	}
	switch reason := f.blocked(); {
	case strings.HasPrefix(reason, kueue.ReasonDeactivated): // also DeactivatedDueTo…
		f.changed(f.Requeue(f.w, kueue.ReasonReactivated, isActiveAgain, f.now))
	case waits:
	case reason == kueue.ReasonPodsReadyTimeout || reason == kueue.ReasonAdmissionCheck:
		f.changed(f.Requeue(f.w, kueue.ReasonBackoffFinished, "The time to wait before the next try is over", f.now))
	}
	return true
}

// blocked returns why the Workload may not return to its queue, "" if it may, or still holds quota.
func (f *follower) blocked() string {
	if IsReserved(f.w) || !IsRequeueBlocked(f.w) {
		return ""
	}
	return Condition(f.w, kueue.WorkloadRequeued).Reason
}

// inactive evicts a deactivated Workload, and writes the reason of one without a reservation.
func (f *follower) inactive() {
	evicted := IsEvicted(f.w)
	if f.changed(f.Deactivate(f.w, f.now)) && !evicted {
		f.tellEviction()
	}
	if !IsReserved(f.w) {
		f.changed(f.Pending(f.w, kueue.ReasonDeactivated, "The workload is deactivated: spec.active is false", f.now))
	}
}

// restart (steps 7 and 8) requeues Workloads that were evicted when their queue stopped, once it runs again.
func (f *follower) restart() {
	switch reason := f.blocked(); {
	case reason == kueue.ReasonLocalQueueStopped && f.LocalQueue != nil && !IsStopped(f.LocalQueue.Spec.StopPolicy):
		f.changed(f.Requeue(f.w, kueue.ReasonLocalQueueRestarted, "The LocalQueue runs again", f.now))
	case reason == kueue.ReasonClusterQueueStopped && f.ClusterQueue != nil && !IsStopped(f.ClusterQueue.Spec.StopPolicy):
		f.changed(f.Requeue(f.w, kueue.ReasonClusterQueueRestarted, "The ClusterQueue runs again", f.now))
	}
}

// IsStopped reports whether the policy of a LocalQueue or ClusterQueue admits nothing: Hold and HoldAndDrain (spec: 10 §4.12).
func IsStopped(p kueue.StopPolicy) bool { return p != "" && p != kueue.StopPolicyNone }

// gate (step 7) keeps a Workload out of its queue as long as its annotation names gates. A problem of its queues is the reason before them
// (spec: 10 §4.10).
func (f *follower) gate() {
	gates := strings.TrimSpace(f.w.Annotations[kueue.AdmissionGatedByAnnotation])
	c := Condition(f.w, kueue.WorkloadQuotaReserved)
	shown := c != nil && c.Status == metav1.ConditionFalse && c.Reason == kueue.ReasonAdmissionGated
	switch {
	case !f.Gated || IsAdmitted(f.w):
	case gates != "":
		f.showGates(gates, shown)
	case shown:
		f.changed(f.Pending(f.w, kueue.ReasonPendingEvaluation, "All admission gates are gone", f.now))
		f.tell(false, "AdmissionGateCleared", "All admission gates are gone")
	}
}

func (f *follower) showGates(gates string, shown bool) {
	if p := cmp.Or(f.localQueue(), f.clusterQueue(), f.inactiveQueue()); p != nil {
		f.changed(f.Pending(f.w, p.reason, p.message, f.now))
	} else if !shown {
		note := "Not queued before these gates are gone from the annotation " + kueue.AdmissionGatedByAnnotation + ": " + gates
		f.changed(f.Pending(f.w, kueue.ReasonAdmissionGated, note, f.now))
		f.tell(false, "AdmissionGated", note)
	}
}

// devices (step 5, after the reasons that keep it out of its queue anyway) rejects a Workload whose devices cannot be charged. A backoff
// ends first (spec: 20 §4.12).
func (f *follower) devices() {
	if f.Devices == "" || KeptOut(f.w, f.Gated) != NoObstacle || (IsRequeueBlocked(f.w) && !IsRejected(f.w)) {
		return
	}
	told := IsRejected(f.w)
	if f.changed(f.Reject(f.w, f.Devices, f.now)) && !told {
		f.tell(true, f.PendingReason(kueue.ReasonMisconfigured), f.Devices)
	}
}

// listAfter is how long a new Workload waits for the list of its checks: mostly it gets a reservation before, and the list in the same write.
const listAfter = 2 * time.Second

// listChecks (step 8) gives every required admission check an entry in the status, and drops other entries. A Workload that may run on a
// worker cluster keeps its check of MultiKueue, which follows it there.
func (f *follower) listChecks() {
	if f.ClusterQueue == nil {
		return
	}
	have := f.w.Status.AdmissionChecks
	var want []kueue.AdmissionCheckState
	var required []kueue.AdmissionCheckReference
	if !IsParent(f.w) { // its variants pass them (spec: 20 §4.13)
		required = RequiredChecks(f.ClusterQueue, f.w.Status.Admission)
	}
	if MayRunElsewhere(f.w) {
		for _, c := range have {
			if slices.Contains(f.Dispatchers, c.Name) && !slices.Contains(required, c.Name) {
				required = append(required, c.Name)
			}
		}
		slices.Sort(required)
	}
	for _, name := range required {
		at := slices.IndexFunc(have, func(c kueue.AdmissionCheckState) bool { return c.Name == name })
		if at >= 0 {
			want = append(want, have[at])
			continue
		}
		want = append(want, pendingCheck(name, f.now))
	}
	same := func(a, b kueue.AdmissionCheckState) bool { return a.Name == b.Name }
	if due := f.w.CreationTimestamp.Add(listAfter); len(have) == 0 && len(want) > 0 && !IsReserved(f.w) && due.After(f.now.Time) {
		f.wakeAt(due)
		return
	}
	if !slices.EqualFunc(have, want, same) {
		f.w.Status.AdmissionChecks = want
		f.changed(true)
	}
}

// RequiredChecks returns the admission checks that a Workload of the ClusterQueue has to pass, by name: with an admission,
// the checks of its flavors; without, the checks for all flavors (spec: 10 §4.9).
func RequiredChecks(cq *kueue.ClusterQueue, admission *kueue.Admission) []kueue.AdmissionCheckReference {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	assigned := map[kueue.ResourceFlavorReference]bool{}
	if admission != nil {
		for _, a := range admission.PodSetAssignments {
			for _, flavor := range a.Flavors { //berth:unordered a set
				assigned[flavor] = true
			}
		}
	}
	var out []kueue.AdmissionCheckReference
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		required := len(rule.OnFlavors) == 0
		if !required && admission != nil {
			required = slices.ContainsFunc(rule.OnFlavors, func(f kueue.ResourceFlavorReference) bool { return assigned[f] })
		}
		if !required && admission == nil {
			required = HasAllFlavors(cq, rule.OnFlavors)
		}
		if required {
			out = append(out, rule.Name)
		}
	}
	slices.Sort(out)
	return out
}

// HasAllFlavors reports whether a list has all flavors of a ClusterQueue.
func HasAllFlavors(cq *kueue.ClusterQueue, flavors []kueue.ResourceFlavorReference) bool {
	for _, g := range cq.Spec.ResourceGroups {
		for _, f := range g.Flavors {
			if !slices.Contains(flavors, f.Name) {
				return false
			}
		}
	}
	return true
}

// explicit (step 9) writes that a Workload without QuotaReserved was not evaluated yet, under ExplicitStatus.
func (f *follower) explicit() {
	if f.ExplicitStatus && Condition(f.w, kueue.WorkloadQuotaReserved) == nil {
		f.changed(f.Pending(f.w, kueue.ReasonPendingEvaluation, "The workload is not evaluated yet", f.now))
	}
}

// sync (step 9) makes Admitted follow reservation and checks until the Workload is admitted. An admitted one keeps
// running when checks are added or removed; a failing check evicts it.
func (f *follower) sync() {
	if IsReserved(f.w) && (IsEvicted(f.w) || IsAdmitted(f.w)) {
		return
	}
	if IsPending(f.w) && MayQueue(f.w, f.Gated) && Condition(f.w, kueue.WorkloadQuotaReserved) != nil && Condition(f.w, kueue.WorkloadAdmitted) == nil {
		return // an older release of another controller wrote no Admitted: the next verdict adds it, so that taking over is one write
	}
	was := IsAdmitted(f.w)
	f.changed(f.SyncAdmitted(f.w, f.now))
	if IsAdmitted(f.w) && !was {
		f.out.Events = append(f.out.Events, AdmittedNow(f.w, f.now))
	}
}

// AdmittedNow returns the event of a Workload that has become admitted after its reservation.
func AdmittedNow(w *kueue.Workload, now metav1.Time) Event {
	note := "Admitted by ClusterQueue " + string(w.Status.Admission.ClusterQueue)
	if c := Condition(w, kueue.WorkloadQuotaReserved); c != nil {
		note += fmt.Sprintf(", wait time since reservation was %.0fs", now.Sub(c.LastTransitionTime.Time).Seconds())
	}
	return Event{Reason: kueue.ReasonAdmitted, Note: note}
}
