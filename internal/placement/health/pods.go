package health

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/placement/plan/health"
)

// terminated is the condition of a pod that was failed.
const terminated corev1.PodConditionType = "TerminatedByKueue"

// Reason of the condition, and of the event about it.
const (
	unstartable = "UnschedulableOnAssignedNode"
	podEvent    = "PodTerminatedByKueue"
)

// failPods fails the pods that wait for a node that will not take them, in managed namespaces. That the Workload has no assignment on the
// node of a pod is asked of the API server once more: a pod is not failed because a cache is behind.
func (r *reconciler) failPods(ctx context.Context, chain types.NamespacedName, w *kueue.Workload, pods []*corev1.Pod, d *plan.Decision) error {
	if len(d.Stuck)+len(d.Strays) == 0 {
		return nil
	}
	managed, err := r.Namespaces.IsManaged(ctx, chain.Namespace)
	if err != nil || !managed {
		return err
	}
	var failed []error
	for _, pod := range d.Stuck {
		failed = append(failed, r.failPod(ctx, pod, fmt.Sprintf(
			"The node %s that the pod is assigned to is not ready, or has a taint that its pod set does not tolerate", plan.WaitsFor(pod))))
	}
	if len(d.Strays) > 0 {
		now, err := r.workload(ctx, r.live, chain)
		if err != nil || now == nil || now.UID != w.UID {
			return errors.Join(append(failed, err)...)
		}
		confirmed, err := r.decide(ctx, now, pods)
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		for _, pod := range confirmed.Strays {
			failed = append(failed, r.failPod(ctx, pod, fmt.Sprintf(
				"The pod waits for the node %s, which its workload is no longer assigned to", plan.WaitsFor(pod))))
		}
	}
	return errors.Join(failed...)
}

// failPod ends a pod that never ran, so that its job creates it again. The cached pod has no conditions: the patch adds one, and leaves the
// others of the API server.
func (r *reconciler) failPod(ctx context.Context, pod *corev1.Pod, message string) error {
	next := pod.DeepCopy()
	next.Status.Phase = corev1.PodFailed
	next.Status.Conditions = append(next.Status.Conditions, corev1.PodCondition{
		Type: terminated, Status: corev1.ConditionTrue, Reason: unstartable, Message: message, LastTransitionTime: metav1.NewTime(r.Now()),
	})
	patch := client.StrategicMergeFrom(pod, client.MergeFromWithOptimisticLock{})
	err := r.client.Status().Patch(ctx, next, patch, client.FieldOwner("kueue"))
	r.written.Wrote(pod, next, err)
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("failing pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	r.Events.Normal(next, podEvent, message)
	return nil
}
