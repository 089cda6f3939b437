package decide

import (
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// leftManagement is the message of a Workload that is finished because the namespace of its job is no longer managed. It is compared with
// that of Workloads in the API server: see hasLeft.
const leftManagement = "The namespace is no longer managed"

// hasLeft reports whether a Workload is finished only because its job left management. That is not the end of a job that is managed again.
// Berth finishes slices, and Workloads that users made, as OutOfSync for other reasons too, so of those the message decides.
func (s *decider) hasLeft(w *kueue.Workload) bool {
	c := lifecycle.Condition(w, kueue.WorkloadFinished)
	if !lifecycle.IsFinished(w) || c.Reason != kueue.ReasonOutOfSync {
		return false
	}
	return c.Message == leftManagement || (!job.IsElastic(w) && s.prebuiltName() != w.Name)
}

// letGo ends what was begun before the namespace became unmanaged. A running job stays exactly as it is, and one that Berth
// suspended is given back (spec: 30 §4.2.5 rule 2). A Workload without our finalizer is not one that we
// began, unless it holds quota: it was about to be made anew.
func (s *decider) leaveManagement() job.Action {
	for _, w := range s.o.Workloads {
		if !hasFinalizer(w) && (lifecycle.IsFinished(w) || !lifecycle.IsReserved(w)) {
			continue
		}
		next := w.DeepCopy()
		if s.cfg.Lifecycle.Finish(next, kueue.ReasonOutOfSync, leftManagement, s.o.Now) {
			note := leftManagement + "; the job is left as it is"
			if s.isOurs() {
				note = leftManagement + "; the job is given back as its user wrote it"
			}
			return job.Action{Verb: job.WriteStatus, Workload: next, Events: normal(eventNamespaceUnmanaged, note)}
		}
		return job.Action{Verb: job.UpdateWorkload, Workload: withoutFinalizer(w)}
	}
	if c, ok := s.job.(job.Composite); ok {
		if a := s.releaseMembers(c, c.Ended()); a != nil {
			return *a
		}
		return s.giveBack()
	}
	if s.finished {
		return s.finalizeJob()
	}
	return s.giveBack()
}

// isOurs reports whether Berth suspended the job, or gated the pods, and is to give them back. A pod with our label was gated by our webhook. A
// job that runs on another cluster has no controller here, and the copy of one belongs to the manager of the other cluster.
func (s *decider) isOurs() bool {
	if !s.suspended || s.finished || s.d.Resume == nil || s.cfg.IsUserStopped(s.job) || job.IsRemote(s.job) || s.isDispatched() {
		return false
	}
	return job.IsSuspendedByBerth(s.job) || (s.d.Once != nil && s.d.Once.Marked(s.job, s.cfg))
}

// giveBack resumes a job that Berth suspended, as its user wrote it. A stop that was begun comes to its end before.
func (s *decider) giveBack() job.Action {
	if s.stopping() && job.IsSuspendedByBerth(s.job) && s.d.Once == nil {
		var restore *kueue.Workload
		if n := len(s.o.Workloads); n > 0 {
			restore = s.o.Workloads[n-1]
		}
		a, _ := s.stop(job.NoMatchingWorkload, restore)
		return orNothing(a)
	}
	next := clone(s.job)
	if !s.isOurs() {
		if !s.suspended && job.UnmarkSuspended(next) { // another client resumed it
			return job.Action{Verb: job.PatchJob, Job: next}
		}
		return job.Action{}
	}
	s.d.Resume(next)
	if c, ok := next.(job.Composite); ok && len(c.Members()) == 0 {
		return job.Action{}
	}
	job.UnmarkSuspended(next)
	return job.Action{Verb: job.PatchJob, Job: next, Events: normal(eventResumed, "Resumed because the namespace is no longer managed")}
}

// stopReturned stops an elastic job that runs on since it left management: its pods hold no quota, and the gates are open. Nil: it does not.
func (s *decider) stopReturned(own []*kueue.Workload) *job.Action {
	if n := len(own); n == 0 || s.suspended || s.finished || !s.hasLeft(own[n-1]) {
		return nil
	}
	a, over := s.stop(job.NoMatchingWorkload, own[len(own)-1])
	if a == nil && !over {
		a = &job.Action{} // stopping takes its time
	}
	return a
}

// requeueTogether stops the pods of a group that is managed again, and makes its Workload anew. A controller of ours makes those of objects that
// serve.
func (s *decider) requeueTogether(w *kueue.Workload) *job.Action {
	if a := s.stopRunning(w); a != nil {
		return a
	}
	return s.discard(w)
}
