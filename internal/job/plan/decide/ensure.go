package decide

import (
	"fmt"
	"maps"
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

// ensure (step 5) returns the one Workload of the job, or the write that leads to it. Both nil: there is none yet.
func (s *decider) ensure() (*kueue.Workload, *job.Action) {
	if name := s.prebuiltName(); name != "" {
		if a := s.discardOthers(name); a != nil {
			return nil, a
		}
		return s.adopt()
	}
	podSets, err := s.in.PodSets(s.d, s.job)
	if err != nil {
		return nil, new(s.notComposed(err))
	}
	if s.elastic {
		if w, a, ok := s.slice(podSets); ok {
			return w, a
		}
	}
	match, rest := s.match(podSets)
	if match == nil {
		if s.d.ManagedChildren != nil && s.suspended && s.isActive() && !s.isDispatched() {
			return nil, new(s.untilInactive()) // its pods hold the quota until all are gone
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

// match returns the Workload that describes the job, nil for none, and the others that the job controls.
func (s *decider) match(podSets []kueue.PodSet) (match *kueue.Workload, rest []*kueue.Workload) {
	for _, w := range s.own() {
		if s.elastic && lifecycle.IsFinished(w) {
			continue
		}
		ended := s.finished && lifecycle.IsFinished(w) // nothing to synchronize
		if match == nil && (ended || (!s.hasLeft(w) && s.represents(w, podSets, false))) {
			match = w
			continue
		}
		rest = append(rest, w)
	}
	return match, rest
}

// isController reports whether a job of this kind and name controls the Workload. Other owner references are only for garbage
// collection.
func (s *decider) isController(w *kueue.Workload) bool {
	owner := metav1.GetControllerOf(w)
	return owner != nil && owner.Kind == s.d.GVK.Kind && owner.Name == s.job.GetName()
}

// isOfEarlierJob reports whether the Workload belongs to an earlier job of the same name.
func (s *decider) isOfEarlierJob(w *kueue.Workload) bool {
	owner := metav1.GetControllerOf(w)
	return s.cfg.FinishOrphans && owner != nil && owner.UID != s.job.GetUID()
}

// mismatch handles a job that none of its Workloads describes: it updates the Workload of a waiting job, and stops a running job.
// Nil means that the Workloads are to be replaced (spec: 30 §4.4.2 rules 3 and 4).
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
	return s.stopOrWait(restore)
}

// bringUpToDate updates the spec of a pending Workload from the job. It keeps its position in the queue.
func (s *decider) bringUpToDate(w *kueue.Workload, podSets []kueue.PodSet) *job.Action {
	priority, err := resolvePriority(s.d, s.job, podSets, s.o.Classes)
	if err != nil {
		return new(classMissing(err))
	}
	next := w.DeepCopy()
	next.Spec = workloadSpec(s.job, s.written(podSets), priority)
	next.Spec.Active, next.Spec.PreemptionGates = w.Spec.Active, w.Spec.PreemptionGates
	return &job.Action{Verb: job.UpdateWorkload, Workload: next, Events: s.updated(w, "it did not describe the job any more")}
}

func (s *decider) updated(w *kueue.Workload, why string) []job.Event {
	return normal(eventUpdatedWorkload, fmt.Sprintf("Updated workload %s/%s: %s", w.Namespace, w.Name, why))
}

// discard removes the finalizer of a surplus Workload, then deletes it. Its replacement may have the same name, and so is created
// after the deletion.
func (s *decider) discard(w *kueue.Workload) *job.Action {
	switch {
	case lifecycle.HasFinalizer(w):
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

// discardOthers removes the Workloads of a job that names another one by now: it has one (spec: 30 §4.4). A job that runs by one of them is stopped
// first. The slices of an elastic job are named one after the other.
func (s *decider) discardOthers(name string) *job.Action {
	if s.elastic {
		return nil
	}
	for _, w := range s.own() {
		if w.Name == name {
			continue
		}
		if lifecycle.IsReserved(w) && !lifecycle.IsFinished(w) {
			if !s.suspended && !s.finished {
				if a := s.stopOrWait(w); a != nil {
					return a
				}
			}
			if s.isActive() && !s.isDispatched() {
				return new(s.untilInactive())
			}
		}
		return s.discard(w)
	}
	return nil
}

// adopt returns the Workload that the job names, and makes the job its owner (spec: 30 §4.4.1).
func (s *decider) adopt() (*kueue.Workload, *job.Action) {
	w := s.o.Prebuilt
	if w == nil {
		return nil, nil
	}
	owner := metav1.GetControllerOf(w)
	if owner != nil && owner.UID != s.job.GetUID() {
		return nil, nil
	}
	next := w.DeepCopy()
	if owner == nil {
		next.OwnerReferences = append(next.OwnerReferences, *metav1.NewControllerRef(s.job, s.d.GVK))
	}
	labelUID(next, s.job)
	if owner == nil || !maps.Equal(next.Labels, w.Labels) { // it is found by the label
		return nil, &job.Action{Verb: job.UpdateWorkload, Workload: next}
	}
	podSets, err := s.in.PodSets(s.d, s.job)
	if err != nil {
		return nil, new(s.notComposed(err))
	}
	if lifecycle.IsFinished(w) {
		return s.outlive(w)
	}
	if s.finished || s.isSized(w, podSets) || s.represents(w, podSets, true) {
		return w, nil
	}
	next = w.DeepCopy()
	s.cfg.Lifecycle.Finish(next, kueue.ReasonOutOfSync, "The workload does not describe the job that names it", s.o.Now)
	return nil, &job.Action{Verb: job.WriteStatus, Workload: next}
}

// isSized reports whether the maker of an elastic job's Workload maintains its size. A manager of another cluster changes job and
// Workload one after the other, so they may differ in size only.
func (s *decider) isSized(w *kueue.Workload, podSets []kueue.PodSet) bool {
	switch {
	case !s.elastic:
		return false
	case s.gatesChildren() && job.IsRemote(s.job): // pods without room keep their gates
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

// outlive stops an unfinished job whose Workload is finished. A replaced slice is no such end: the manager that made both slices is
// about to name the other one.
func (s *decider) outlive(w *kueue.Workload) (*kueue.Workload, *job.Action) {
	switch {
	case s.elastic && job.IsRemote(s.job) && lifecycle.Condition(w, kueue.WorkloadFinished).Reason == kueue.ReasonWorkloadSliceReplaced:
		return nil, &job.Action{}
	case s.finished || s.suspended:
		return w, nil
	}
	return w, s.stopOrWait(w)
}

// sync (end of step 5) copies changed gates and priority class of the job to its Workload. A prebuilt Workload keeps its own.
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
		return new(classMissing(err))
	}
	if ok {
		changed = append(changed, "priority")
	}
	if len(changed) == 0 {
		return nil
	}
	return &job.Action{Verb: job.UpdateWorkload, Workload: next, Events: s.updated(w, "the job changed its "+strings.Join(changed, " and "))}
}

// syncGates removes the gates from the Workload that the job no longer has. Gates cannot be added later.
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

// syncPriority sets the class of the job's label on the Workload, if it may still change (spec: 30 §4.6).
func (s *decider) syncPriority(w *kueue.Workload) (bool, error) {
	label := s.job.GetLabels()[kueue.PriorityClassLabel]
	ref := w.Spec.PriorityClassRef
	switch {
	case label == "":
		return false, nil
	case ref == nil && lifecycle.IsReserved(w):
		return false, nil // the API forbids it while quota is reserved
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
