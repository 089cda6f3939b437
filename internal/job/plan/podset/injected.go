package podset

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// injection has the values that a start adds to one pod set.
type injection struct {
	Name         kueue.PodSetReference `json:"name"`
	Labels       map[string]string     `json:"labels,omitempty"`
	Annotations  map[string]string     `json:"annotations,omitempty"`
	NodeSelector map[string]string     `json:"nodeSelector,omitempty"`
	Tolerations  []corev1.Toleration   `json:"tolerations,omitempty"`
	Gates        []string              `json:"schedulingGates,omitempty"`
}

// Injected returns, as a text, the values of infos that the pod sets do not have; empty for none.
func Injected(before []kueue.PodSet, infos []Info) string {
	if len(before) != len(infos) {
		return ""
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
			if !slices.ContainsFunc(t.Spec.Tolerations, func(own corev1.Toleration) bool { return SameToleration(own, toleration) }) {
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
		return ""
	}
	return string(text)
}

// missing returns the entries of wanted whose keys are not in own.
func missing(own, wanted map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range wanted { //berth:unordered copies a map
		if _, ok := own[key]; !ok {
			out[key] = value
		}
	}
	return OrNil(out)
}

// WithoutInjected returns pod sets less the values of a text of Injected, nil for no text. Values that were changed since stay.
func WithoutInjected(text string, podSets []kueue.PodSet) []kueue.PodSet {
	return edited(text, podSets, func(in *injection, t *corev1.PodTemplateSpec) {
		subtract(t.Labels, in.Labels)
		subtract(t.Annotations, in.Annotations)
		subtract(t.Spec.NodeSelector, in.NodeSelector)
		t.Spec.Tolerations = slices.DeleteFunc(t.Spec.Tolerations, func(own corev1.Toleration) bool {
			return slices.ContainsFunc(in.Tolerations, func(ours corev1.Toleration) bool { return SameToleration(own, ours) })
		})
		t.Spec.SchedulingGates = slices.DeleteFunc(t.Spec.SchedulingGates, func(own corev1.PodSchedulingGate) bool {
			return slices.Contains(in.Gates, own.Name)
		})
		t.Labels, t.Annotations, t.Spec.NodeSelector = OrNil(t.Labels), OrNil(t.Annotations), OrNil(t.Spec.NodeSelector)
		if len(t.Spec.Tolerations) == 0 {
			t.Spec.Tolerations = nil
		}
		if len(t.Spec.SchedulingGates) == 0 {
			t.Spec.SchedulingGates = nil
		}
	})
}

// WithInjected returns pod sets with the values of a text of Injected, nil for no text. Values that were changed since stay.
func WithInjected(text string, podSets []kueue.PodSet) []kueue.PodSet {
	return edited(text, podSets, func(in *injection, t *corev1.PodTemplateSpec) {
		t.Labels, t.Annotations = Completed(t.Labels, in.Labels), Completed(t.Annotations, in.Annotations)
		t.Spec.NodeSelector = Completed(t.Spec.NodeSelector, in.NodeSelector)
		t.Spec.Tolerations = union(t.Spec.Tolerations, in.Tolerations, SameToleration)
		for _, name := range in.Gates {
			if gate := (corev1.PodSchedulingGate{Name: name}); !slices.Contains(t.Spec.SchedulingGates, gate) {
				t.Spec.SchedulingGates = append(t.Spec.SchedulingGates, gate)
			}
		}
	})
}

// edited returns pod sets, changed by their entries in a text of Injected; nil for no text.
func edited(text string, podSets []kueue.PodSet, change func(*injection, *corev1.PodTemplateSpec)) []kueue.PodSet {
	var list []injection
	if text == "" || json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	out := make([]kueue.PodSet, len(podSets))
	for i := range podSets {
		podSets[i].DeepCopyInto(&out[i])
		if at := slices.IndexFunc(list, func(in injection) bool { return in.Name == podSets[i].Name }); at >= 0 {
			change(&list[at], &out[i].Template)
		}
	}
	return out
}

// Completed returns own, with the entries of wanted for other keys.
func Completed(own, wanted map[string]string) map[string]string {
	out := Clone(wanted)
	maps.Copy(out, own)
	return OrNil(out)
}

func subtract(from, what map[string]string) {
	for key, value := range what { //berth:unordered each key by itself
		if from[key] == value {
			delete(from, key)
		}
	}
}
