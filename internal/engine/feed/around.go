package feed

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
	"github.com/berth-project/berth/internal/workload/plan/devices"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// Around looks up what decides about the pods of a workload beside its spec: RuntimeClasses and flavors in a cache, and the LimitRanges of a namespace.
func Around(ctx context.Context, cache client.Reader, limitRanges func(namespace string) []client.Object) convert.Around {
	return convert.Around{
		LimitRanges: func(namespace string) (out []corev1.LimitRange) {
			for _, o := range limitRanges(namespace) {
				out = append(out, *o.(*corev1.LimitRange))
			}
			return out
		},
		RuntimeClass: func(name string) *nodev1.RuntimeClass {
			class := &nodev1.RuntimeClass{}
			if err := cache.Get(ctx, client.ObjectKey{Name: name}, class, client.UnsafeDisableDeepCopy); err != nil {
				// It may come later. The pods cannot be made before.
				log.FromContext(ctx).V(1).Info("A RuntimeClass is missing, its overhead counts as none", "runtimeClass", name, "error", err.Error())
				return nil
			}
			return class
		},
		HasTopology: func(name string) bool {
			flavor := &kueue.ResourceFlavor{}
			return cache.Get(ctx, client.ObjectKey{Name: name}, flavor, client.UnsafeDisableDeepCopy) == nil && flavor.Spec.TopologyName != ""
		},
	}
}

func (f *Feed) workload(o *kueue.Workload) []state.Event {
	return []state.Event{state.SetWorkload(convert.Workload(o, f.Requests))}
}

// Reconvert converts a workload again, after a change of what its conversion looks up. It reports false if there is no such workload, or it
// needs no look-up of its pods any more.
func (f *Feed) Reconvert(ctx context.Context, key client.ObjectKey) bool {
	f.posting.Lock()
	defer f.posting.Unlock()
	var w kueue.Workload
	if err := f.Cache.Get(ctx, key, &w, client.UnsafeDisableDeepCopy); err != nil {
		return false // its deletion is an event of its own
	}
	f.Engine.Post(f.workload(&w)...)
	return chain.AnyScaledDown(&w)
}

// Recount converts waiting workloads again, after devices may be charged in another way.
func (f *Feed) Recount(ctx context.Context, changed devices.Changed) {
	f.posting.Lock()
	defer f.posting.Unlock()
	for _, namespace := range changed.Namespaces() {
		f.Engine.Post(f.waiting(ctx, changed.Has, client.InNamespace(namespace))...)
	}
}

// limitRange converts the workloads that wait in its namespace again. Workloads with a reservation
// keep it. spec: 10 §4.4.
func (f *Feed) limitRange(ctx context.Context) func(*corev1.LimitRange) []state.Event {
	return func(o *corev1.LimitRange) []state.Event {
		return f.waiting(ctx, func(*kueue.Workload) bool { return true }, client.InNamespace(o.Namespace))
	}
}

// runtimeClass converts the waiting workloads that name it again.
func (f *Feed) runtimeClass(ctx context.Context) func(*nodev1.RuntimeClass) []state.Event {
	return func(o *nodev1.RuntimeClass) []state.Event {
		return f.waiting(ctx, func(w *kueue.Workload) bool {
			for i := range w.Spec.PodSets {
				if name := w.Spec.PodSets[i].Template.Spec.RuntimeClassName; name != nil && *name == o.Name {
					return true
				}
			}
			return false
		})
	}
}

// waiting converts the workloads without a reservation that match.
func (f *Feed) waiting(ctx context.Context, match func(*kueue.Workload) bool, where ...client.ListOption) (events []state.Event) {
	var list kueue.WorkloadList
	if err := f.Cache.List(ctx, &list, append(where, client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "Listing Workloads to convert again")
	}
	for i := range list.Items {
		if w := &list.Items[i]; lifecycle.IsPending(w) && match(w) {
			events = append(events, f.workload(w)...)
		}
	}
	return events
}
