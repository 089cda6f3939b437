// Package controller is the one reconciler of all job kinds. It observes a job
// once, lets the plan decide, and makes the one write of the plan; the event of
// that write starts the next reconcile.
//
//	job ─────────────┐
//	its Workloads ───┤                                ┌─ Workload: create, update, delete
//	owners, namespace├─► observe ─► decide.Next ─► do ─┼─ status: finish, release, ready
//	flavors, classes ┘                                └─ job: start, stop, delete
//
// Writes carry the resource version that was read, so a decision on a stale
// observation fails with a conflict and is retried. So a crash between any two
// writes loses nothing and starts nothing twice.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/reconcile"
)

// Options configure the reconcilers.
type Options struct {
	Config *job.Config
	// Descriptors are the kinds. Kinds that Config.Kinds does not manage are skipped.
	Descriptors []*job.Descriptor
	// Kept, unless nil, delivers new values of DeleteDeactivatedAfter while the manager runs.
	Kept <-chan *time.Duration
	// Workers returns the number of concurrent reconciles of a kind, given as Kind.group.
	Workers func(groupKind string) int
	// Now is the clock.
	Now func() time.Time
	// Patience is how long a start may be refused before its job counts as failed; 0 is reconcile.Patience.
	Patience time.Duration
	// Events is the budget of the events about jobs; nil is no limit.
	Events *reconcile.EventBudget
	// Created is called for every Workload that was made for a job; may be nil.
	Created func(kind string, job client.Object, w *kueue.Workload)
	// Ungated is called for every ungated pod, with its Workload, the removed gates, and whether it is one of a group; may be nil.
	Ungated func(w *kueue.Workload, gates []string, group bool, at time.Time)
	// Pods are the pods of jobs with gated children, shared with other readers. Nil: they are read only here.
	Pods *reconcile.Pods
	// Ready is called before the first reconcile of a kind, when its CRD exists; may be nil.
	Ready func(context.Context, *job.Descriptor) error
}

// Indexes of the cache.
const (
	byOwnerUID = "berth.ownerUID" // of Workloads: the UID of the controller
	byChain    = "berth.ofChain"  // of Workloads: the first slice, where they name it
	byParent   = "berth.parent"   // of jobs: the UID of the controller
	byPrebuilt = "berth.prebuilt" // of jobs: the Workload that they name
)

// byOwner is the index of Workloads by the name of an owner of one kind.
func byOwner(gvk schema.GroupVersionKind) string { return "berth.owner." + gvk.GroupKind().String() }

// newChildCache returns the cache for a kind with managed children, nil for others. All kinds share the same pods.
func newChildCache(ctx context.Context, mgr ctrl.Manager, o *Options, d *job.Descriptor) (*childCache, error) {
	if d.ManagedChildren == nil {
		return nil, nil
	}
	if o.Pods == nil {
		var err error
		if o.Pods, err = reconcile.NewGatedPods(mgr, d.ManagedChildren.PodLabel, d.ManagedChildren.PodLabels...); err != nil {
			return nil, err
		}
		if err := lookup.IndexPods(ctx, o.Pods); err != nil {
			return nil, err
		}
	}
	from := lookup.Source{Children: mgr.GetCache(), Pods: lookup.CachedPods(o.Pods)}
	from.Workloads = func(ctx context.Context, of metav1.Object) ([]*kueue.Workload, error) {
		return workloadsBy(ctx, mgr.GetCache(), of.GetNamespace(), byOwnerUID, string(of.GetUID()))
	}
	return &childCache{pods: o.Pods, from: from}, nil
}

// Setup adds one controller for each enabled kind to the manager: now, or once the API server knows the kind.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	enabled := slices.DeleteFunc(slices.Clone(o.Descriptors), func(d *job.Descriptor) bool { return !o.Config.Kinds[d.GVK] || (d.Serving && d.Sets == nil) })
	gate := lookup.NewGate(o.Config, o.Descriptors, mgr.GetCache(), mgr.GetAPIReader())
	err := errors.Join(
		mgr.GetFieldIndexer().IndexField(ctx, &kueue.Workload{}, byOwnerUID, controllerUID),
		mgr.GetFieldIndexer().IndexField(ctx, &kueue.Workload{}, byChain, chainNamed),
	)
	if err != nil {
		return fmt.Errorf("indexing workloads: %w", err)
	}
	var cfg atomic.Pointer[job.Config]
	cfg.Store(o.Config)
	kept := &retention{cfg: &cfg, kept: o.Kept}
	all := &kinds{}
	late := lookup.NewLatecomers(mgr, ctrl.Log.WithName("integrations"))
	for _, kind := range withGroups(enabled) {
		d := kind.d
		r := &reconciler{
			d: d, composed: kind.groups, cfg: &cfg, gate: gate, now: o.Now, kinds: all,
			client: mgr.GetClient(), cache: mgr.GetCache(), live: mgr.GetAPIReader(), status: reconcile.NewWorkloadStatus(mgr.GetClient()),
			events:  reconcile.NewEvents(mgr.GetEventRecorder(d.Framework+"-kueue-controller"), o.Events),
			created: o.Created, ungated: o.Ungated, written: reconcile.NewOverlay[client.Object](o.Now),
			again: make(chan event.GenericEvent, 1), refusals: reconcile.NewRefusals(o.Patience, o.Now),
		}
		kept.again = append(kept.again, r.again)
		if r.childCache, err = newChildCache(ctx, mgr, &o, d); err != nil {
			return fmt.Errorf("integration %s: %w", d.Framework, err)
		}
		if r.composed == nil {
			if err := mgr.GetFieldIndexer().IndexField(ctx, &kueue.Workload{}, byOwner(r.d.GVK), r.ownerNames); err != nil {
				return fmt.Errorf("integration %s: %w", d.Framework, err)
			}
		}
		if err := r.awaitChildren(ctx, mgr, late); err != nil {
			return fmt.Errorf("integration %s: %w", d.Framework, err)
		}
		start := func(ctx context.Context) error {
			if o.Ready != nil {
				if err := o.Ready(ctx, d); err != nil {
					return err
				}
			}
			return r.setup(ctx, mgr, o.Workers(d.GVK.GroupKind().String()))
		}
		if err := late.StartOrWait(ctx, d, start); err != nil {
			return fmt.Errorf("integration %s: %w", d.Framework, err)
		}
	}
	if err := cmp.Or(mgr.Add(kept), newDisabled(mgr, &o).setup(mgr)); err != nil {
		return err
	}
	return late.Setup(ctx)
}

func chainNamed(o client.Object) []string {
	if name := o.GetAnnotations()[kueue.WorkloadSliceNameAnnotation]; name != "" {
		return []string{name}
	}
	return nil
}

func controllerUID(o client.Object) []string {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return []string{string(ref.UID)}
	}
	return nil
}

func (r *reconciler) setup(ctx context.Context, mgr ctrl.Manager, workers int) error {
	switch {
	case r.composed != nil:
		return r.setupGroups(ctx, mgr, workers)
	case r.d.Sets != nil:
		return (&sets{r}).setup(ctx, mgr, workers)
	}
	var err error
	if r.byParent, err = reconcile.NewIndex(ctx, mgr.GetCache(), r.d.New(), r.newList, byParent, controllerUID); err != nil {
		return err
	}
	r.byPrebuilt, err = reconcile.NewIndex(ctx, mgr.GetCache(), r.d.New(), r.newList, byPrebuilt, func(o client.Object) []string {
		if name := r.cfg.Load().PrebuiltName(o); name != "" && r.d.Prebuilt {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.kinds.add(r)
	c, err := r.watch(mgr, r.name(), workers, r.ofWorkload).For(r.d.New()).Build(r)
	if err != nil {
		return err
	}
	if err := r.childWatches.begin(c); err != nil || r.childCache == nil {
		return err
	}
	return r.watchPods(c)
}

// watch begins a controller that reconciles jobs when a Workload, a namespace or a priority class of theirs changes.
func (r *reconciler) watch(mgr ctrl.Manager, name string, workers int, ofWorkload handler.MapFunc) *builder.Builder {
	return ctrl.NewControllerManagedBy(mgr).
		Named(name).
		Watches(&kueue.Workload{}, r.onWorkload(ofWorkload)).
		WatchesRawSource(r.retained(ofWorkload)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace), builder.WithPredicates(relabelled())).
		Watches(&kueue.WorkloadPriorityClass{}, handler.EnqueueRequestsFromMapFunc(r.ofPriorityClass)).
		WithOptions(reconcile.ControllerOptions(workers))
}

// name is the name of the controller: the kind, with its version if its objects run once (spec: 30 §2.2), and with its group for a
// declared kind, whose name may not be unique.
func (r *reconciler) name() string {
	name := strings.ToLower(r.d.GVK.Kind)
	if r.d.Once != nil {
		return r.d.GVK.Version + "_" + name
	}
	if r.d.Declared != nil {
		name += "_" + strings.ReplaceAll(r.d.GVK.Group, ".", "_")
	}
	return name
}

// ownerNames are the names of the owners of our kind. The garbage collector removes the reference to a deleted owner from a
// Workload that pods own as well: then the annotations still name the owner.
func (r *reconciler) ownerNames(w client.Object) []string {
	var names []string
	for _, ref := range w.GetOwnerReferences() {
		if r.isOurs(ref) && (r.d.Groups == nil || (ref.Controller != nil && *ref.Controller)) {
			names = append(names, ref.Name)
		}
	}
	if r.d.Sets != nil && len(names) == 0 && !job.IsRemote(w) && r.isMadeForOurs(w) {
		names = append(names, w.GetAnnotations()[kueue.JobOwnerNameAnnotation])
	}
	return names
}

// isMadeForOurs reports whether a Workload was made for an object of our kind whose pods are queued in groups.
func (r *reconciler) isMadeForOurs(w client.Object) bool {
	return w.GetAnnotations()[kueue.JobOwnerGVKAnnotation] == r.d.GVK.String()
}

// isOurs reports whether a reference is to our kind, in any version.
func (r *reconciler) isOurs(ref metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == r.d.GVK.Group && ref.Kind == r.d.GVK.Kind
}

// ofWorkload returns the jobs that a change of a Workload affects, except the jobs below its owner: its owners, and the jobs that name it.
func (r *reconciler) ofWorkload(ctx context.Context, w client.Object) []ctrlreconcile.Request {
	var out []ctrlreconcile.Request
	for _, name := range r.ownerNames(w) {
		out = append(out, request(w.GetNamespace(), name))
	}
	for _, o := range r.byPrebuilt.Find(ctx, w.GetNamespace(), w.GetName()) {
		out = append(out, request(o.GetNamespace(), o.GetName()))
	}
	return out
}

// ofChild returns the elastic job that controls an object, which has the annotations of the job.
func (r *reconciler) ofChild(_ context.Context, o client.Object) []ctrlreconcile.Request {
	if !job.IsElastic(o) && r.d.ManagedChildren == nil {
		return nil
	}
	return r.ofControlled(o)
}

func (r *reconciler) ofNamespace(ctx context.Context, ns client.Object) []ctrlreconcile.Request {
	return r.find(ctx, ns.GetName())
}

func (r *reconciler) ofPriorityClass(ctx context.Context, class client.Object) []ctrlreconcile.Request {
	return r.find(ctx, "", client.MatchingLabels{kueue.PriorityClassLabel: class.GetName()})
}

// jobOf returns the job of an object: the object, or its group.
func (r *reconciler) jobOf(_ context.Context, o client.Object) []ctrlreconcile.Request {
	name := o.GetName()
	if r.composed != nil {
		name = r.composed.Member(o, r.cfg.Load())
	}
	if name == "" {
		return nil
	}
	return []ctrlreconcile.Request{request(o.GetNamespace(), name)}
}

// find returns the jobs of the objects in the cache, each once; of all namespaces if namespace is empty.
func (r *reconciler) find(ctx context.Context, namespace string, options ...client.ListOption) []ctrlreconcile.Request {
	var out []ctrlreconcile.Request
	seen := map[ctrlreconcile.Request]bool{}
	r.each(ctx, namespace, func(o client.Object) {
		for _, req := range r.jobOf(ctx, o) {
			if !seen[req] {
				out, seen[req] = append(out, req), true
			}
		}
	}, options...)
	return out
}

// each visits the objects in the cache, of all namespaces if namespace is empty. They must not be modified.
func (r *reconciler) each(ctx context.Context, namespace string, visit func(client.Object), options ...client.ListOption) {
	list := r.newList()
	if err := r.cache.List(ctx, list, append(options, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Jobs cannot be listed", "kind", r.d.GVK.Kind)
		return
	}
	_ = apimeta.EachListItem(list, func(o runtime.Object) error {
		visit(o.(client.Object))
		return nil
	})
}

func (r *reconciler) newList() client.ObjectList { return r.d.NewList().(client.ObjectList) }

func request(namespace, name string) ctrlreconcile.Request {
	return ctrlreconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}
}

// relabelled selects namespaces whose labels change.
func relabelled() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !labels.Equals(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
		},
	}
}
