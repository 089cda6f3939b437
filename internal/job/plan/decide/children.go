package decide

import (
	"time"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// againAfter is the delay of the next check for pods that are not watched.
const againAfter = time.Second

func (s *decider) gatesChildren() bool { return s.elastic && s.d.ManagedChildren.CanGate() }

// isActive reports whether a pod of the job may still use resources.
func (s *decider) isActive() bool {
	return s.d.IsActive(s.job) || (s.d.ManagedChildren != nil && s.d.ManagedChildren.IsActive(s.job, s.in))
}

// manageWithChildren is manage for a job with gated children. It repairs gates first. Children and pods are written when the job
// and its Workload need no write, also after a failure of that decision.
func (s *decider) manageWithChildren() job.Action {
	if !s.gatesChildren() {
		return s.manage()
	}
	if next := clone(s.job); s.d.ManagedChildren.Upgrades.Repair(next, s.in) {
		return job.Action{Verb: job.PatchJob, Job: next}
	}
	a := s.manage()
	if a.Verb <= job.Stall {
		if step := s.d.ManagedChildren.Upgrades.Step(s.o, s.in); step != nil && (step.Verb != job.Nothing || (a.Verb == job.Nothing && len(a.Events) == 0)) {
			return *step
		}
	}
	return a
}

// end is finalize, unless the kind holds the deletion.
func (s *decider) end() job.Action {
	if s.job != nil && s.d.ManagedChildren.CanGate() && s.o.Verdict.Mode == job.Managed && s.d.ManagedChildren.Upgrades.HoldsDeletion(s.job, s.in) {
		return job.Action{}
	}
	return s.finalize()
}

// endReplacement finishes the slice that replaces an evicted one: it was made for a running job.
func (s *decider) endReplacement(head *kueue.Workload, live []*kueue.Workload) *job.Action {
	for _, w := range live {
		if s.gatesChildren() && head != nil && lifecycle.IsEvicted(head) && w != head && !lifecycle.IsReserved(w) && chain.Replaces(w) == head.Name {
			return s.endSlice(&chain.Ended{Workload: w, Reason: kueue.ReasonOutOfSync, Message: "The workload slice that it was to replace is evicted"})
		}
	}
	return nil
}

// reshape adapts a slice of a job with gated children to the job. Without a quota reservation it changes in place; with one it only
// shrinks in place, and is replaced for any other change.
func (s *decider) reshape(w *kueue.Workload, podSets []kueue.PodSet) *job.Action {
	if s.head != nil && chain.CompareShaped(s.head, podSets) != chain.Grows {
		return s.endSlice(&chain.Ended{Workload: w, Reason: kueue.ReasonOutOfSync, Message: "The job does not need more than it has any more"})
	}
	if !lifecycle.IsReserved(w) {
		if podset.SameSets(podSets, w.Spec.PodSets, false, true) && same(maximumExecutionTime(s.job), w.Spec.MaximumExecutionTimeSeconds) {
			return nil
		}
		return s.bringUpToDate(w, podSets)
	}
	switch chain.CompareShaped(w, podSets) {
	case chain.Grows:
		a := s.createFor(podSets, w)
		if a.Verb == job.CreateWorkload {
			a.Events = append(a.Events, s.d.ManagedChildren.Upgrades.Waits(s.job, s.in)...)
		}
		return &a
	case chain.Shrinks:
		next := w.DeepCopy()
		chain.ResizeShaped(next, podSets)
		return &job.Action{Verb: job.UpdateWorkload, Workload: next, Events: s.updated(w, "the job changed its size")}
	default:
		return nil
	}
}
