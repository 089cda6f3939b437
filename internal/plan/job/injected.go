package job

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/job/podset"
)

// InjectedAnnotation is, on a job that was started, what the start put into its pod templates: enough to take it out again
// where no Workload says what was there before (spec: 30 §6, Restore).
const InjectedAnnotation = "berth.dev/injected"

// noteInjected writes down, on a job that is about to start, what its pod sets get. Pods by themselves and in groups are
// never stopped and started again, so nothing is noted on them.
func (s *decider) noteInjected(job Object, before []kueue.PodSet, infos []PodSetInfo) {
	if _, composite := job.(Composite); composite || s.d.Marked != nil {
		return
	}
	if text := podset.Injected(before, infos); text != "" {
		annotations := podset.Clone(job.GetAnnotations())
		annotations[InjectedAnnotation] = text
		job.SetAnnotations(annotations)
	}
}

// forgetInjected takes the annotation off.
func forgetInjected(job metav1.Object) {
	if _, ok := job.GetAnnotations()[InjectedAnnotation]; ok {
		annotations := podset.Clone(job.GetAnnotations())
		delete(annotations, InjectedAnnotation)
		job.SetAnnotations(podset.OrNil(annotations))
	}
}

// withoutInjected are the pod sets of a job less what its last start put in, nil if that is not known. What somebody
// changed since stays.
func withoutInjected(job metav1.Object, podSets []kueue.PodSet) []kueue.PodSet {
	return podset.WithoutInjected(job.GetAnnotations()[InjectedAnnotation], podSets)
}

// toRestore are the pod sets that the job is to be given back: those of its Workload, or else what it has less what we put
// in. Nil: nothing is known.
func (s *decider) toRestore(w *kueue.Workload) []kueue.PodSet {
	own, err := s.d.PodSets(s.job, s.in)
	switch {
	case s.led(): // nothing was put in
		return nil
	case w != nil && (err != nil || len(own) == len(w.Spec.PodSets)):
		return w.Spec.PodSets
	case err != nil:
		return nil
	}
	return withoutInjected(s.job, own)
}

// clean takes out of a job that is about to start what an earlier start left in it, which would contradict the new one.
func (s *decider) clean(next Object) []kueue.PodSet {
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
