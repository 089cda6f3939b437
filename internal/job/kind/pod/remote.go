package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podgroup"
)

// remote copies pods to worker clusters. The local pod keeps its gate, and so never gets a node; the worker removes the gate of the
// copy (spec: 40 §4.6).
func remote() *plan.Remote {
	return &plan.Remote{Gated: true, Prepare: prepare, Status: mirrored, Quiet: quiet, Final: failed}
}

// failed reports whether a copy that is being deleted ended by itself, or by its node. A copy that its queue evicted runs again.
func failed(o plan.Object) bool {
	pod := o.(*corev1.Pod)
	return plan.PodIsOver(pod) && !podgroup.IsTarget(pod)
}

// prepare removes from a copy the fields that the API server of its cluster sets: node and priority. The priority class stays.
func prepare(tree map[string]any) {
	for _, name := range []string{"nodeName", "priority", "preemptionPolicy", "ephemeralContainers"} {
		unstructured.RemoveNestedField(tree, "spec", name)
	}
}

// mirrored is the status of a pod with a copy. Until the copy has a node, the reason for having none is the gate, so that no
// autoscaler adds nodes here. Fields that the local API server sets stay (the QoS class cannot change).
func mirrored(local, remote plan.Object) (map[string]any, bool, error) {
	l, r := local.(*corev1.Pod), remote.(*corev1.Pod)
	status := r.Status.DeepCopy()
	status.QOSClass, status.ObservedGeneration, status.NominatedNodeName = l.Status.QOSClass, l.Status.ObservedGeneration, ""
	if plan.PodIsGated(l) && !isScheduled(r) {
		status.Conditions = slices.DeleteFunc(status.Conditions, isPodScheduled)
		if at := slices.IndexFunc(l.Status.Conditions, isPodScheduled); at >= 0 {
			status.Conditions = append(status.Conditions, l.Status.Conditions[at])
		}
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	return tree, false, err
}

func isPodScheduled(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }

func isScheduled(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return isPodScheduled(c) && c.Status == corev1.ConditionTrue
	})
}

// quiet sets the status of a pod whose copy is deleted back to pending, unless it has ended.
func quiet(o plan.Object) {
	pod := o.(*corev1.Pod)
	if !plan.PodIsGated(pod) || plan.PodIsOver(pod) {
		return
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodPending, QOSClass: pod.Status.QOSClass, ObservedGeneration: pod.Status.ObservedGeneration,
		Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates", LastTransitionTime: pod.CreationTimestamp,
		}},
	}
}

// isActive reports whether the copy of a pod runs. A pod without a copy needs no quota once it is stopped, and a gated pod runs
// nowhere else.
func isActive(o plan.Object) bool {
	pod := o.(*corev1.Pod)
	return plan.PodIsGated(pod) && pod.Status.Phase == corev1.PodRunning
}
