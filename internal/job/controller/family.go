package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	placementplan "github.com/berth-project/berth/internal/placement/plan"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// family is how the reconciler sees what belongs to jobs of a kind whose jobs are led.
type family struct {
	pods *reconcile.Pods

	mu sync.Mutex
	// written are, by job, the objects as they were last written and the cache may not show yet. Room that was given to a
	// pod is not given to another one, whatever the cache still shows.
	written map[types.NamespacedName]map[types.UID]written
}

// written is an object that was written over one of a resource version. sure says that the API server said so.
type written struct {
	over   string
	object client.Object
	sure   bool
}

// watchPods brings the job back when a pod changes; one that is not led, when a pod is over.
func (r *reconciler) watchPods(c controller.Controller) error {
	if err := r.family.pods.Fill(); err != nil {
		return err
	}
	gone := predicate.TypedFuncs[*corev1.Pod]{
		CreateFunc: func(event.TypedCreateEvent[*corev1.Pod]) bool { return r.d.Family.CanLead() },
		UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Pod]) bool {
			return r.d.Family.CanLead() || placementplan.IsOver(e.ObjectNew)
		},
	}
	return c.Watch(source.Kind(r.family.pods.Cache, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofFamilyPod), gone))
}

// ofFamilyPod finds the job that controls what controls the pod, or, if that is gone, the job of the chain that it names, and those
// whose objects have such names.
func (r *reconciler) ofFamilyPod(ctx context.Context, pod *corev1.Pod) []ctrlreconcile.Request {
	ref := metav1.GetControllerOf(pod)
	if ref == nil || schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind) != r.d.Family.Child {
		return nil
	}
	child := &unstructured.Unstructured{}
	child.SetGroupVersionKind(r.d.Family.Child)
	if err := r.cache.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: ref.Name}, child); err == nil && child.GetUID() == ref.UID {
		return r.ofControlled(child)
	}
	var list kueue.WorkloadList
	if err := r.cache.List(ctx, &list, client.InNamespace(pod.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var out []ctrlreconcile.Request
	chain := pod.Annotations[kueue.WorkloadSliceNameAnnotation]
	for i := range list.Items {
		w := &list.Items[i]
		for _, found := range r.ofControlled(w) {
			named := chain != "" && (w.Name == chain || w.Annotations[kueue.WorkloadSliceNameAnnotation] == chain)
			if (named || lookup.WasOf(ref.Name, found.Name)) && !slices.Contains(out, found) {
				out = append(out, found)
			}
		}
	}
	return out
}

// ofControlled finds the job of our kind that controls an object.
func (r *reconciler) ofControlled(o client.Object) []ctrlreconcile.Request {
	if ref := metav1.GetControllerOf(o); ref != nil && r.isOurs(*ref) {
		return []ctrlreconcile.Request{request(o.GetNamespace(), ref.Name)}
	}
	return nil
}

// gatherFamily reads what belongs to a job, with what was written to it and the cache does not show yet.
func (r *reconciler) gatherFamily(ctx context.Context, key types.NamespacedName, o *job.Observed) error {
	if !r.needsFamily(o) {
		return nil
	}
	f, err := lookup.ReadFamily(ctx, r.cache, r.family.pods, r.d, o.Job, o.Workloads)
	if err != nil {
		return err
	}
	fam := r.family
	fam.mu.Lock()
	waits := fam.written[key]
	fam.mu.Unlock()
	kept := map[types.UID]written{}
	for i, c := range f.Children {
		if f.Children[i], err = newest(ctx, r.live, c, waits, kept); err != nil {
			return err
		}
	}
	for i, p := range f.Pods {
		if f.Pods[i], err = newest(ctx, r.live, p, waits, kept); err != nil {
			return err
		}
	}
	for i, w := range o.Workloads {
		if o.Workloads[i], err = newest(ctx, r.live, w, waits, kept); err != nil {
			return err
		}
	}
	fam.mu.Lock()
	defer fam.mu.Unlock()
	if fam.written[key] = kept; len(kept) == 0 {
		delete(fam.written, key)
	}
	o.Children, o.Pods = f.Children, f.Pods
	return r.gatherOthers(ctx, o)
}

// needsFamily says whether what belongs to a job decides about it. That of one that is not led does only when it is stopped, and
// has quota or is to be queued again.
func (r *reconciler) needsFamily(o *job.Observed) bool {
	if r.d.Family == nil || r.d.Family.CanLead() {
		return r.d.Family != nil
	}
	waits := slices.ContainsFunc(o.Workloads, func(w *kueue.Workload) bool { return !lifecycle.IsFinished(w) })
	return r.d.IsSuspended(o.Job) && (!waits || slices.ContainsFunc(o.Workloads, lifecycle.IsReserved))
}

// gatherOthers adds the pods that none of the job's objects controls.
func (r *reconciler) gatherOthers(ctx context.Context, o *job.Observed) error {
	if r.d.Family.Others == nil {
		return nil
	}
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(o.Job.GetNamespace()), client.MatchingLabels(r.d.Family.Others(o.Job))); err != nil {
		return fmt.Errorf("listing pods of %s: %w", client.ObjectKeyFromObject(o.Job), err)
	}
	for i := range pods.Items {
		o.Pods = append(o.Pods, &pods.Items[i])
	}
	return nil
}

// newest is an object as the cache shows it, or as it was written since. If it is not known whether the write was made, the
// API server is asked.
func newest[T client.Object](ctx context.Context, live client.Reader, shown T, waits, kept map[types.UID]written) (T, error) {
	w, ok := waits[shown.GetUID()]
	if !ok || w.over != shown.GetResourceVersion() {
		return shown, nil
	}
	if !w.sure {
		now := shown.DeepCopyObject().(client.Object)
		err := live.Get(ctx, client.ObjectKeyFromObject(shown), now)
		switch {
		case apierrors.IsNotFound(err):
			now.SetDeletionTimestamp(new(metav1.Now()))
		case err != nil:
			return shown, fmt.Errorf("reading %s: %w", client.ObjectKeyFromObject(shown), err)
		case now.GetResourceVersion() == w.over:
			return shown, nil // it was not made
		}
		w.object, w.sure = now, true
	}
	kept[shown.GetUID()] = w
	return w.object.DeepCopyObject().(T), nil
}

// note remembers an object that was written, or may have been.
func (r *reconciler) note(key types.NamespacedName, over string, object client.Object, sure bool) {
	if r.family == nil {
		return
	}
	r.family.mu.Lock()
	defer r.family.mu.Unlock()
	if r.family.written[key] == nil {
		r.family.written[key] = map[types.UID]written{}
	}
	r.family.written[key][object.GetUID()] = written{over, object.DeepCopyObject().(client.Object), sure}
}

// isRefused says of the error of a write that it was certainly not made.
func isRefused(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

// writeFamily writes objects that belong to the job, or deletes them.
func (r *reconciler) writeFamily(ctx context.Context, o *job.Observed, a job.Action, manager client.FieldOwner) error {
	key := client.ObjectKeyFromObject(o.Job)
	for _, m := range a.Family {
		base := member(o, m.GetUID())
		if base == nil {
			return fmt.Errorf("%s is none of %s", client.ObjectKeyFromObject(m), key)
		}
		over := base.GetResourceVersion()
		if a.Verb == job.DeleteFamily {
			uid := m.GetUID()
			err := client.IgnoreNotFound(r.client.Delete(ctx, m, client.Preconditions{UID: &uid, ResourceVersion: &over}))
			if err != nil {
				return named(err, "deleting", m)
			}
			gone := base.DeepCopyObject().(client.Object)
			gone.SetDeletionTimestamp(new(metav1.Now()))
			r.note(key, over, gone, true)
			continue
		}
		gates := opened(base, m)
		err := r.client.Patch(ctx, m, pinned(base), manager)
		if err == nil || !isRefused(err) {
			r.note(key, over, m, err == nil)
		}
		if err != nil {
			return named(err, "updating", m)
		}
		r.letGo(a.Workload, gates, false)
	}
	return nil
}

// opened are the gates that a pod has and is to have no more; none of what is no pod.
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

// letGo tells of a pod whose gates were opened for a Workload; without either there is nothing to tell.
func (r *reconciler) letGo(w *kueue.Workload, gates []string, group bool) {
	if r.ungated != nil && w != nil && len(gates) > 0 {
		r.ungated(w, gates, group, r.now())
	}
}

// member is an object that belongs to the job, as it was observed.
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
