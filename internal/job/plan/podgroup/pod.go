package podgroup

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// terminationTarget is the condition of a pod that is about to be deleted.
const terminationTarget corev1.PodConditionType = "TerminationTarget"

// IsTarget reports whether the pod is marked for deletion.
func IsTarget(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == terminationTarget && c.Status == corev1.ConditionTrue
	})
}

// IsReady reports whether the pod is ready.
func IsReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Target returns a copy of the pod that is marked for deletion, with the reason.
func Target(pod *corev1.Pod, why job.StopReason, now metav1.Time) *corev1.Pod {
	next := pod.DeepCopy()
	next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == terminationTarget })
	next.Status.Conditions = append(next.Status.Conditions, corev1.PodCondition{
		Type: terminationTarget, Status: corev1.ConditionTrue, Reason: string(why), Message: "The pod is stopped by its queue", LastTransitionTime: now,
	})
	return next
}

// Open merges the admitted values into a gated pod and removes its gate. The topology gate stays if the pod still has to be placed.
// The error is permanent.
func Open(pod *corev1.Pod, info *job.PodSetInfo) error {
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec}
	if err := info.MergeInto(&template); err != nil {
		return err
	}
	keep := slices.ContainsFunc(info.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == kueue.TopologySchedulingGate })
	pod.Labels, pod.Annotations, pod.Spec = template.Labels, template.Annotations, template.Spec
	job.OpenGates(pod, keep)
	job.UnmarkSuspended(pod)
	return nil
}

func isHeld(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, kueue.ManagedFinalizer) }

// RemoveFinalizer removes our finalizer from a pod, and reports whether it was there.
func RemoveFinalizer(pod *corev1.Pod) bool {
	n := len(pod.Finalizers)
	pod.Finalizers = slices.DeleteFunc(slices.Clone(pod.Finalizers), func(f string) bool { return f == kueue.ManagedFinalizer })
	return len(pod.Finalizers) < n
}

// isInactive reports whether the pod will never run again: it failed, or it was deleted before it got a node.
func isInactive(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || (pod.DeletionTimestamp != nil && pod.Spec.NodeName == "" && pod.Status.Phase != corev1.PodSucceeded)
}

// isDying reports whether the pod is deleted and has not ended on its node yet.
func isDying(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && !isInactive(pod) && !job.PodIsOver(pod)
}

// lives reports whether the pod runs, or will once it has a node.
func lives(pod *corev1.Pod) bool {
	return !job.PodIsGated(pod) && !job.PodIsOver(pod) && pod.DeletionTimestamp == nil
}

// lastActive is the time of the last known activity of an ended pod.
func lastActive(pod *corev1.Pod) time.Time {
	at := pod.CreationTimestamp.Time
	later := func(t time.Time) {
		if t.After(at) {
			at = t
		}
	}
	if pod.DeletionTimestamp != nil {
		later(pod.DeletionTimestamp.Time)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			later(c.LastTransitionTime.Time)
		}
	}
	return at
}
