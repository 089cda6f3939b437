package job

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/job/podset"
)

// InjectedAnnotation is, on a job that was started, what the start put into its pod templates: enough to take it out again
// where no Workload says what was there before (spec: 30 §6, Restore).
const InjectedAnnotation = "berth.dev/injected"

// injection is what one pod set got that it did not have.
type injection struct {
	Name         kueue.PodSetReference `json:"name"`
	Labels       map[string]string     `json:"labels,omitempty"`
	Annotations  map[string]string     `json:"annotations,omitempty"`
	NodeSelector map[string]string     `json:"nodeSelector,omitempty"`
	Tolerations  []corev1.Toleration   `json:"tolerations,omitempty"`
	Gates        []string              `json:"schedulingGates,omitempty"`
}

// noteInjected writes down, on a job that is about to start, what its pod sets get. Pods by themselves and in groups are
// never stopped and started again, so nothing is noted on them.
func (s *decider) noteInjected(job Object, before []kueue.PodSet, infos []PodSetInfo) {
	if _, composite := job.(Composite); composite || s.d.Marked != nil || len(before) != len(infos) {
		return
	}
	var list []injection
	some := false
	for i := range before {
		t := &before[i].Template
		list = append(list, injection{
			Name: before[i].Name, Labels: missing(t.Labels, infos[i].Labels), Annotations: missing(t.Annotations, infos[i].Annotations),
			NodeSelector: missing(t.Spec.NodeSelector, infos[i].NodeSelector),
		})
		in := &list[i]
		for _, toleration := range infos[i].Tolerations {
			if !slices.ContainsFunc(t.Spec.Tolerations, func(own corev1.Toleration) bool { return podset.SameToleration(own, toleration) }) {
				in.Tolerations = append(in.Tolerations, toleration)
			}
		}
		for _, gate := range infos[i].SchedulingGates {
			if !slices.Contains(t.Spec.SchedulingGates, gate) {
				in.Gates = append(in.Gates, gate.Name)
			}
		}
		some = some || len(in.Labels)+len(in.Annotations)+len(in.NodeSelector)+len(in.Tolerations)+len(in.Gates) > 0
	}
	text, err := json.Marshal(list)
	if err != nil || !some {
		return
	}
	annotations := podset.Clone(job.GetAnnotations())
	annotations[InjectedAnnotation] = string(text)
	job.SetAnnotations(annotations)
}

// forgetInjected takes the annotation off.
func forgetInjected(job metav1.Object) {
	if _, ok := job.GetAnnotations()[InjectedAnnotation]; ok {
		annotations := podset.Clone(job.GetAnnotations())
		delete(annotations, InjectedAnnotation)
		job.SetAnnotations(podset.OrNil(annotations))
	}
}

// missing is what of wanted is not in own.
func missing(own, wanted map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range wanted { //berth:unordered copies a map
		if _, ok := own[key]; !ok {
			out[key] = value
		}
	}
	return podset.OrNil(out)
}

// withoutInjected are the pod sets of a job less what its last start put in, nil if that is not known. What somebody
// changed since stays.
func withoutInjected(job metav1.Object, podSets []kueue.PodSet) []kueue.PodSet {
	var list []injection
	text, ok := job.GetAnnotations()[InjectedAnnotation]
	if !ok || json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	out := make([]kueue.PodSet, len(podSets))
	for i := range podSets {
		podSets[i].DeepCopyInto(&out[i])
		at := slices.IndexFunc(list, func(in injection) bool { return in.Name == podSets[i].Name })
		if at < 0 {
			continue
		}
		in, t := &list[at], &out[i].Template
		subtract(t.Labels, in.Labels)
		subtract(t.Annotations, in.Annotations)
		subtract(t.Spec.NodeSelector, in.NodeSelector)
		t.Spec.Tolerations = slices.DeleteFunc(t.Spec.Tolerations, func(own corev1.Toleration) bool {
			return slices.ContainsFunc(in.Tolerations, func(ours corev1.Toleration) bool { return podset.SameToleration(own, ours) })
		})
		t.Spec.SchedulingGates = slices.DeleteFunc(t.Spec.SchedulingGates, func(own corev1.PodSchedulingGate) bool {
			return slices.Contains(in.Gates, own.Name)
		})
	}
	return out
}

func subtract(from, what map[string]string) {
	for key, value := range what { //berth:unordered each key by itself
		if from[key] == value {
			delete(from, key)
		}
	}
}

// toRestore are the pod sets that the job is to be given back: those of its Workload, or else what it has less what we put
// in. Nil: nothing is known.
func (s *decider) toRestore(w *kueue.Workload) []kueue.PodSet {
	own, err := s.d.PodSets(s.job, s.in)
	switch {
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
