package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/reconcile"
)

// sets is the reconciler of a serving kind whose pods are queued in groups.
type sets struct{ *reconciler }

// byServer is the index of pods by their serving object.
func (r *sets) byServer() string { return "berth.server." + r.d.GVK.GroupKind().String() }

func (r *sets) setup(ctx context.Context, mgr ctrl.Manager, workers int) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, r.byServer(), func(o client.Object) []string {
		if name := r.d.Sets.Owner(o.(*corev1.Pod)); name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b := r.watch(mgr, strings.ToLower(r.d.GVK.Kind), workers, r.ofOwnedWorkload).
		For(r.d.New()).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod))
	if makers := r.d.Sets.Makers; makers.GVK != r.d.GVK {
		b = b.Watches(makers.New(), handler.EnqueueRequestsFromMapFunc(r.ofMaker))
	}
	return b.Complete(r)
}

// ofPod returns the object of a pod. A pod that has lost its owner keeps the Workload of its group.
func (r *sets) ofPod(ctx context.Context, o client.Object) []ctrlreconcile.Request {
	if name := r.d.Sets.Owner(o.(*corev1.Pod)); name != "" {
		return []ctrlreconcile.Request{request(o.GetNamespace(), name)}
	}
	group := r.cfg.Load().GroupName(o)
	if group == "" || metav1.GetControllerOf(o) != nil {
		return nil
	}
	var w kueue.Workload
	if err := r.cache.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: group}, &w, client.UnsafeDisableDeepCopy); err != nil || !r.isMadeForOurs(&w) {
		return nil // the pod of another group, or the end of one
	}
	return []ctrlreconcile.Request{request(w.Namespace, w.Annotations[kueue.JobOwnerNameAnnotation])}
}

func (r *sets) ofOwnedWorkload(_ context.Context, w client.Object) []ctrlreconcile.Request {
	var out []ctrlreconcile.Request
	for _, name := range r.ownerNames(w) {
		out = append(out, request(w.GetNamespace(), name))
	}
	if len(out) == 0 && job.IsRemote(w) && r.isMadeForOurs(w) {
		out = append(out, request(w.GetNamespace(), w.GetAnnotations()[kueue.JobOwnerNameAnnotation])) // it has no owner yet
	}
	return out
}

// ofMaker returns the object whose pods another one controls.
func (r *sets) ofMaker(_ context.Context, o client.Object) []ctrlreconcile.Request {
	pod := &corev1.Pod{ObjectMeta: *r.d.Sets.Makers.Template(o).ObjectMeta.DeepCopy()}
	if name := r.d.Sets.Owner(pod); name != "" {
		return []ctrlreconcile.Request{request(o.GetNamespace(), name)}
	}
	return nil
}

// Reconcile makes the next write for one object: for a Workload, or for some of its pods.
func (r *sets) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	o, err := r.observeServer(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	a, pods := decide.Sets(r.cfg.Load(), r.d, o)
	if len(pods) == 0 {
		return r.do(ctx, req.NamespacedName, &o.Observed, a).Result(ctx)
	}
	read := map[types.UID]*corev1.Pod{}
	for _, pod := range o.Pods {
		read[pod.UID] = pod
	}
	err = each(job.Objects(pods), func(pod job.Object) error {
		manager := client.FieldOwner(lookup.Manager(r.d))
		return named(client.IgnoreNotFound(r.client.Patch(ctx, pod, pinned(read[pod.GetUID()]), manager)), "updating Pod", pod)
	})
	if err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	return reconcile.Done().Result(ctx)
}

// observeServer reads one object and everything that decide.Sets needs. Pods and Workloads are shared with the cache, since there may be
// 100,000 of each, and must not be modified.
func (r *sets) observeServer(ctx context.Context, key types.NamespacedName) (*decide.ObservedSets, error) {
	o := &decide.ObservedSets{Observed: job.Observed{Now: metav1.NewTime(r.now())}, Makers: map[string]job.Object{}}
	if err := r.addGroups(ctx, key, o); err != nil {
		return nil, err
	}
	// A deleted object has no labels or owners to judge, so its namespace decides first.
	managed, err := r.gate.IsManaged(ctx, key.Namespace)
	switch {
	case apierrors.IsNotFound(err): // the API server deletes a namespace after everything in it: the caches lag behind
		o.Pods, o.Workloads = nil, nil
		return o, nil
	case err != nil:
		return nil, err
	case !managed:
		if o.Pods = nil; len(o.Workloads) == 0 {
			return o, nil
		}
	}
	if o.Job, err = r.job(ctx, key, len(o.Workloads)+len(o.Pods) > 0); err != nil {
		return o, err
	}
	if err := r.alive(ctx, o); err != nil || o.Job == nil {
		return o, err
	}
	if err := errors.Join(r.addLegacyWorkload(ctx, o), r.addRemoteWorkloads(ctx, o)); err != nil {
		return nil, err
	}
	if o.Verdict, err = r.gate.JudgeExisting(ctx, r.d, o.Job); err != nil || o.Verdict.Mode != job.Managed {
		return o, err
	}
	if err := r.makers(ctx, o); err != nil {
		return nil, err
	}
	o.Classes, err = r.classesOf(ctx, o.Job, r.podSetsOf(o.Job))
	return o, err
}

// addGroups adds the pods and Workloads of an object, which may be gone.
func (r *sets) addGroups(ctx context.Context, key types.NamespacedName, o *decide.ObservedSets) error {
	var pods corev1.PodList
	err := r.cache.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingFields{r.byServer(): key.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing the pods of %s: %w", key, err)
	}
	o.Pods = append(o.Pods, reconcile.Pointers(pods.Items)...)
	if o.Workloads, err = workloadsBy(ctx, r.cache, key.Namespace, byOwner(r.d.GVK), key.Name, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	return r.delegated(ctx, &o.Observed)
}

// alive finds the groups with pods that outlive their object: with the propagation policy Orphan they have no owner any more.
func (r *sets) alive(ctx context.Context, o *decide.ObservedSets) error {
	o.Alive = map[string]bool{}
	for _, w := range o.Workloads {
		ofJob := func(ref metav1.OwnerReference) bool { return o.Job != nil && ref.UID == o.Job.GetUID() }
		if slices.ContainsFunc(w.OwnerReferences, ofJob) && o.Job.GetDeletionTimestamp() == nil {
			continue
		}
		var pods corev1.PodList
		if err := r.cache.List(ctx, &pods, client.InNamespace(w.Namespace), client.MatchingFields{byGroup: w.Name}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing the pods of the group %s/%s: %w", w.Namespace, w.Name, err)
		}
		o.Alive[w.Name] = slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return !job.PodIsOver(&p) })
	}
	return nil
}

// addLegacyWorkload adds the Workload that an older version made without an owner reference to the object.
func (r *sets) addLegacyWorkload(ctx context.Context, o *decide.ObservedSets) error {
	if len(o.Workloads) > 0 {
		return nil
	}
	var w kueue.Workload
	key := client.ObjectKey{Namespace: o.Job.GetNamespace(), Name: r.cfg.Load().WorkloadName(r.d.GVK, o.Job.GetName(), "")}
	err := r.cache.Get(ctx, key, &w)
	if err == nil && metav1.GetControllerOf(&w) == nil {
		o.Workloads = append(o.Workloads, &w)
	}
	return client.IgnoreNotFound(err)
}

// podSetsOf are all pod sets of an object, for their priority classes.
func (r *sets) podSetsOf(o job.Object) []kueue.PodSet {
	parts, err := r.d.Sets.Parts(o, &job.Setting{Config: r.cfg.Load()})
	if err != nil || len(parts) == 0 {
		return nil // the plan reports the error
	}
	return parts[0].PodSets // all parts are made from the same templates
}

// makers reads the objects that control pods. Only the API server can report that one does not exist: a stale cache must
// not ungate pods.
func (r *sets) makers(ctx context.Context, o *decide.ObservedSets) error {
	for _, pod := range o.Pods {
		ref := r.d.Sets.Makers.Of(pod)
		if ref == nil {
			continue
		}
		if _, known := o.Makers[ref.Name]; known {
			continue
		}
		found := r.d.Sets.Makers.New()
		key := client.ObjectKey{Namespace: pod.Namespace, Name: ref.Name}
		err := r.cache.Get(ctx, key, found)
		if apierrors.IsNotFound(err) {
			err = r.live.Get(ctx, key, found)
		}
		switch {
		case err == nil:
			o.Makers[ref.Name] = found
		case apierrors.IsNotFound(err):
			o.Makers[ref.Name] = nil
		default:
			return fmt.Errorf("reading %s %s: %w", ref.Kind, key, err)
		}
	}
	return nil
}
