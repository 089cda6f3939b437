package ungate

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/reconcile"
)

func (r *reconciler) workloads(ctx context.Context, namespace, index, value string) ([]*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{index: value}); err != nil {
		return nil, fmt.Errorf("listing workloads of %s/%s: %w", namespace, value, err)
	}
	out := make([]*kueue.Workload, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

// named returns the slices of a chain, or the Workload of that name, which is no slice or an earlier one than the pods name.
func (r *reconciler) named(ctx context.Context, chain types.NamespacedName) ([]*kueue.Workload, error) {
	list, err := r.workloads(ctx, chain.Namespace, byChain, chain.Name)
	if err != nil || len(list) > 0 {
		return list, err
	}
	var w kueue.Workload
	switch err := r.client.Get(ctx, chain, &w); {
	case err == nil:
		return []*kueue.Workload{&w}, nil
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("reading workload %s: %w", chain, err)
	}
	return nil, nil
}

// flavors returns the flavors of the admission that exist.
func (r *reconciler) flavors(ctx context.Context, w *kueue.Workload) (job.Flavors, error) {
	out := job.Flavors{}
	for _, a := range w.Status.Admission.PodSetAssignments {
		for _, name := range a.Flavors {
			if out[name] != nil {
				continue
			}
			var flavor kueue.ResourceFlavor
			switch err := r.client.Get(ctx, client.ObjectKey{Name: string(name)}, &flavor); {
			case err == nil:
				out[name] = &flavor
			case client.IgnoreNotFound(err) != nil:
				return nil, fmt.Errorf("reading flavor %s: %w", name, err)
			}
		}
	}
	return out, nil
}

// unhealthy returns the hostnames of the unhealthy nodes of a Workload. Its status names nodes, and its assignment hostnames, which differ
// in some clouds. A node that is gone counts under its name.
func (r *reconciler) unhealthy(ctx context.Context, w *kueue.Workload) (map[string]bool, error) {
	out := map[string]bool{}
	for _, n := range w.Status.UnhealthyNodes {
		var node corev1.Node
		err := r.client.Get(ctx, client.ObjectKey{Name: n.Name}, &node)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading node %s: %w", n.Name, err)
		}
		out[n.Name] = true
		if host := node.Labels[corev1.LabelHostname]; host != "" {
			out[host] = true
		}
	}
	return out, nil
}

// ungate writes the pods that changed, several at once. A failed write does not keep the others from being made.
func (r *reconciler) ungate(ctx context.Context, w *kueue.Workload, pods, next []*corev1.Pod) error {
	errs := make([]error, len(pods))
	free := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for i := range pods {
		if pods[i] == next[i] {
			continue
		}
		free <- struct{}{}
		running.Go(func() {
			errs[i] = r.ungateOne(ctx, w, pods[i], next[i])
			<-free
		})
	}
	running.Wait()
	return reconcile.Summarize(errs)
}

func (r *reconciler) ungateOne(ctx context.Context, w *kueue.Workload, old, next *corev1.Pod) error {
	err := r.patch(ctx, old, next)
	r.written.Wrote(old, next, err)
	if err == nil && r.Ungated != nil {
		r.Ungated(w, removed(old, next), w.Annotations[kueue.IsGroupWorkloadAnnotation] == "true", r.Now())
	}
	return err
}

// removed returns the names of the gates that next lacks.
func removed(old, next *corev1.Pod) (out []string) {
	for _, gate := range old.Spec.SchedulingGates {
		if !job.PodHasGate(next, gate.Name) {
			out = append(out, gate.Name)
		}
	}
	return out
}

func (r *reconciler) patch(ctx context.Context, old, next *corev1.Pod) error {
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, next, patch, client.FieldOwner("kueue")); err != nil {
		return fmt.Errorf("taking the gate off pod %s/%s: %w", old.Namespace, old.Name, err)
	}
	return nil
}
