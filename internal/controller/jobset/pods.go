package jobset

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// Indexes of the cache of pods.
const (
	// PodsByJob is the index by the value of the label job-key.
	PodsByJob       = "berth.job"
	podsByJobSet    = "berth.podJobSet"
	jobSetNameLabel = jobsetv1alpha2.JobSetNameKey
)

// podCache is a cache that a manager starts together with its own.
type podCache struct{ cache.Cache }

// GetCache tells the manager that this is a cache.
func (p podCache) GetCache() cache.Cache { return p.Cache }

// NewPods adds a cache of the pods of JobSets to the manager: of no other pods, and only what placement and in-place
// restarts look at. Both the controllers and the webhook of pods use it.
func NewPods(ctx context.Context, mgr ctrl.Manager) (cache.Cache, error) {
	exists, err := labels.NewRequirement(jobSetNameLabel, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	pods, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ReaderFailOnMissingInformer: true,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.NewSelector().Add(*exists), Transform: trim},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of pods: %w", err)
	}
	label := func(key string) client.IndexerFunc {
		return func(o client.Object) []string {
			if value := o.GetLabels()[key]; value != "" {
				return []string{value}
			}
			return nil
		}
	}
	if err := pods.IndexField(ctx, &corev1.Pod{}, PodsByJob, label(jobsetv1alpha2.JobKeyKey)); err != nil {
		return nil, fmt.Errorf("indexing pods: %w", err)
	}
	if err := pods.IndexField(ctx, &corev1.Pod{}, podsByJobSet, label(jobSetNameLabel)); err != nil {
		return nil, fmt.Errorf("indexing pods: %w", err)
	}
	return pods, mgr.Add(podCache{pods})
}

// trim leaves of a pod what is looked at.
func trim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp,
			OwnerReferences: pod.OwnerReferences,
			Labels:          only(pod.Labels, jobSetNameLabel, jobsetv1alpha2.JobKeyKey),
			Annotations: only(pod.Annotations, jobSetNameLabel, batchv1.JobCompletionIndexAnnotation, jobsetv1alpha2.ExclusiveTopologyAnnotation,
				jobsetv1alpha2.NodeSelectorStrategyAnnotation, jobsetv1alpha2.InPlaceRestartAttemptAnnotation),
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, InitContainerStatuses: restarted(pod.Status.InitContainerStatuses), ContainerStatuses: restarted(pod.Status.ContainerStatuses)},
	}
	if topology, ok := pod.Annotations[jobsetv1alpha2.ExclusiveTopologyAnnotation]; ok {
		out.Spec.NodeSelector = only(pod.Spec.NodeSelector, topology)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			out.Status.Conditions = []corev1.PodCondition{c}
		}
	}
	return out, nil
}

// only is the part of a map with some keys, or nil.
func only(m map[string]string, keys ...string) map[string]string {
	var out map[string]string
	for k, v := range m {
		if slices.Contains(keys, k) {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}

// restarted leaves of containers how often they restarted, if they did.
func restarted(list []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range list {
		if n := list[i].RestartCount; n > 0 {
			out = append(out, corev1.ContainerStatus{RestartCount: n})
		}
	}
	return out
}

// podsOf are the pods that carry the name of a JobSet.
func podsOf(ctx context.Context, reader client.Reader, js *jobsetv1alpha2.JobSet) ([]*corev1.Pod, error) {
	return list(ctx, reader, js.Namespace, client.MatchingFields{podsByJobSet: js.Name})
}

func list(ctx context.Context, reader client.Reader, namespace string, by client.MatchingFields) ([]*corev1.Pod, error) {
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.InNamespace(namespace), by, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	out := make([]*corev1.Pod, 0, len(pods.Items))
	for i := range pods.Items {
		out = append(out, &pods.Items[i])
	}
	return out, nil
}
