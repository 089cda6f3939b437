package decide

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// noteInjected writes down, on a job that is about to start, what its pod sets get. Pods by themselves and in groups are
// never stopped and started again, so nothing is noted on them.
func (s *decider) noteInjected(o job.Object, before []kueue.PodSet, infos []job.PodSetInfo) {
	if _, composite := o.(job.Composite); composite || s.d.Once != nil {
		return
	}
	if text := podset.Injected(before, infos); text != "" {
		annotations := podset.Clone(o.GetAnnotations())
		annotations[job.InjectedAnnotation] = text
		o.SetAnnotations(annotations)
	}
}

// forgetInjected takes the annotation off.
func forgetInjected(o metav1.Object) {
	if _, ok := o.GetAnnotations()[job.InjectedAnnotation]; ok {
		annotations := podset.Clone(o.GetAnnotations())
		delete(annotations, job.InjectedAnnotation)
		o.SetAnnotations(podset.OrNil(annotations))
	}
}

// withoutInjected are the pod sets of a job less what its last start put in, nil if that is not known. What somebody
// changed since stays.
func withoutInjected(o metav1.Object, podSets []kueue.PodSet) []kueue.PodSet {
	return podset.WithoutInjected(o.GetAnnotations()[job.InjectedAnnotation], podSets)
}

// toRestore are the pod sets that the job is to be given back: those of its Workload, or else what it has less what we put
// in. Nil: nothing is known.
func (s *decider) toRestore(w *kueue.Workload) []kueue.PodSet {
	own, err := s.d.PodSets(s.job, s.in)
	switch {
	case s.gatesChildren(): // nothing was put in
		return nil
	case w != nil && (err != nil || len(own) == len(w.Spec.PodSets)):
		return w.Spec.PodSets
	case err != nil:
		return nil
	}
	return withoutInjected(s.job, own)
}

// clean takes out of a job that is about to start what an earlier start left in it, which would contradict the new one.
func (s *decider) removeInjected(next job.Object) []kueue.PodSet {
	own, err := s.d.PodSets(next, s.in)
	if err != nil {
		return nil
	}
	if before := withoutInjected(next, own); before != nil {
		s.d.Restore(next, before)
		forgetInjected(next)
		return before
	}
	return own
}
