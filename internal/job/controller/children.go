package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// childCache reads the children and pods of jobs with managed children.
type childCache struct {
	pods *reconcile.Pods
	from lookup.Source // with the pods
}

// childWatches are the watches of the kinds of objects whose changes reconcile a job. The API server may begin to serve these and the kind of the
// job in any order, and a manager of other clusters may never have the former.
type childWatches struct {
	mu         sync.Mutex
	controller controller.Controller // nil until the kind of the job is served
	served     []source.Source       // until then
}

// add begins a watch, once there is a controller.
func (w *childWatches) add(s source.Source) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.controller == nil {
		w.served = append(w.served, s)
		return nil
	}
	return w.controller.Watch(s)
}

// begin begins the watches that were added, and later ones at once.
func (w *childWatches) begin(c controller.Controller) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.controller = c
	for _, s := range w.served {
		if err := c.Watch(s); err != nil {
			return err
		}
	}
	w.served = nil
	return nil
}

// awaitChildren watches the children of elastic jobs: each kind now, or once the API server serves it.
func (r *reconciler) awaitChildren(ctx context.Context, mgr ctrl.Manager, late *lookup.Latecomers) error {
	if r.d.Elastic == nil {
		return nil
	}
	for _, gvk := range r.d.Elastic.Children {
		resource, _ := apimeta.UnsafeGuessKindToResource(gvk)
		kind := lookup.Late{
			Name: "integration " + r.d.Framework, CRD: resource.GroupResource().String(),
			Served: func() (bool, error) { return lookup.IsServed(mgr.GetRESTMapper(), gvk) },
		}
		err := late.StartLate(ctx, kind, func(context.Context) error {
			child := view.New(gvk)
			return r.childWatches.add(source.Kind(mgr.GetCache(), client.Object(child), handler.EnqueueRequestsFromMapFunc(r.ofChild)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// watchPods reconciles the job when a pod changes; without gated children, when a pod ends.
func (r *reconciler) watchPods(c controller.Controller) error {
	if err := r.childCache.pods.Fill(); err != nil {
		return err
	}
	gone := predicate.TypedFuncs[*corev1.Pod]{
		CreateFunc: func(event.TypedCreateEvent[*corev1.Pod]) bool { return r.d.ManagedChildren.CanGate() },
		UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Pod]) bool {
			return r.d.ManagedChildren.CanGate() || job.PodIsOver(e.ObjectNew)
		},
	}
	return c.Watch(source.Kind(r.childCache.pods.Cache, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofChildPod), gone))
}

// ofChildPod returns the job whose child controls the pod. If that child is deleted, it returns the jobs whose children have such
// names, with or without Workloads, and the jobs of the slice chain that the pod names.
func (r *reconciler) ofChildPod(ctx context.Context, pod *corev1.Pod) []ctrlreconcile.Request {
	ref := metav1.GetControllerOf(pod)
	if ref == nil || schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind) != r.d.ManagedChildren.Child {
		return nil
	}
	child := view.New(r.d.ManagedChildren.Child)
	if err := r.cache.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: ref.Name}, child); err == nil && child.GetUID() == ref.UID {
		return r.ofControlled(child)
	}
	var out []ctrlreconcile.Request
	for _, name := range lookup.JobsOf(ref.Name) {
		if err := r.cache.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, r.d.New(), client.UnsafeDisableDeepCopy); err == nil {
			out = append(out, request(pod.Namespace, name))
		}
	}
	chain := pod.Annotations[kueue.WorkloadSliceNameAnnotation]
	if chain == "" {
		return out
	}
	first := &kueue.Workload{}
	if err := r.cache.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: chain}, first, client.UnsafeDisableDeepCopy); err == nil {
		out = append(out, r.ofControlled(first)...)
	}
	var list kueue.WorkloadList
	if err := r.cache.List(ctx, &list, client.InNamespace(pod.Namespace), client.MatchingFields{byChain: chain}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Workloads cannot be listed", "chain", chain)
	}
	for i := range list.Items {
		for _, found := range r.ofControlled(&list.Items[i]) {
			if !slices.Contains(out, found) {
				out = append(out, found)
			}
		}
	}
	return out
}

// ofControlled returns the job of our kind that controls an object.
func (r *reconciler) ofControlled(o client.Object) []ctrlreconcile.Request {
	if ref := metav1.GetControllerOf(o); ref != nil && r.isOurs(*ref) {
		return []ctrlreconcile.Request{request(o.GetNamespace(), ref.Name)}
	}
	return nil
}

// observeChildren reads the children and pods of a job, overlaid with written objects that the cache does not show yet.
func (r *reconciler) observeChildren(ctx context.Context, o *job.Observed) error {
	if !r.needsChildren(o) {
		return nil
	}
	f, err := lookup.ReadDependents(ctx, r.childCache.from, r.d, o.Job, o.Workloads)
	if err != nil {
		return err
	}
	err = errors.Join(newest(ctx, r, f.Children), newest(ctx, r, f.Pods), newest(ctx, r, o.Workloads))
	if err != nil {
		return err
	}
	o.Children, o.Pods = f.Children, f.Pods
	return r.observeOtherPods(ctx, o)
}

// needsChildren reports whether the children of a job affect the decision. Children of ungated kinds matter only while the job is
// suspended, and holds quota or is to be queued again.
func (r *reconciler) needsChildren(o *job.Observed) bool {
	if r.d.ManagedChildren == nil || r.d.ManagedChildren.CanGate() {
		return r.d.ManagedChildren != nil
	}
	waits := slices.ContainsFunc(o.Workloads, func(w *kueue.Workload) bool { return !lifecycle.IsFinished(w) })
	return r.d.IsSuspended(o.Job) && (!waits || slices.ContainsFunc(o.Workloads, lifecycle.IsReserved))
}

// observeOtherPods adds the pods that none of the job's children controls.
func (r *reconciler) observeOtherPods(ctx context.Context, o *job.Observed) error {
	if r.d.ManagedChildren.Others == nil {
		return nil
	}
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(o.Job.GetNamespace()), client.MatchingLabels(r.d.ManagedChildren.Others(o.Job))); err != nil {
		return fmt.Errorf("listing pods of %s: %w", client.ObjectKeyFromObject(o.Job), err)
	}
	o.Pods = append(o.Pods, reconcile.Pointers(pods.Items)...)
	return nil
}

// newest replaces cached objects by their written versions.
func newest[T client.Object](ctx context.Context, r *reconciler, shown []T) error {
	for i, s := range shown {
		object, err := reconcile.Resolve[client.Object](ctx, r.written, r.live, s)
		if err != nil {
			return err
		}
		shown[i] = object.(T)
	}
	return nil
}

func (r *reconciler) writeChildren(ctx context.Context, o *job.Observed, a job.Action, manager client.FieldOwner) error {
	key := client.ObjectKeyFromObject(o.Job)
	for _, m := range a.Children {
		base := member(o, m.GetUID())
		if base == nil {
			return fmt.Errorf("%s is none of %s", client.ObjectKeyFromObject(m), key)
		}
		if a.Verb == job.DeleteChildren {
			uid, over := m.GetUID(), base.GetResourceVersion()
			err := client.IgnoreNotFound(r.client.Delete(ctx, m, client.Preconditions{UID: &uid, ResourceVersion: &over}))
			if err != nil {
				return named(err, "deleting", m)
			}
			gone := base.DeepCopyObject().(client.Object)
			gone.SetDeletionTimestamp(new(metav1.Now()))
			r.written.Deleted(gone)
			continue
		}
		gates := opened(base, m)
		err := r.client.Patch(ctx, m, pinned(base), manager)
		r.written.Wrote(base, m, err)
		if err != nil {
			return named(err, "updating", m)
		}
		r.reportUngated(a.Workload, gates, false)
	}
	return nil
}

// opened are the gates that a patch removes from a pod; none for other objects.
func opened(base, next client.Object) (names []string) {
	was, isPod := base.(*corev1.Pod)
	will, stays := next.(*corev1.Pod)
	if !isPod || !stays {
		return nil
	}
	for _, g := range was.Spec.SchedulingGates {
		if !job.PodHasGate(will, g.Name) {
			names = append(names, g.Name)
		}
	}
	return names
}

// reportUngated reports a pod whose gates were removed for a Workload, if there are both.
func (r *reconciler) reportUngated(w *kueue.Workload, gates []string, group bool) {
	if r.ungated != nil && w != nil && len(gates) > 0 {
		r.ungated(w, gates, group, r.now())
	}
}

// member returns the observed child or pod of a UID; nil for none.
func member(o *job.Observed, uid types.UID) client.Object {
	for _, c := range o.Children {
		if c.GetUID() == uid {
			return c
		}
	}
	for _, p := range o.Pods {
		if p.UID == uid {
			return p
		}
	}
	return nil
}
