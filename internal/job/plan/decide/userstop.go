package decide

import (
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// userStop restores a job as an eviction does, and releases its quota once no pod of it runs. It stays out of the queue until a
// user resumes it. A job on a worker cluster releases its quota at once: its copy there, whose pods its status shows, is removed after that.
func (s *decider) userStop(w *kueue.Workload) job.Action {
	dispatched := w != nil && s.isDispatched()
	a, over := s.stop(job.UserStopped, w)
	switch {
	case over:
	case a == nil && dispatched && s.isActive(): // it cannot be restored while it shows pods
		if s.d.Remote.Quiet == nil {
			break // the dispatcher removes its status with the copy, which the quota keeps
		}
		next := clone(s.job)
		s.d.Remote.Quiet(next)
		return job.Action{Verb: job.PatchJobStatus, Job: next}
	default:
		return orNothing(a)
	}
	if w == nil {
		return job.Action{}
	}
	if s.d.Stops == nil {
		next := clone(s.job)
		if s.d.Restore(next, s.toRestore(w)) {
			forgetInjected(next)
			return job.Action{Verb: job.PatchJob, Job: next}
		}
	}
	switch {
	case lifecycle.IsOnHold(w):
		return job.Action{}
	case lifecycle.IsReserved(w) && s.isActive() && !dispatched:
		return s.untilInactive()
	}
	next := w.DeepCopy()
	s.cfg.Lifecycle.Pending(next, kueue.ReasonOnHold, "Its user stopped the job", s.o.Now)
	return job.Action{Verb: job.WriteStatus, Workload: next}
}
