// Package recovery decides about pods that hang on dead nodes: a pod that is being deleted stays as long as its node does not confirm that it
// ended, and an unreachable node never does. If the pod allows it, it is failed and deleted by force, so that its job goes on elsewhere
// (spec: 20 §4.19).
package recovery

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// Condition of a pod that is deleted by force, and its reason, which is that of the event too.
const (
	Condition corev1.PodConditionType = "KueueFailureRecovery"
	Reason    string                  = "KueueForcefullyDeleted"
)

// allowed is the one value of the annotation that allows the deletion by force.
const allowed = "true"

// MayHang reports whether a pod is deleted by force if its node is unreachable for long enough: it allows that, is being deleted, and has a
// node. A pod whose deletion by force was requested is not, if finalizers keep it: it goes with the last of them.
func MayHang(pod *corev1.Pod) bool {
	return pod.Annotations[kueue.SafeToForcefullyDeleteAnnotation] == allowed && pod.DeletionTimestamp != nil && pod.Spec.NodeName != "" &&
		!waitsForFinalizers(pod)
}

// waitsForFinalizers reports whether a pod was failed and deleted by force before, and only finalizers keep it. Without finalizers it is still
// to be deleted: the API server first ends the grace period and then removes the pod, and a request that is cut off between the two leaves it.
func waitsForFinalizers(pod *corev1.Pod) bool {
	return isFailed(pod) && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 && len(pod.Finalizers) > 0
}

// isFailed reports whether a pod has the status of one that is deleted by force.
func isFailed(pod *corev1.Pod) bool {
	return job.PodIsOver(pod) && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == Condition && c.Status == corev1.ConditionTrue
	})
}

// IsUnreachable reports whether a node has the taint of unreachable nodes, with any effect.
func IsUnreachable(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
}

// Due returns when a pod that MayHang is deleted by force. The deletion timestamp is the end of the grace period, and delay counts from it.
func Due(pod *corev1.Pod, delay time.Duration) time.Time { return pod.DeletionTimestamp.Add(delay) }

// Message is the sentence of the condition and the event.
func Message(pod *corev1.Pod, delay time.Duration) string {
	return fmt.Sprintf("The pod was to end by %s; its node %s is unreachable and did not confirm that within %s: the pod is deleted by force",
		pod.DeletionTimestamp.UTC().Format(time.RFC3339), pod.Spec.NodeName, delay)
}

// Fail gives a pod the status of one that is deleted by force, and reports whether that is a change. A phase that is final stays.
func Fail(pod *corev1.Pod, message string, now time.Time) bool {
	if isFailed(pod) {
		return false
	}
	if !job.PodIsOver(pod) {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == Condition })
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: Condition, Status: corev1.ConditionTrue, Reason: Reason, Message: message, LastTransitionTime: metav1.NewTime(now),
		ObservedGeneration: pod.Generation,
	})
	return true
}
