package variants

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// decider is one run of Next.
type decider struct {
	*Config
	o        *Observed
	parent   *kueue.Workload
	policy   *kueue.ConcurrentAdmissionPolicy
	flavors  []kueue.ResourceFlavorReference
	variants []*kueue.Workload // by rank
	// runsOn is the variant whose admission the parent shows, admitted the one that is admitted and not evicted; nil for none.
	runsOn, admitted *kueue.Workload
	wake             time.Time
}

// Next returns the next write, or Nothing. The rules come by urgency: first the end of a job, then its start, and then the set
// of variants (spec: 20 §4.13).
func (c *Config) Next(o *Observed) Step {
	d := &decider{Config: c, o: o, parent: o.Parent, variants: slices.SortedFunc(slices.Values(o.Variants), compareRanks)}
	d.policy = PolicyOf(o.Queue, c.On)
	if d.policy != nil {
		d.flavors = flavors(o.Queue)
	}
	if d.parent.DeletionTimestamp != nil || lifecycle.VariantOf(d.parent) != "" {
		return Step{} // its variants are deleted with it
	}
	d.runsOn, d.admitted = RunsOn(d.parent, d.variants), d.findAdmitted()
	for _, rule := range []func() *Step{
		d.finish, d.become, d.stop, d.takeAlong, d.release, d.cleanUp, d.replace, d.follow, d.activate, d.admit, d.start, d.create, d.giveUp,
		d.requeue, d.followGates, d.block, d.ungate,
	} {
		if step := rule(); step != nil {
			return *step
		}
	}
	return Step{Wake: d.wake}
}

// wakeAt makes the Workload be observed again at a time, or earlier.
func (d *decider) wakeAt(at time.Time) {
	if d.wake.IsZero() || at.Before(d.wake) {
		d.wake = at
	}
}

// findAdmitted returns the variant that is admitted. There is at most one, unless a client wrote the status: then it is the one on which
// the job runs, else the preferred one.
func (d *decider) findAdmitted() (found *kueue.Workload) {
	for _, v := range d.variants {
		if isAdmitted(v) && (found == nil || v == d.runsOn) {
			found = v
		}
	}
	return found
}

func isAdmitted(v *kueue.Workload) bool {
	return lifecycle.IsAdmitted(v) && lifecycle.IsReserved(v) && !lifecycle.IsEvicted(v) && !lifecycle.IsFinished(v) && lifecycle.IsActive(v) &&
		v.DeletionTimestamp == nil
}

// status returns a step that changes the status of a Workload, nil if change does not.
func (d *decider) status(w *kueue.Workload, guarded bool, change func(next *kueue.Workload) bool) *Step {
	next := w.DeepCopy()
	if !change(next) {
		return nil
	}
	return &Step{Verb: WriteStatus, Workload: next, Was: w, Guarded: guarded}
}

func (d *decider) evict(w *kueue.Workload, reason, note string) *Step {
	step := d.status(w, false, func(next *kueue.Workload) bool { return d.Machine.Evict(next, reason, "", note, d.o.Now) })
	if step != nil {
		c := lifecycle.Condition(step.Workload, kueue.WorkloadEvicted)
		step.Events = []Event{{w, "EvictedDueTo" + c.Reason, c.Message}}
	}
	return step
}

// finish finishes the variants of a finished parent, and does nothing else then.
func (d *decider) finish() *Step {
	done := lifecycle.Condition(d.parent, kueue.WorkloadFinished)
	if !lifecycle.IsFinished(d.parent) {
		return nil
	}
	for _, v := range d.variants {
		step := d.status(v, false, func(next *kueue.Workload) bool { return d.Machine.Finish(next, done.Reason, done.Message, d.o.Now) })
		if step != nil {
			return step
		}
	}
	return &Step{}
}

// become labels a Workload as a parent. One that holds quota itself runs on, and becomes one once it has released that. A Workload that is
// neither a parent nor has variants concerns no other rule.
func (d *decider) become() *Step {
	if lifecycle.IsParent(d.parent) {
		return nil
	}
	if d.policy == nil || !MayDivide(d.parent) || lifecycle.IsReserved(d.parent) {
		if len(d.variants) > 0 {
			return nil
		}
		return &Step{}
	}
	next := d.parent.DeepCopy()
	metav1.SetMetaDataLabel(&next.ObjectMeta, kueue.ConcurrentAdmissionParentLabel, "true")
	return &Step{Verb: Patch, Workload: next, Was: d.parent}
}

// divides reports whether the Workload is a parent, and its ClusterQueue still wants variants.
func (d *decider) divides() bool {
	return d.policy != nil && lifecycle.IsParent(d.parent) && MayDivide(d.parent)
}

// stop evicts a parent whose variant lost its admission, or is about to be deleted.
func (d *decider) stop() *Step {
	if !lifecycle.IsParent(d.parent) || !lifecycle.IsReserved(d.parent) || lifecycle.IsEvicted(d.parent) || !lifecycle.IsActive(d.parent) {
		return nil // an inactive one is evicted for that
	}
	switch v := d.runsOn; {
	case v == nil:
		return d.evict(d.parent, kueue.ReasonConcurrentAdmission, "The variant that it ran on does not exist any more")
	case lifecycle.IsEvicted(v):
		c := lifecycle.Condition(v, kueue.WorkloadEvicted)
		return d.evict(d.parent, kueue.ReasonVariantEvicted, fmt.Sprintf("Variant %s was evicted (%s): %s", v.Name, c.Reason, c.Message))
	case !isAdmitted(v):
		return d.evict(d.parent, kueue.ReasonConcurrentAdmission, "Variant "+v.Name+" is not admitted any more")
	case !d.On:
		return d.evict(d.parent, kueue.ReasonConcurrentAdmission, "Variant "+v.Name+" is to be deleted: the feature gate ConcurrentAdmission is off")
	case d.o.Queue != nil && d.isStale(v):
		return d.evict(d.parent, kueue.ReasonConcurrentAdmission, "Variant "+v.Name+" is to be deleted: ClusterQueue "+d.o.Queue.Name+
			" has no such flavor, or no variants, any more")
	}
	return nil
}

// takeAlong evicts the variant of a parent that was evicted for a reason of its own.
func (d *decider) takeAlong() *Step {
	if d.runsOn == nil || !isAdmitted(d.runsOn) || !lifecycle.IsActive(d.parent) {
		return nil
	}
	if c := lifecycle.Condition(d.parent, kueue.WorkloadEvicted); lifecycle.IsEvicted(d.parent) {
		if c.Reason == kueue.ReasonConcurrentAdmission { // its variant is to be deleted
			return nil
		}
		return d.evict(d.runsOn, c.Reason, "Its parent was evicted: "+c.Message)
	}
	return nil
}

// release releases the quota of an evicted variant, once the job does not run on it.
func (d *decider) release() *Step {
	for _, v := range d.variants {
		if v == d.runsOn {
			continue
		}
		step := d.status(v, true, func(next *kueue.Workload) bool { return d.Machine.Release(next, false, d.o.Now) })
		if step != nil {
			return step
		}
	}
	return nil
}

// cleanUp removes the variants of a Workload that is to have none, and then the label.
func (d *decider) cleanUp() *Step {
	if d.divides() {
		return nil
	}
	unknown := d.On && d.o.Queue == nil && lifecycle.IsParent(d.parent) // what its queue wants
	for _, v := range d.variants {
		if v != d.runsOn && (!unknown || v.Spec.QueueName != d.parent.Spec.QueueName) {
			return d.deleteVariant(v)
		}
	}
	if unknown {
		return &Step{}
	}
	if !lifecycle.IsParent(d.parent) || lifecycle.IsReserved(d.parent) {
		return &Step{}
	}
	if step := d.requeueParent(); step != nil {
		return step
	}
	next := d.parent.DeepCopy()
	delete(next.Labels, kueue.ConcurrentAdmissionParentLabel)
	return &Step{Verb: Patch, Workload: next, Was: d.parent}
}

// requeueParent lets a parent that was evicted with its variant join its queue, once it is no parent any more.
func (d *decider) requeueParent() *Step {
	c := lifecycle.Condition(d.parent, kueue.WorkloadRequeued)
	if c == nil || (c.Reason != kueue.ReasonConcurrentAdmission && c.Reason != kueue.ReasonVariantEvicted) {
		return nil
	}
	return d.status(d.parent, false, func(next *kueue.Workload) bool {
		return d.Machine.Requeue(next, kueue.ReasonReactivated, "It is queued itself, without variants", d.o.Now)
	})
}

func (d *decider) deleteVariant(v *kueue.Workload) *Step {
	if v.DeletionTimestamp != nil {
		return &Step{} // until it is gone
	}
	return &Step{Verb: Delete, Workload: v, Was: v, Events: []Event{{d.parent, "DeletedVariant", "Deleted variant " + v.Name}}}
}

// isStale reports whether a variant is to be deleted: it has no flavor of the ClusterQueue, or the parent has other pods by now.
func (d *decider) isStale(v *kueue.Workload) bool {
	rank := slices.Index(d.flavors, FlavorOf(v))
	if !d.divides() || rank < 0 {
		return true
	}
	return !isCurrent(v, compose(d.parent, FlavorOf(v), rank)) && v != d.runsOn
}

// replace deletes stale variants and, while the parent is inactive, variants that were deactivated on their own: once it is active again,
// it starts anew.
func (d *decider) replace() *Step {
	for _, v := range d.variants {
		again := !lifecycle.IsActive(d.parent) && isDeactivated(v)
		if (d.isStale(v) || again) && v != d.runsOn && !lifecycle.IsFinished(v) {
			return d.deleteVariant(v)
		}
	}
	return nil
}

// isDeactivated reports whether a variant was deactivated for a reason of its own: a rejected check, or too many requeues.
func isDeactivated(v *kueue.Workload) bool {
	return !lifecycle.IsActive(v) && lifecycle.DeactivatedByBerth(v)
}

// isOut reports whether no variant may be admitted: the parent is inactive or, without a reservation, is kept out of its queue.
func (d *decider) isOut() bool {
	switch lifecycle.KeptOut(d.parent, d.Gated) {
	case lifecycle.NoObstacle, lifecycle.Divided:
		return false
	case lifecycle.Inactive, lifecycle.Finished, lifecycle.Deleted:
		return true
	case lifecycle.Gated, lifecycle.OnHold, lifecycle.WaitingForNewPods:
	}
	return !lifecycle.IsReserved(d.parent)
}

// mayRun reports whether a variant is to be active.
func (d *decider) mayRun(v *kueue.Workload) bool {
	switch {
	case d.isOut() || isDeactivated(v):
		return false
	case d.admitted == nil || v == d.admitted:
		return true
	}
	rank := slices.Index(d.flavors, FlavorOf(v))
	return rank < slices.Index(d.flavors, FlavorOf(d.admitted)) && rank < int(MigratesTo(d.o.Queue))
}

// activate makes the spec and the rank of the variants as they are to be. One that was deactivated is activated once it has released its quota,
// which another Workload may have by then. And it is activated after better ones are back in their queue: else the job starts with
// its flavor, and stops for theirs a moment later.
func (d *decider) activate() *Step {
	comes := false // a better one
	for _, v := range d.variants {
		if lifecycle.IsFinished(v) || v.DeletionTimestamp != nil {
			continue
		}
		next, step := v.DeepCopy(), &Step{Verb: Patch, Was: v}
		if rank := slices.Index(d.flavors, FlavorOf(v)); rank >= 0 && next.Annotations[lifecycle.VariantRankAnnotation] != strconv.Itoa(rank) {
			next.Annotations[lifecycle.VariantRankAnnotation], step.Workload = strconv.Itoa(rank), next
		}
		is := d.mayRun(v)
		if is != lifecycle.IsActive(v) && (!is || mayReturn(v, comes)) {
			next.Spec.Active, step.Workload = new(is), next
			if is {
				step.Events = []Event{{v, "ActivatedVariant", "It is tried again"}}
			} else {
				step.Events = []Event{{v, "DeactivatedVariant", d.whyInactive()}}
			}
		}
		if d.copyPriority(next) || copyGates(next, d.parent) {
			step.Workload = next
		}
		if step.Workload != nil {
			return step
		}
		comes = comes || isReturning(v) || is != lifecycle.IsActive(v)
	}
	return nil
}

// mayReturn reports whether an inactive variant may be activated now, given that a better one is about to be queued or not.
func mayReturn(v *kueue.Workload, comes bool) bool { return !comes && !lifecycle.IsReserved(v) }

// isReturning reports whether a variant that was deactivated is active again, and about to be queued.
func isReturning(v *kueue.Workload) bool {
	reason := ""
	switch {
	case !lifecycle.IsActive(v):
	case lifecycle.IsLeaving(v):
		reason = lifecycle.Condition(v, kueue.WorkloadEvicted).Reason
	case lifecycle.IsRequeueBlocked(v):
		reason = lifecycle.Condition(v, kueue.WorkloadRequeued).Reason
	}
	return strings.HasPrefix(reason, kueue.ReasonDeactivated)
}

func (d *decider) whyInactive() string {
	if d.isOut() || d.admitted == nil {
		return "Its parent is not to run now"
	}
	return "Variant " + d.admitted.Name + " is admitted"
}

// copyPriority makes the priority of a variant that of its parent, and reports whether it changed. A variant that holds quota keeps a class that
// cannot be changed then.
func (d *decider) copyPriority(v *kueue.Workload) (changed bool) {
	have, want := &v.Spec, &d.parent.Spec
	if !equalPointers(have.Priority, want.Priority) || !equalPointers(have.PriorityClassRef, want.PriorityClassRef) {
		if !lifecycle.IsReserved(v) || mayReplaceClass(have.PriorityClassRef, want.PriorityClassRef) {
			fresh := want.DeepCopy()
			have.Priority, have.PriorityClassRef, changed = fresh.Priority, fresh.PriorityClassRef, true
		}
	}
	if boost := d.parent.Annotations[kueue.PriorityBoostAnnotation]; boost != v.Annotations[kueue.PriorityBoostAnnotation] {
		changed = true
		if v.Annotations[kueue.PriorityBoostAnnotation] = boost; boost == "" {
			delete(v.Annotations, kueue.PriorityBoostAnnotation)
		}
	}
	return changed
}

// mayReplaceClass reports whether the API lets a reference to a priority class become another one while quota is reserved.
func mayReplaceClass(have, want *kueue.PriorityClassRef) bool {
	if have == nil || want == nil {
		return have == want
	}
	return have.Group == want.Group && have.Kind == want.Kind && (have.Name == want.Name || have.Kind == kueue.WorkloadPriorityClassKind)
}

func equalPointers[T comparable](a, b *T) bool { return a == b || (a != nil && b != nil && *a == *b) }

// admit admits the preferred of the variants with quota whose checks are ready, while none is admitted. One with a worse flavor that was
// admitted while the checks of this one went on is evicted first, and is admitted until the job has stopped.
func (d *decider) admit() *Step {
	at := slices.IndexFunc(d.variants, func(v *kueue.Workload) bool { return d.Machine.MayAdmit(v) && d.mayRun(v) })
	if at < 0 {
		return nil
	}
	ready := d.variants[at]
	if a := d.admitted; a != nil { // ready is better: else it were not to run
		step := d.evict(a, kueue.ReasonFlavorMigration, fmt.Sprintf("Variant %s has quota of flavor %s, which is preferred to %s",
			ready.Name, FlavorOf(ready), FlavorOf(a)))
		step.Guarded = true
		return step
	}
	if slices.ContainsFunc(d.variants, lifecycle.IsAdmitted) {
		return nil // until it is released
	}
	step := d.status(ready, true, func(next *kueue.Workload) bool { return d.Machine.AdmitVariant(next, d.o.Now) })
	if step != nil {
		e := lifecycle.AdmittedNow(step.Workload, d.o.Now)
		step.Events = []Event{{ready, e.Reason, e.Note}}
	}
	return step
}

// start admits the parent with the admission of the admitted variant.
func (d *decider) start() *Step {
	if d.admitted == nil || d.isOut() || lifecycle.IsReserved(d.parent) {
		return nil
	}
	step := d.status(d.parent, true, func(next *kueue.Workload) bool { return d.Machine.CopyAdmission(next, d.admitted, d.o.Now) })
	if step != nil {
		note := "Admitted by variant " + d.admitted.Name + " in ClusterQueue " + string(d.admitted.Status.Admission.ClusterQueue)
		step.Events = []Event{{d.parent, kueue.ReasonAdmitted, note}}
	}
	return step
}

// follow copies what is known of the pods and their nodes from the parent to the variant on which it runs, and new places of them back.
func (d *decider) follow() *Step {
	v := d.runsOn
	if v == nil || !isAdmitted(v) || lifecycle.IsEvicted(d.parent) {
		return nil
	}
	step := d.status(d.parent, true, func(next *kueue.Workload) bool { return d.Machine.FollowPlaces(next, v, d.o.Now) })
	if step != nil {
		return step
	}
	step = d.status(v, true, func(next *kueue.Workload) bool { return d.Machine.FollowNodes(next, d.parent) })
	if step != nil {
		return step
	}
	if !slices.Equal(v.Status.ReclaimablePods, d.parent.Status.ReclaimablePods) && len(d.parent.Status.ReclaimablePods) > 0 {
		next := v.DeepCopy()
		next.Status.ReclaimablePods = slices.Clone(d.parent.Status.ReclaimablePods)
		return &Step{Verb: WriteReclaimable, Workload: next, Was: v}
	}
	if ready := lifecycle.Condition(d.parent, kueue.WorkloadPodsReady); ready != nil {
		next := v.DeepCopy()
		if have := lifecycle.Condition(v, kueue.WorkloadPodsReady); have == nil || have.Status != ready.Status || have.Reason != ready.Reason {
			apimeta.SetStatusCondition(&next.Status.Conditions, *ready)
			return &Step{Verb: WritePodsReady, Workload: next, Was: v}
		}
	}
	return nil
}

// create creates a missing variant, unless that has just failed. A parent that is kept out of its queue gets none.
func (d *decider) create() *Step {
	if d.isOut() {
		return nil
	}
	for rank, flavor := range d.flavors {
		exists := slices.ContainsFunc(d.variants, func(v *kueue.Workload) bool { return FlavorOf(v) == flavor })
		if exists || slices.Contains(d.o.Failed, flavor) {
			continue
		}
		v := compose(d.parent, flavor, rank)
		if !d.mayRun(v) {
			v.Spec.Active = new(false)
		}
		return &Step{Verb: Create, Workload: v, Events: []Event{{d.parent, "CreatedVariant", "Created variant " + v.Name}}}
	}
	return nil
}

// giveUp deactivates a parent of which every variant was deactivated on its own, for the cause of the preferred one. A variant that cannot be
// created yet may run later.
func (d *decider) giveUp() *Step {
	if d.isOut() || len(d.o.Failed) > 0 || len(d.variants) == 0 || slices.ContainsFunc(d.variants, func(v *kueue.Workload) bool { return !isDeactivated(v) }) {
		return nil
	}
	c := lifecycle.Condition(d.variants[0], kueue.WorkloadEvicted)
	cause := strings.TrimPrefix(c.Reason, kueue.ReasonDeactivated+"DueTo")
	return d.status(d.parent, true, func(next *kueue.Workload) bool {
		return d.Machine.RequestDeactivation(next, cause, "Every variant of it was deactivated; the first: "+c.Message, d.o.Now)
	})
}

// requeue returns a variant that made room for a better one to its queue, if no better one is admitted in its place. A worse one may be.
func (d *decider) requeue() *Step {
	if d.isOut() {
		return nil
	}
	for _, v := range d.variants {
		if lifecycle.IsReserved(v) && lifecycle.IsActive(v) && !lifecycle.IsEvicted(v) {
			return nil // it is preferred to the rest, and admitted or about to be
		}
		c := lifecycle.Condition(v, kueue.WorkloadRequeued)
		if !lifecycle.IsActive(v) || lifecycle.IsReserved(v) || !lifecycle.IsRequeueBlocked(v) || c.Reason != kueue.ReasonFlavorMigration {
			continue
		}
		if due := c.LastTransitionTime.Add(migrationTime); due.After(d.o.Now.Time) {
			d.wakeAt(due)
			continue
		}
		return d.status(v, false, func(next *kueue.Workload) bool {
			return d.Machine.Requeue(next, kueue.ReasonReactivated, "The variant that it made room for is not admitted", d.o.Now)
		})
	}
	return nil
}

// followGates opens the gates of the parent at its variants, which preempt in its place, and closes them again: a manager of MultiKueue
// knows the parent only (spec: 20 §4.14, 40 §4.10).
func (d *decider) followGates() *Step {
	for _, v := range d.variants {
		if lifecycle.IsReserved(v) || lifecycle.IsFinished(v) {
			continue
		}
		if step := d.status(v, false, func(next *kueue.Workload) bool { return d.Machine.FollowGates(next, d.parent, d.o.Now) }); step != nil {
			return step
		}
	}
	return nil
}

// block records at a parent with a closed gate that it keeps a variant from preempting others: the owner of the gate waits for that.
func (d *decider) block() *Step {
	if lifecycle.IsReserved(d.parent) || lifecycle.IsBlocked(d.parent) || len(lifecycle.ClosedGates(d.parent)) == 0 || d.isOut() {
		return nil
	}
	at := slices.IndexFunc(d.variants, func(v *kueue.Workload) bool {
		return lifecycle.IsActive(v) && !lifecycle.IsReserved(v) && lifecycle.IsBlocked(v)
	})
	if at < 0 {
		return nil
	}
	v := d.variants[at]
	note := fmt.Sprintf("Variant %s: %s", v.Name, lifecycle.Condition(v, kueue.WorkloadBlockedOnPreemptionGates).Message)
	return d.status(d.parent, true, func(next *kueue.Workload) bool { return d.Machine.BlockOnPreemptionGates(next, note, d.o.Now) })
}

func isForeign(gate string) bool { return gate != kueue.ConcurrentAdmissionPreemptionGate }

// ungate opens the preemption gate of the preferred variant that only this gate keeps from preempting others, some time after the last
// opening. A better one that was never evaluated comes first.
func (d *decider) ungate() *Step {
	for _, v := range d.variants {
		switch {
		case v == d.admitted:
			return nil
		case !lifecycle.IsActive(v) || lifecycle.IsReserved(v) || lifecycle.IsFinished(v):
			continue
		case lifecycle.Condition(v, kueue.WorkloadQuotaReserved) == nil:
			return nil
		case isOpen(v) || !lifecycle.IsBlocked(v) || slices.ContainsFunc(lifecycle.ClosedGates(v), isForeign):
			continue
		}
		if last := d.lastOpening(); !last.IsZero() && last.Add(Spacing).After(d.o.Now.Time) {
			d.wakeAt(last.Add(Spacing))
			return nil
		}
		step := d.status(v, false, func(next *kueue.Workload) bool {
			return d.Machine.OpenGate(next, kueue.ConcurrentAdmissionPreemptionGate, d.o.Now)
		})
		if step != nil {
			step.Events = []Event{{v, "PreemptionUngatedVariant", "It may preempt others now"}}
		}
		return step
	}
	return nil
}

// lastOpening returns when a gate that is open was opened last, zero for none.
func (d *decider) lastOpening() (last time.Time) {
	for _, v := range d.variants {
		if isOpen(v) && gateOf(v).LastTransitionTime.After(last) {
			last = gateOf(v).LastTransitionTime.Time
		}
	}
	return last
}

func isOpen(v *kueue.Workload) bool {
	g := gateOf(v)
	return g != nil && g.Position == kueue.PreemptionGateOpen
}

func gateOf(v *kueue.Workload) *kueue.PreemptionGateState {
	return lifecycle.GateOf(v, kueue.ConcurrentAdmissionPreemptionGate)
}

// String names the step, for logs and tests.
func (s Step) String() string {
	if s.Verb == Nothing {
		return "nothing"
	}
	name := [...]string{"nothing", "patch", "create", "delete", "status", "ready", "reclaimable"}[s.Verb]
	var events []string
	for _, e := range s.Events {
		events = append(events, e.Reason)
	}
	return strings.TrimSpace(name + " " + s.Workload.Name + " " + strings.Join(events, ","))
}
