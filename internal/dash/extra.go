package dash

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
)

// aboutName is the index of events by the name of their Workload.
const aboutName = "involvedObject.name"

// +kubebuilder:rbac:groups="",resources=pods;nodes;events,verbs=get;list;watch,roleName=kueue-manager-dashboard-role

// newExtra makes the cache of objects that only the dashboard reads: pods, reduced to the fields shown, and events about Workloads.
func newExtra(ctx context.Context, mgr ctrl.Manager) (cache.Cache, error) {
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:   {Transform: trimPod},
			&corev1.Event{}: {Field: fields.OneTermEqualSelector("involvedObject.kind", "Workload"), Transform: cache.TransformStripManagedFields()},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of the dashboard: %w", err)
	}
	err = c.IndexField(ctx, &corev1.Event{}, aboutName, func(o client.Object) []string {
		e, _ := o.(*corev1.Event)
		return []string{e.InvolvedObject.Name}
	})
	if err != nil {
		return nil, fmt.Errorf("indexing events: %w", err)
	}
	return c, nil
}

// trimPod reduces a pod to the displayed fields and the fields that identify its owners.
func trimPod(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	kept := reconcile.TrimMeta(pod, []string{jobsetv1alpha2.JobSetUIDKey, jobsetv1alpha2.JobSetNameKey}, []string{kueue.WorkloadAnnotation})
	kept.CreationTimestamp = metav1.Time{Time: pod.CreationTimestamp.Time}
	return &corev1.Pod{
		ObjectMeta: kept, Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message},
	}, nil
}
