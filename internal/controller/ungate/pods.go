package ungate

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/ungate"
)

// byChain is the index of pods, and of Workloads, by the name of their chain.
const byChain = "berth.chain"

// pods is a cache of the pods that were started for an admission: of no other pods, and only what is looked at. It is
// filled once there is an elastic job, since most clusters have none.
type pods struct {
	cache.Cache
	mgr   ctrl.Manager
	mu    sync.Mutex
	added bool
}

// GetCache tells the manager that this is a cache.
func (p *pods) GetCache() cache.Cache { return p.Cache }

func newPods(ctx context.Context, mgr ctrl.Manager) (*pods, error) {
	exists, err := labels.NewRequirement(kueue.PodSetLabel, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.NewSelector().Add(*exists), Transform: trim},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of pods: %w", err)
	}
	err = c.IndexField(ctx, &corev1.Pod{}, byChain, func(o client.Object) []string {
		if name := ungate.Chain(o.(*corev1.Pod)); name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("indexing pods: %w", err)
	}
	return &pods{Cache: c, mgr: mgr}, nil
}

// fill starts the cache, once. begin is called when it does.
func (p *pods) fill(ctx context.Context, begin func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.added {
		return nil
	}
	if err := p.mgr.Add(p); err != nil {
		return fmt.Errorf("cache of pods: %w", err)
	}
	if err := begin(); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	p.added = true
	if !p.WaitForCacheSync(ctx) {
		return fmt.Errorf("the cache of pods is not filled yet: %w", context.Cause(ctx))
	}
	return nil
}

// trim leaves of a pod what is looked at, or written.
func trim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp,
			OwnerReferences: pod.OwnerReferences,
			Labels:          only(pod.Labels, kueue.PodSetLabel),
			Annotations:     only(pod.Annotations, kueue.WorkloadSliceNameAnnotation, kueue.WorkloadAnnotation),
		},
		Spec: corev1.PodSpec{
			SchedulingGates: pod.Spec.SchedulingGates, NodeSelector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations,
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}, nil
}

// only is the part of a map with the given keys.
func only(m map[string]string, keys ...string) map[string]string {
	out := map[string]string{}
	for _, key := range keys {
		if value, ok := m[key]; ok {
			out[key] = value
		}
	}
	return out
}
