package job

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/lifecycle"
)

// UserStopAnnotation marks a job that a user stopped while it was admitted (spec: 30 §6, u1).
const UserStopAnnotation = "berth.dev/user-stop"

// IsUserStopped says whether a user stopped the job, and is to be obeyed.
func (c *Config) IsUserStopped(job metav1.Object) bool {
	return c.HonourUserSuspend && job.GetAnnotations()[UserStopAnnotation] == "true"
}

// userStop gives a job back what its user wrote, as an eviction does, and frees its quota once nothing of it runs. It waits,
// out of the queue, until somebody lets it run again.
func (s *decider) userStop(w *kueue.Workload) Action {
	a, over := s.stop(UserStopped, w)
	if !over {
		return orNothing(a)
	}
	if w == nil {
		return Action{}
	}
	if s.d.Stop == nil {
		next := clone(s.job)
		if s.d.Restore(next, s.toRestore(w)) {
			forgetInjected(next)
			return Action{Verb: PatchJob, Job: next}
		}
	}
	if lifecycle.IsOnHold(w) || (lifecycle.IsReserved(w) && s.isActive()) {
		return Action{}
	}
	next := w.DeepCopy()
	s.cfg.Lifecycle.Pending(next, kueue.ReasonOnHold, "Its user stopped the job", s.o.Now)
	return Action{Verb: WriteStatus, Workload: next}
}

// nextStep is the descriptor's, or to suspend and restore in one write.
func (s *decider) nextStep(podSets []kueue.PodSet, why StopReason) (Step, Object) {
	if s.d.Stop != nil {
		return s.d.Stop(s.job, podSets, why)
	}
	if s.suspended {
		return Stopped, nil
	}
	next := clone(s.job)
	s.d.Suspend(next)
	s.d.Restore(next, podSets)
	return Change, next
}
