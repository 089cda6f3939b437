package decide

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

func (s *decider) prebuiltName() string {
	if !s.d.Prebuilt {
		return ""
	}
	return s.cfg.PrebuiltName(s.job)
}

// ensure (step 5) finds the one Workload of the job, or the write that leads to having one. Neither means that there is
// none yet.
func (s *decider) ensure() (*kueue.Workload, *job.Action) {
	if s.prebuiltName() != "" {
		return s.adopt()
	}
	podSets, err := s.in.PodSets(s.d, s.job)
	if err != nil {
		if s.finished {
			return nil, nil
		}
		a := notComposed(err)
		return nil, &a
	}
	if s.elastic {
		if w, a, ok := s.slice(podSets); ok {
			return w, a
		}
	}
	match, rest, a := s.match(podSets)
	if a != nil {
		return nil, a
	}
	if match == nil {
		if s.d.ManagedChildren != nil && s.suspended && s.isActive() && !s.isDispatched() {
			return nil, new(s.untilInactive()) // what it has is in use until all of it is gone
		}
		if a := s.mismatch(podSets, rest); a != nil {
			return nil, a
		}
	}
	if len(rest) > 0 {
		return nil, s.discard(rest[0])
	}
	return match, nil
}

// match finds the Workload that describes the job, nil for none, and the others that the job controls; or the write that
// lets go of one of an earlier job.
func (s *decider) match(podSets []kueue.PodSet) (match *kueue.Workload, rest []*kueue.Workload, a *job.Action) {
	for _, w := range s.o.Workloads {
		if !s.isController(w) || (s.elastic && lifecycle.IsFinished(w)) {
			continue
		}
		if s.isOfEarlierJob(w) {
			if a, ok := s.orphan(w); ok {
				return nil, nil, &a
			}
			continue
		}
		ended := s.finished && lifecycle.IsFinished(w) // nothing left to keep in step
		if match == nil && (ended || (!s.hasLeft(w) && equivalent(s.cfg, s.job, podSets, s.suspended, false, w, s.o.Flavors))) {
			match = w
			continue
		}
		rest = append(rest, w)
	}
	return match, rest, nil
}

// isController reports whether a job of this kind and name controls the Workload. Other Workloads that name it as an owner
// only want to be deleted with it.
func (s *decider) isController(w *kueue.Workload) bool {
	owner := metav1.GetControllerOf(w)
	return owner != nil && owner.Kind == s.d.GVK.Kind && owner.Name == s.job.GetName()
}

// isPredecessor reports whether the Workload belongs to an earlier job of the same name.
func (s *decider) isOfEarlierJob(w *kueue.Workload) bool {
	owner := metav1.GetControllerOf(w)
	return s.cfg.FinishOrphans && owner != nil && owner.UID != s.job.GetUID()
}

// mismatch handles a job that none of its Workloads describes: the Workload of a waiting job is brought up to date, a
// running job is stopped. Nil means that the Workloads are to be replaced (spec: 30 §4.4.2 rules 3 and 4).
func (s *decider) mismatch(podSets []kueue.PodSet, candidates []*kueue.Workload) *job.Action {
	if len(candidates) > 0 && s.suspended && !s.finished {
		w := candidates[0]
		if lifecycle.IsPending(w) {
			return s.bringUpToDate(w, podSets)
		}
	}
	if s.suspended || s.finished {
		return nil
	}
	var restore *kueue.Workload
	if len(candidates) == 1 {
		restore = candidates[0]
	}
	a, over := s.stop(job.NoMatchingWorkload, restore)
	if a == nil && !over {
		return &job.Action{} // stopping takes its time
	}
	return a
}

// bringUpToDate replaces the spec of a waiting Workload by what the job wants now. It keeps its place in the queue.
func (s *decider) bringUpToDate(w *kueue.Workload, podSets []kueue.PodSet) *job.Action {
	priority, err := resolvePriority(s.d, s.job, podSets, s.o.Classes)
	if err != nil {
		a := classMissing(err)
		return &a
	}
	next := w.DeepCopy()
	next.Spec = workloadSpec(s.job, s.written(podSets), priority)
	next.Spec.Active, next.Spec.PreemptionGates = w.Spec.Active, w.Spec.PreemptionGates
	return &job.Action{Verb: job.UpdateWorkload, Workload: next, Events: s.updated(w, "it did not describe the job any more")}
}

func (s *decider) updated(w *kueue.Workload, why string) []job.Event {
	return normal(eventUpdatedWorkload, fmt.Sprintf("Updated workload %s/%s: %s", w.Namespace, w.Name, why))
}

// discard takes the finalizer off a surplus Workload, then deletes it. The next one may have the same name, so it waits
// until this one is gone.
func (s *decider) discard(w *kueue.Workload) *job.Action {
	switch {
	case hasFinalizer(w):
		return &job.Action{Verb: job.UpdateWorkload, Workload: withoutFinalizer(w)}
	case w.DeletionTimestamp == nil:
		note := fmt.Sprintf("Deleted workload %s/%s, which does not describe the job", w.Namespace, w.Name)
		if s.hasLeft(w) {
			note = fmt.Sprintf("Deleted workload %s/%s, which ended when the job left management: it is managed again, and queued anew", w.Namespace, w.Name)
		}
		return &job.Action{Verb: job.DeleteWorkload, Workload: w, Events: normal(eventDeletedWorkload, note)}
	default:
		return &job.Action{}
	}
}

// adopt finds the Workload that the job names and makes the job its owner (spec: 30 §4.4.1).
func (s *decider) adopt() (*kueue.Workload, *job.Action) {
	w := s.o.Prebuilt
	if w == nil {
		return nil, nil
	}
	switch owner := metav1.GetControllerOf(w); {
	case owner != nil && owner.UID != s.job.GetUID():
		return nil, nil
	case owner == nil:
		next := w.DeepCopy()
		next.OwnerReferences = append(next.OwnerReferences, *metav1.NewControllerRef(s.job, s.d.GVK))
		labelUID(next, s.job)
		return nil, &job.Action{Verb: job.UpdateWorkload, Workload: next}
	}
	podSets, err := s.in.PodSets(s.d, s.job)
	if err != nil {
		a := notComposed(err)
		return nil, &a
	}
	if lifecycle.IsFinished(w) {
		return s.outlive(w)
	}
	if s.finished || s.isSized(w, podSets) || equivalent(s.cfg, s.job, podSets, s.suspended, true, w, s.o.Flavors) {
		return w, nil
	}
	next := w.DeepCopy()
	s.cfg.Lifecycle.Finish(next, kueue.ReasonOutOfSync, "The workload does not describe the job that names it", s.o.Now)
	return nil, &job.Action{Verb: job.WriteStatus, Workload: next}
}

// isSized reports whether whoever made the Workload of an elastic job looks after its size. A manager of another cluster changes both, one after
// the other, so that they may differ in nothing but their size.
func (s *decider) isSized(w *kueue.Workload, podSets []kueue.PodSet) bool {
	switch {
	case !s.elastic:
		return false
	case s.gatesChildren() && job.IsRemote(s.job): // pods that it has no room for keep their gates
		return true
	case w.Annotations[kueue.WorkloadSliceReplacementForAnnotation] != "", s.gatesChildren() && chain.CompareShaped(w, podSets) != chain.Grows:
		return true
	case !job.IsRemote(s.job) || chain.Compare(w, podSets) == chain.Incompatible:
		return false
	}
	resized := w.DeepCopy()
	chain.Resize(resized, podSets)
	return equivalent(s.cfg, s.job, inOrder(podSets, w.Spec.PodSets), s.suspended, true, resized, s.o.Flavors)
}

// outlive stops a job whose Workload is finished and it is not. A slice whose place another took ends nothing: the manager that made both is
// about to name the other.
func (s *decider) outlive(w *kueue.Workload) (*kueue.Workload, *job.Action) {
	switch {
	case s.elastic && job.IsRemote(s.job) && lifecycle.Condition(w, kueue.WorkloadFinished).Reason == kueue.ReasonWorkloadSliceReplaced:
		return nil, &job.Action{}
	case s.finished || s.suspended:
		return w, nil
	}
	a, over := s.stop(job.NoMatchingWorkload, w)
	if a == nil && !over {
		a = &job.Action{} // stopping takes its time
	}
	return w, a
}

// sync (end of step 5) lets the Workload follow the gates and the priority class of its job. A Workload that was made by
// somebody else keeps what it has.
func (s *decider) sync(w *kueue.Workload) *job.Action {
	if s.prebuiltName() != "" {
		return nil
	}
	next := w.DeepCopy()
	var changed []string
	if s.syncGates(next) {
		changed = append(changed, "admission gates")
	}
	ok, err := s.syncPriority(next)
	if err != nil {
		a := classMissing(err)
		return &a
	}
	if ok {
		changed = append(changed, "priority")
	}
	if len(changed) == 0 {
		return nil
	}
	return &job.Action{Verb: job.UpdateWorkload, Workload: next, Events: s.updated(w, "the job changed its "+strings.Join(changed, " and "))}
}

// syncGates takes the gates that the job gave up off the Workload. Gates cannot be added later.
func (s *decider) syncGates(w *kueue.Workload) bool {
	const key = kueue.AdmissionGatedByAnnotation
	wanted, old := s.job.GetAnnotations()[key], w.Annotations[key]
	if !s.cfg.AdmissionGatedBy || wanted == old || old == "" {
		return false
	}
	had := lifecycle.SplitGates(old)
	if slices.ContainsFunc(lifecycle.SplitGates(wanted), func(gate string) bool { return !slices.Contains(had, gate) }) {
		return false
	}
	if wanted == "" {
		delete(w.Annotations, key)
	} else {
		w.Annotations[key] = wanted
	}
	return true
}

// syncPriority gives the Workload the class of the job's label, if it may still change (spec: 30 §4.6).
func (s *decider) syncPriority(w *kueue.Workload) (bool, error) {
	label := s.job.GetLabels()[kueue.PriorityClassLabel]
	ref := w.Spec.PriorityClassRef
	switch {
	case label == "":
		return false, nil
	case ref == nil && lifecycle.IsReserved(w):
		return false, nil // the API forbids it until quota is free
	case ref != nil && (ref.Kind != kueue.WorkloadPriorityClassKind || ref.Name == label):
		return false, nil
	}
	class := s.o.Classes.Workload[label]
	if class == nil {
		return false, &job.MissingClassError{Kind: kueue.WorkloadPriorityClassKind, Name: label}
	}
	priority := workloadPriority(class)
	w.Spec.PriorityClassRef, w.Spec.Priority = priority.Ref, new(priority.Value)
	return true, nil
}
