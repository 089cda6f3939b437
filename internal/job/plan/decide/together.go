package decide

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// releaseMembers removes the finalizer of members.
func (s *decider) releaseMembers(c job.Composite, members []job.Object) *job.Action {
	if freed := c.Freed(members); len(freed.Members()) > 0 {
		return &job.Action{Verb: job.PatchJob, Job: freed}
	}
	return nil
}

// removeMembers removes the finalizer of members, then deletes them, unless they are being deleted.
func (s *decider) removeMembers(c job.Composite, members []job.Object, events []job.Event) *job.Action {
	if a := s.releaseMembers(c, members); a != nil {
		return a
	}
	members = slices.DeleteFunc(slices.Clone(members), func(o job.Object) bool { return o.GetDeletionTimestamp() != nil })
	if len(members) == 0 {
		return nil
	}
	return &job.Action{Verb: job.DeleteJob, Job: c.Of(members), Events: events}
}

// releaseUnneeded releases members that are no longer needed.
func (s *decider) releaseUnneeded(c job.Composite, w *kueue.Workload) *job.Action {
	return s.releaseMembers(c, c.Standing(w).Releasable)
}

// handOver is releaseUnneeded for a Workload that members own: the remaining members become owners before any other is released,
// because the garbage collector deletes an object without existing owners.
func (s *decider) handOver(c job.Composite, w *kueue.Workload) *job.Action {
	if len(w.OwnerReferences) > 0 {
		if a := s.addOwners(c, w); a != nil {
			return a
		}
	}
	return s.releaseUnneeded(c, w)
}

// removeSurplus deletes the members without a place.
func (s *decider) removeSurplus(c job.Composite, w *kueue.Workload) *job.Action {
	return s.removeMembers(c, c.Standing(w).Surplus, normal(eventExcessPod, "Deleted because the group has all the pods that its workload is for"))
}

// removeExceeding deletes waiting members that ask for more than was charged for them.
func (s *decider) removeExceeding(c job.Composite, w *kueue.Workload) *job.Action {
	return s.removeMembers(c, c.Standing(w).Exceeding, warning(eventExcessPod, "Deleted because it asks for more than the pods of its role in the workload of its group"))
}

// stopRunning stops running members that no Workload describes, and waits until all have ended. Nil: nothing runs.
func (s *decider) stopRunning(w *kueue.Workload) *job.Action {
	if a := s.stopOrWait(w); a != nil {
		return a
	}
	if s.d.IsActive(s.job) {
		return new(s.untilInactive())
	}
	return nil
}

// untilInactive waits for the pods to end. Where the job does not report their end, it polls.
func (s *decider) untilInactive() job.Action {
	if s.suspended && s.d.States != nil {
		if a, over := s.stop(job.NoMatchingWorkload, nil); !over {
			return orNothing(a)
		}
	}
	if f := s.d.ManagedChildren; f != nil && f.Others != nil && !s.d.IsActive(s.job) {
		return job.Action{After: againAfter}
	}
	if c, ok := s.job.(job.Composite); ok {
		return job.Action{After: c.ActiveFor()}
	}
	return job.Action{}
}

// ensureTogether is ensure for a job of several objects. Its Workload has the name of the job, so there is at most one.
func (s *decider) ensureTogether(c job.Composite) (*kueue.Workload, *job.Action) {
	if len(s.o.Workloads) == 0 {
		return nil, s.prepare(c)
	}
	w := s.o.Workloads[0]
	switch {
	case s.prebuiltName() != "":
		return s.adoptTogether(c, w)
	case s.isOfOther(w):
		return nil, s.nameTaken(c, w)
	case s.hasLeft(w) && !s.finished:
		return nil, s.requeueTogether(w)
	case lifecycle.IsFinished(w), w.DeletionTimestamp != nil, s.finished:
		return w, nil
	}
	if a := s.handOver(c, w); a != nil {
		return nil, a
	}
	if a := cmp.Or(s.removeExceeding(c, w), s.removeSurplus(c, w)); a != nil {
		return nil, a
	}
	if a := s.mismatchTogether(c, w); a != nil {
		return nil, a
	}
	if !lifecycle.HasFinalizer(w) { // discard had begun, and the Workload describes its pods again
		next := w.DeepCopy()
		next.Finalizers = append(next.Finalizers, kueue.ResourceInUseFinalizer)
		return nil, &job.Action{Verb: job.UpdateWorkload, Workload: next}
	}
	if a := s.addOwners(c, w); a != nil {
		return nil, a
	}
	return w, s.replacements(c, w)
}

// prepare prepares the members for a Workload that does not exist yet. Nil: it may be created.
func (s *decider) prepare(c job.Composite) *job.Action {
	if a := s.releaseUnneeded(c, nil); a != nil {
		return a
	}
	if s.finished || s.prebuiltName() != "" {
		return nil
	}
	if a := s.stopRunning(nil); a != nil {
		return a
	}
	if err := c.Check(); err != nil {
		return &job.Action{Events: warning(eventCompose, err.Error())} // only new pods can resolve it, and they reconcile the group
	}
	return s.removeSurplus(c, nil)
}

// isOfOther reports whether the Workload with the name of a job of several objects belongs to another one.
func (s *decider) isOfOther(w *kueue.Workload) bool {
	if s.prebuiltName() != "" {
		return metav1.GetControllerOf(w) != nil
	}
	return s.d.Once != nil && s.d.Once.OnlyMarked && w.Annotations[kueue.IsGroupWorkloadAnnotation] == ""
}

// nameTaken handles a Workload with the name of this group that is not a group's: it is not touched.
func (s *decider) nameTaken(c job.Composite, w *kueue.Workload) *job.Action {
	if s.finished {
		return new(s.finalizeJob())
	}
	if a := s.releaseUnneeded(c, nil); a != nil {
		return a
	}
	err := fmt.Errorf("workload %s/%s has the name of the pod group and does not belong to it: delete it, or give the group another name", w.Namespace, w.Name)
	return &job.Action{Verb: job.Stall, Err: err, Events: warning(eventNameConflict, err.Error())}
}

// mismatchTogether handles members that their Workload does not describe. A pending Workload is updated once all members exist;
// otherwise running members are stopped, and the Workload is created again.
func (s *decider) mismatchTogether(c job.Composite, w *kueue.Workload) *job.Action {
	podSets, err := s.wanted(c)
	if err != nil {
		return new(s.notComposed(err))
	}
	reserved := lifecycle.IsReserved(w)
	total := c.Total()
	resized := !reserved && total > 0 && int64(total) != places(w)
	if !resized && s.describes(podSets, w) {
		return nil
	}
	if !reserved {
		if a := s.stopRunning(w); a != nil {
			return a
		}
		if total == 0 {
			return s.replacements(c, w) // some are still to come
		}
		return s.bringUpToDate(w, podSets)
	}
	if a := s.stopRunning(w); a != nil {
		return a
	}
	return s.discard(w)
}

// wanted are the pod sets of the members, none if no member is left to want any.
func (s *decider) wanted(c job.Composite) ([]kueue.PodSet, error) {
	if len(c.Ended()) == len(c.Members()) {
		if sets, err := s.d.PodSets(c, s.in); err == nil && len(sets) == 0 {
			return nil, nil
		}
	}
	return s.in.PodSets(s.d, c)
}

// describes reports whether the Workload has all pod sets of the members, in order and large enough.
func (s *decider) describes(podSets []kueue.PodSet, w *kueue.Workload) bool {
	if !same(maximumExecutionTime(s.job), w.Spec.MaximumExecutionTimeSeconds) {
		return false
	}
	at := 0
	for i := range podSets {
		for at < len(w.Spec.PodSets) && w.Spec.PodSets[at].Name != podSets[i].Name {
			at++
		}
		if at == len(w.Spec.PodSets) || podSets[i].Count > w.Spec.PodSets[at].Count {
			return false
		}
	}
	return true
}

// places is the number of pods of a Workload.
func places(w *kueue.Workload) int64 {
	var n int64
	for i := range w.Spec.PodSets {
		n += int64(w.Spec.PodSets[i].Count)
	}
	return n
}

// addOwners makes the members that have a place owners of their Workload, so that it is deleted with the last of them.
func (s *decider) addOwners(c job.Composite, w *kueue.Workload) *job.Action {
	owners := map[types.UID]bool{}
	for i := range w.OwnerReferences {
		owners[w.OwnerReferences[i].UID] = true
	}
	next := w.DeepCopy()
	for _, m := range c.Standing(w).Kept {
		if !owners[m.GetUID()] {
			next.OwnerReferences = append(next.OwnerReferences, ownerRef(s.d, m))
		}
	}
	added := len(next.OwnerReferences) - len(w.OwnerReferences)
	if added == 0 {
		return nil
	}
	return &job.Action{Verb: job.UpdateWorkload, Workload: next, Events: []job.Event{{
		OnWorkload: true, Reason: eventOwnersAdded, Note: fmt.Sprintf("Added %d pods of the group as owners", added),
	}}}
}

// ownerRef is a reference to an owner that is not the controller.
func ownerRef(d *job.Descriptor, o job.Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: d.GVK.GroupVersion().String(), Kind: d.GVK.Kind, Name: o.GetName(), UID: o.GetUID()}
}

// replacements (step 6) records on the Workload whether members are missing.
func (s *decider) replacements(c job.Composite, w *kueue.Workload) *job.Action {
	next := w.DeepCopy()
	if !s.cfg.Lifecycle.WaitForReplacements(next, c.Standing(w).Absent, s.o.Now) {
		return nil
	}
	return &job.Action{Verb: job.WriteReplacements, Workload: next}
}

// adoptTogether returns the prebuilt Workload of the members. They are not counted: each becomes an owner as soon as it exists. A
// Workload that a controller of ours made for them is updated by that controller.
func (s *decider) adoptTogether(c job.Composite, w *kueue.Workload) (*kueue.Workload, *job.Action) {
	if s.isOfOther(w) {
		return nil, nil
	}
	if s.hasLeft(w) && !s.finished && w.DeletionTimestamp == nil && !job.IsRemote(w) {
		if a := s.stopRunning(w); a != nil {
			return nil, a
		}
		if w.Annotations[kueue.JobOwnerGVKAnnotation] != "" {
			return nil, &job.Action{} // the controller of that owner creates it again
		}
	}
	if lifecycle.IsFinished(w) || w.DeletionTimestamp != nil || s.finished {
		return w, nil
	}
	if a := cmp.Or(s.handOver(c, w), s.removeExceeding(c, w)); a != nil {
		return nil, a
	}
	podSets, err := s.wanted(c)
	if err != nil {
		return nil, new(s.notComposed(err))
	}
	if !s.describes(podSets, w) && w.Annotations[kueue.JobOwnerGVKAnnotation] == "" {
		next := w.DeepCopy()
		s.cfg.Lifecycle.Finish(next, kueue.ReasonOutOfSync, "The workload does not describe the pods that name it", s.o.Now)
		return nil, &job.Action{Verb: job.WriteStatus, Workload: next}
	}
	return w, s.addOwners(c, w)
}

// runTogether (steps 15 and 16) starts the waiting members, and stops members that run without an admission.
func (s *decider) runTogether(w *kueue.Workload) job.Action {
	if admitted := lifecycle.IsAdmitted(w); !admitted || s.stopping() {
		if a, over := s.stop(job.NotAdmitted, w); !over && (!admitted || a.Verb == job.DeleteJob) {
			return orNothing(a)
		}
	}
	return s.waiting(w)
}

// newTogether returns the Workload of a job of several objects: it has the name of the job, and all members own it.
func newTogether(c *job.Config, d *job.Descriptor, o job.Composite, podSets []kueue.PodSet, priority job.Priority) (*kueue.Workload, error) {
	w := bareWorkload(c, o, podSets, priority)
	w.Name = o.GetName()
	w.Annotations[kueue.IsGroupWorkloadAnnotation] = "true"
	var err error
	if w.Labels, err = o.Labels(c.LabelKeysToCopy); err != nil {
		return nil, err
	}
	copyKeys(w.Labels, c.SeriesLabels, o.Agreed(c.SeriesLabels, metav1.Object.GetLabels), false)
	copyKeys(w.Annotations, c.SeriesAnnotations, o.Agreed(c.SeriesAnnotations, metav1.Object.GetAnnotations), false)
	for _, m := range o.Standing(w).Kept {
		w.OwnerReferences = append(w.OwnerReferences, ownerRef(d, m))
	}
	return w, nil
}
