package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	placement "github.com/berth-project/berth/internal/placement/plan"
)

// Pods is a cache of the pods with one label, trimmed to the fields in use. Few pods of a cluster matter, so it reads none before Fill.
type Pods struct {
	cache.Cache
	mgr ctrl.Manager

	mu    sync.Mutex
	added bool
}

// NewPods makes the cache of the pods with a label. trim returns a pod with only the fields that its users read or write.
func NewPods(mgr ctrl.Manager, label string, trim func(*corev1.Pod) *corev1.Pod) (*Pods, error) {
	exists, err := labels.NewRequirement(label, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("cache of pods: %w", err)
	}
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), NewInformer: newInformer,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.NewSelector().Add(*exists), Transform: func(object any) (any, error) {
				if pod, ok := object.(*corev1.Pod); ok {
					return trim(pod), nil
				}
				return object, nil
			}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of pods: %w", err)
	}
	return &Pods{Cache: c, mgr: mgr}, nil
}

// OfChain returns the pods of a Workload or a chain of slices by its name, by the index ByChain. They are shared with the cache.
func (p *Pods) OfChain(ctx context.Context, chain types.NamespacedName) ([]*corev1.Pod, error) {
	var list corev1.PodList
	err := p.List(ctx, &list, client.InNamespace(chain.Namespace), client.MatchingFields{ByChain: chain.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing pods of %s: %w", chain, err)
	}
	out := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

// GetCache tells the manager that this is a cache, to be started with its own.
func (p *Pods) GetCache() cache.Cache { return p.Cache }

// Fill starts the cache, once.
func (p *Pods) Fill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.added {
		return nil
	}
	if err := p.mgr.Add(p); err != nil {
		return fmt.Errorf("cache of pods: %w", err)
	}
	p.added = true
	return nil
}

// Late is the watch of a cache of pods that a controller adds once it has something to do about them. Safe for concurrent use.
type Late struct {
	Pods *Pods
	// Watch adds the watch.
	Watch func() error

	mu            sync.Mutex
	added, synced bool
}

// Ready fills the cache and adds the watch, on the first call, and waits until the cache is filled.
func (l *Late) Ready(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.added {
		if err := l.Pods.Fill(); err != nil {
			return err
		}
		if err := l.Watch(); err != nil {
			return fmt.Errorf("watching pods: %w", err)
		}
		l.added = true
	}
	if !l.synced && !l.Pods.WaitForCacheSync(ctx) {
		return fmt.Errorf("the cache of pods is not filled yet: %w", context.Cause(ctx))
	}
	l.synced = true
	return nil
}

// IsFilled reports whether Ready has begun to fill the cache.
func (l *Late) IsFilled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.added
}

// NewGatedPods makes a cache of the pods with a label that are ungated one by one, trimmed to the fields that ungating needs. It keeps the
// labels in keep, the given label and the label of the pod set. It reads no pods before Fill.
func NewGatedPods(mgr ctrl.Manager, label string, keep ...string) (*Pods, error) {
	keep = append([]string{label, kueue.PodSetLabel}, keep...)
	return NewPods(mgr, label, func(pod *corev1.Pod) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: TrimMeta(pod, keep, []string{kueue.WorkloadSliceNameAnnotation, kueue.WorkloadAnnotation}),
			Spec: corev1.PodSpec{
				SchedulingGates: pod.Spec.SchedulingGates, NodeSelector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations,
			},
			Status: corev1.PodStatus{Phase: pod.Status.Phase},
		}
	})
}

// ByChain is the index of NewStartedPods: the name of the Workload, or of the chain of slices, that a pod belongs to.
const ByChain = "berth.chain"

// NewStartedPods makes a cache of the pods that were started for an admission, trimmed to the fields that ungating and node failures need:
// the labels that may be indexes of pods, and the annotations that name a Workload and request a topology. It has the index ByChain, and
// reads no pods before Fill.
func NewStartedPods(ctx context.Context, mgr ctrl.Manager) (*Pods, error) {
	annotations := append(placement.TopologyAnnotations(), kueue.WorkloadSliceNameAnnotation, kueue.WorkloadAnnotation, kueue.PodIndexOffsetAnnotation)
	pods, err := NewPods(mgr, kueue.PodSetLabel, func(pod *corev1.Pod) *corev1.Pod {
		out := &corev1.Pod{
			ObjectMeta: TrimMeta(pod, []string{kueue.PodSetLabel}, annotations),
			Spec: corev1.PodSpec{
				SchedulingGates: pod.Spec.SchedulingGates, NodeSelector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations,
				NodeName: pod.Spec.NodeName,
			},
			Status: corev1.PodStatus{Phase: pod.Status.Phase},
		}
		for key, value := range pod.Labels { //berth:unordered a map again
			if _, err := strconv.ParseUint(value, 10, 31); err == nil { // any label may be the index that a job kind names
				out.Labels[key] = value
			}
		}
		return out
	})
	if err != nil {
		return nil, err
	}
	err = pods.IndexField(ctx, &corev1.Pod{}, ByChain, func(o client.Object) []string {
		if name := placement.Chain(o.(*corev1.Pod)); name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("indexing pods: %w", err)
	}
	return pods, nil
}

// TrimMeta returns the metadata of a pod that every cache of pods needs, with the given labels and annotations, and with the MainOwner alone: a
// user may name thousands.
func TrimMeta(pod *corev1.Pod, labels, annotations []string) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp,
		Labels: Only(pod.Labels, labels...), Annotations: Only(pod.Annotations, annotations...),
	}
	if owner := MainOwner(pod.OwnerReferences); owner != nil {
		out.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return out
}

// MainOwner returns the owner that an object follows, where it follows one: its controller, or the first owner of an object without a
// controller; nil for none.
func MainOwner(of []metav1.OwnerReference) *metav1.OwnerReference {
	if len(of) == 0 {
		return nil
	}
	return &of[max(0, slices.IndexFunc(of, func(ref metav1.OwnerReference) bool { return ptr.Deref(ref.Controller, false) }))]
}

// Only returns the entries of a map with the given keys; nil if it has none of them.
func Only(m map[string]string, keys ...string) map[string]string {
	var out map[string]string
	for _, k := range keys {
		if v, ok := m[k]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}
