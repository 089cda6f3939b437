package decide

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// start merges the values of the admission into the job and lets it run, in one write (spec: 30 §4.7).
func (s *decider) start(w *kueue.Workload) job.Action {
	infos, err := s.infos(w)
	next := clone(s.job)
	if s.elastic && s.d.Elastic.GatesPods {
		for i := range infos {
			infos[i].SchedulingGates = append(infos[i].SchedulingGates, podset.ElasticGate)
		}
	}
	switch {
	case err == nil && s.gatesChildren():
		s.d.ManagedChildren.Upgrades.Start(next, s.in)
	case err == nil:
		before := s.removeInjected(next)
		err = s.d.Start(next, infos, s.in)
		s.noteInjected(next, before, infos)
		if err != nil && !errors.Is(err, podset.ErrPermanent) {
			err = podset.Permanent("%s", err)
		}
	}
	switch {
	case errors.Is(err, podset.ErrPermanent):
		return FailedToStart(s.cfg, s.job, w, err, s.o.Now)
	case err != nil:
		return job.Action{Verb: job.Fail, Err: err}
	}
	if c, ok := next.(job.Composite); ok && len(c.Members()) == 0 {
		return job.Action{} // all members run already
	}
	job.UnmarkSuspended(next)
	note := "Admitted by clusterQueue " + string(w.Status.Admission.ClusterQueue)
	return job.Action{Verb: job.PatchJob, Job: next, Starts: w, Events: normal(eventStarted, note)}
}

// infos returns the values for the pods of an admitted Workload. If it runs as a variant, they contain what the admission checks of the
// variant add (spec: 20 §4.13).
func (s *decider) infos(w *kueue.Workload) ([]job.PodSetInfo, error) {
	if lifecycle.IsParent(w) {
		if w = s.o.Started[w.UID]; w == nil {
			return nil, podset.NotYet("the variant that it runs on is not admitted")
		}
	}
	return job.InfosFromAdmission(s.cfg, w, s.o.Flavors)
}

// FailedToStart finishes the Workload of a job that can never be started as it was admitted, by its descriptor or by a final
// refusal of the API server (spec: 30 §4.3, 50 §4.10). For a job with running members it deactivates the Workload, so that these
// are stopped first.
func FailedToStart(cfg *job.Config, of job.Object, w *kueue.Workload, why error, now metav1.Time) job.Action {
	failed := w.DeepCopy()
	if c, ok := of.(job.Composite); ok && slices.ContainsFunc(c.Members(), runs) {
		cfg.Lifecycle.RequestDeactivation(failed, kueue.ReasonFailedToStart, why.Error(), now)
		return job.Action{Verb: job.WriteStatus, Workload: failed}
	}
	cfg.Lifecycle.Finish(failed, kueue.ReasonFailedToStart, why.Error(), now)
	return job.Action{Verb: job.WriteStatus, Workload: failed}
}

// runs reports whether a member was started and has not ended.
func runs(o job.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && !job.PodIsGated(pod) && !job.PodIsOver(pod)
}

// stop returns the next write that stops the job and restores its own templates. over reports that it is stopped; neither a write
// nor over means that the job itself has to change first. w is the Workload to restore from, or nil (spec: 30 §4.7).
func (s *decider) stop(why job.StopReason, w *kueue.Workload) (a *job.Action, over bool) {
	note, why := s.noteOfStop(why, w)
	step, next := s.nextStep(s.toRestore(w), why)
	switch step {
	case job.Stopped:
		return nil, true
	case job.Wait:
		return nil, false
	case job.Change:
		if a = (&job.Action{Verb: job.PatchJob, Job: next}); s.d.IsSuspended(next) {
			forgetInjected(next)
		}
		s.markStopped(next)
	case job.ChangeStatus:
		a = &job.Action{Verb: job.PatchJobStatus, Job: next}
	case job.Delete:
		a = &job.Action{Verb: job.DeleteJob, Job: next}
	}
	if _, composite := s.job.(job.Composite); (!s.suspended && !s.stopping()) || (composite && step == job.ChangeStatus) {
		a.Events = normal(eventStopped, note)
	}
	return a, false
}

// stopOrWait stops a job that no Workload describes. Nil: it is stopped.
func (s *decider) stopOrWait(restore *kueue.Workload) *job.Action {
	a, over := s.stop(job.NoMatchingWorkload, restore)
	if a == nil && !over {
		return &job.Action{} // the job itself has to change first
	}
	return a
}

// markStopped marks a job that ran until this write suspends it.
func (s *decider) markStopped(next job.Object) {
	if !s.suspended && !s.stopping() && (s.d.IsSuspended(next) || s.d.IsStopping(next)) {
		job.MarkSuspended(next)
	}
}

// noteOfStop returns the sentence and the reason of a stop.
func (s *decider) noteOfStop(why job.StopReason, w *kueue.Workload) (string, job.StopReason) {
	switch c := evictionOf(w); {
	case why == job.WorkloadEvicted && c != nil:
		return c.Message, evictedFor(c.Reason)
	case w != nil && s.hasLeft(w):
		return "Stopped to be queued: it is managed again", why
	default:
		return stopNotes[why], why
	}
}

// evictionOf returns the Evicted condition of a Workload, which may be nil.
func evictionOf(w *kueue.Workload) *metav1.Condition {
	if w == nil {
		return nil
	}
	return lifecycle.Condition(w, kueue.WorkloadEvicted)
}

// nextStep is the descriptor's next step, or to suspend and restore in one write.
func (s *decider) nextStep(podSets []kueue.PodSet, why job.StopReason) (job.Step, job.Object) {
	if s.d.Stops != nil {
		return s.d.Stops.Next(s.job, podSets, why)
	}
	next := clone(s.job)
	switch {
	case s.suspended && s.d.States != nil && s.d.States.Halt(next):
		return job.ChangeStatus, next
	case s.suspended:
		return job.Stopped, nil
	}
	s.d.Suspend(next)
	s.d.Restore(next, podSets)
	return job.Change, next
}
