package job

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Objects converts a list.
func Objects[T Object](list []T) []Object {
	out := make([]Object, len(list))
	for i, o := range list {
		out[i] = o
	}
	return out
}

// PodHasGate reports whether the pod has a scheduling gate of that name.
func PodHasGate(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == name })
}

// PodIsGated reports whether the pod waits for its Workload.
func PodIsGated(pod *corev1.Pod) bool { return PodHasGate(pod, kueue.AdmissionSchedulingGate) }

// PodIsOver reports whether the pod has ended.
func PodIsOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// OpenGates removes our gates from a pod; the topology gate stays with keepTopology.
func OpenGates(pod *corev1.Pod, keepTopology bool) {
	pod.Spec.SchedulingGates = slices.DeleteFunc(slices.Clone(pod.Spec.SchedulingGates), func(g corev1.PodSchedulingGate) bool {
		return g.Name == kueue.AdmissionSchedulingGate || (g.Name == kueue.TopologySchedulingGate && !keepTopology)
	})
}
