package decide

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// noteInjected records, on a job that is about to start, the values that its pod sets get. Pods and groups are never stopped and
// started again, so nothing is recorded on them.
func (s *decider) noteInjected(o job.Object, before []kueue.PodSet, infos []job.PodSetInfo) {
	if _, composite := o.(job.Composite); composite || s.d.Once != nil {
		return
	}
	if text := podset.Injected(before, infos); text != "" {
		podset.Annotate(o, job.InjectedAnnotation, text)
	}
}

func forgetInjected(o metav1.Object) { podset.Unannotate(o, job.InjectedAnnotation) }

// toRestore returns the pod sets to restore: the Workload's, or else the job's own less the injected values. Nil: nothing is known.
func (s *decider) toRestore(w *kueue.Workload) []kueue.PodSet {
	own, err := s.d.PodSets(s.job, s.in)
	switch {
	case s.gatesChildren(): // nothing was injected
		return nil
	case w != nil && (err != nil || len(own) == len(w.Spec.PodSets)):
		return w.Spec.PodSets
	case err != nil:
		return nil
	}
	return podset.WithoutInjected(s.job.GetAnnotations()[job.InjectedAnnotation], own)
}

// removeInjected removes from a job that is about to start the values of an earlier start, which would contradict the new ones. It
// returns the job's pod sets.
func (s *decider) removeInjected(next job.Object) []kueue.PodSet {
	own, err := s.d.PodSets(next, s.in)
	if err != nil {
		return nil
	}
	if before := podset.WithoutInjected(next.GetAnnotations()[job.InjectedAnnotation], own); before != nil {
		s.d.Restore(next, before)
		forgetInjected(next)
		return before
	}
	return own
}
