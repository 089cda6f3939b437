package decide

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// The messages of Workloads that are finished because the namespace or the kind of their job is no longer managed. hasLeft compares them with
// stored messages.
const (
	leftManagement = "The namespace is no longer managed"
	disabledKind   = "The kind of the job is no longer enabled"
)

// hasLeft reports whether a Workload is finished only because its job left management, which does not end a job that is managed
// again. Slices and prebuilt Workloads are finished as OutOfSync for other reasons too, so for these the message decides.
func (s *decider) hasLeft(w *kueue.Workload) bool {
	c := lifecycle.Condition(w, kueue.WorkloadFinished)
	if !lifecycle.IsFinished(w) || c.Reason != kueue.ReasonOutOfSync {
		return false
	}
	return c.Message == leftManagement || c.Message == disabledKind || (!job.IsElastic(w) && s.prebuiltName() != w.Name)
}

// leaveManagement finishes and releases the Workloads of a job in an unmanaged namespace. A running job is not changed, and a job
// that Berth suspended is resumed (spec: 30 §4.2.5 rule 2). Workloads without our finalizer are not ours, unless they hold quota:
// these were about to be created again.
func (s *decider) leaveManagement() job.Action {
	for _, w := range s.o.Workloads {
		if !lifecycle.HasFinalizer(w) && (lifecycle.IsFinished(w) || !lifecycle.IsReserved(w)) {
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

// LeaveKind returns the next write for a Workload of a job whose kind is not enabled: it ends, and the job is left as it is. Workloads without our
// finalizer are not ours, and a copy on a worker cluster would end as well.
func LeaveKind(cfg *job.Config, w *kueue.Workload, now metav1.Time) job.Action {
	runsElsewhere := w.Status.ClusterName != "" && !lifecycle.IsEvicted(w) && !lifecycle.IsFinished(w)
	if !lifecycle.HasFinalizer(w) || runsElsewhere {
		return job.Action{}
	}
	next := w.DeepCopy()
	if cfg.Lifecycle.Finish(next, kueue.ReasonOutOfSync, disabledKind, now) {
		return job.Action{Verb: job.WriteStatus, Workload: next}
	}
	return job.Action{Verb: job.UpdateWorkload, Workload: withoutFinalizer(w)}
}

// isOurs reports whether Berth suspended the job, or gated the pods, and must undo it. Our webhook has gated a pod with our label.
// A job that runs on another cluster has no local controller, and a copy belongs to the manager of the other cluster.
func (s *decider) isOurs() bool {
	if !s.suspended || s.finished || s.d.Resume == nil || s.cfg.IsUserStopped(s.job) || job.IsRemote(s.job) || s.isDispatched() {
		return false
	}
	return job.IsSuspendedByBerth(s.job) || (s.d.Once != nil && s.d.Once.Marked(s.job, s.cfg))
}

// giveBack resumes a job that Berth suspended, as its user wrote it, after a stop that was begun is complete.
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

// stopReturned stops an elastic job that kept running after it left management: its pods hold no quota, and their gates are
// removed. Nil: there is nothing to stop.
func (s *decider) stopReturned(own []*kueue.Workload) *job.Action {
	if n := len(own); n == 0 || s.suspended || s.finished || !s.hasLeft(own[n-1]) {
		return nil
	}
	return s.stopOrWait(own[len(own)-1])
}

// requeueTogether stops the pods of a group that is managed again, and deletes its Workload, which is then created again: of
// serving objects by their own controller.
func (s *decider) requeueTogether(w *kueue.Workload) *job.Action {
	if a := s.stopRunning(w); a != nil {
		return a
	}
	return s.discard(w)
}
