package controller

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
	"github.com/berth-project/berth/internal/reconcile"
)

// Indexes of the cache of pods.
const (
	podsByJob       = "berth.job"
	leadersByJob    = "berth.leader" // the live ones
	podsByJobSet    = "berth.podJobSet"
	jobSetNameLabel = jobsetv1alpha2.JobSetNameKey
)

var indexes = map[string]func(*corev1.Pod) string{
	podsByJob:    plan.JobOf,
	podsByJobSet: func(pod *corev1.Pod) string { return pod.Labels[jobSetNameLabel] },
	leadersByJob: func(pod *corev1.Pod) string {
		if !plan.IsLiveLeader(pod) {
			return ""
		}
		return plan.JobOf(pod)
	},
}

// NewPods adds a cache of the pods of JobSets to the manager, trimmed to the fields that placement and in-place
// restarts need. Both the controllers and the webhook of pods use it.
func NewPods(ctx context.Context, mgr ctrl.Manager) (*reconcile.Pods, error) {
	pods, err := reconcile.NewPods(mgr, jobSetNameLabel, trim)
	if err != nil {
		return nil, err
	}
	for index, value := range indexes {
		err := pods.IndexField(ctx, &corev1.Pod{}, index, func(o client.Object) []string {
			if of := value(o.(*corev1.Pod)); of != "" {
				return []string{of}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("indexing pods: %w", err)
		}
	}
	return pods, pods.Fill()
}

// trim returns a pod with the fields that placement and in-place restarts need.
func trim(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: reconcile.TrimMeta(pod, []string{jobSetNameLabel, jobsetv1alpha2.JobKeyKey}, []string{
			jobSetNameLabel, batchv1.JobCompletionIndexAnnotation, jobsetv1alpha2.ExclusiveTopologyAnnotation,
			jobsetv1alpha2.NodeSelectorStrategyAnnotation, jobsetv1alpha2.InPlaceRestartAttemptAnnotation,
		}),
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, InitContainerStatuses: restarted(pod.Status.InitContainerStatuses), ContainerStatuses: restarted(pod.Status.ContainerStatuses)},
	}
	if topology, ok := pod.Annotations[jobsetv1alpha2.ExclusiveTopologyAnnotation]; ok {
		out.Spec.NodeSelector = reconcile.Only(pod.Spec.NodeSelector, topology)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			out.Status.Conditions = []corev1.PodCondition{c}
		}
	}
	return out
}

func restarted(list []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range list {
		if n := list[i].RestartCount; n > 0 {
			out = append(out, corev1.ContainerStatus{RestartCount: n})
		}
	}
	return out
}

// LeadersIn returns what finds the live leaders of the Job of a follower in a cache of NewPods: two at most, which is one too many already, so that it
// costs the same whatever pods there are. They are shared with the cache.
func LeadersIn(pods client.Reader) func(ctx context.Context, namespace string, follower *corev1.Pod) ([]*corev1.Pod, error) {
	return func(ctx context.Context, namespace string, follower *corev1.Pod) ([]*corev1.Pod, error) {
		return list(ctx, pods, namespace, client.MatchingFields{leadersByJob: plan.JobOf(follower)}, client.Limit(2))
	}
}

func list(ctx context.Context, reader client.Reader, namespace string, by ...client.ListOption) ([]*corev1.Pod, error) {
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, append(by, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	out := make([]*corev1.Pod, 0, len(pods.Items))
	for i := range pods.Items {
		out = append(out, &pods.Items[i])
	}
	return out, nil
}
