// Package follow moves every Workload through its life: deadlines and backoffs, admission checks, stopped queues, deactivation,
// retention. lifecycle.Follow decides; this package reads its input, makes at most one write, and emits the
// events. spec: 10 §4.10 to §4.12.
package follow

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/devices"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	"github.com/berth-project/berth/internal/workload/plan/slices"
)

// Follower makes the writes of lifecycle.Follow.
type Follower struct {
	Client client.Client
	Live   client.Reader // reads past the cache, of any kind
	Status *reconcile.WorkloadStatus
	Events reconcile.Events
	Rules  lifecycle.Rules
	Now    func() time.Time
	// Slices finishes replaced Workloads: feature gate ElasticJobsViaWorkloadSlices.
	Slices bool
	// Devices returns why the devices that the pods of a pending Workload claim cannot be charged, nil if they can.
	Devices func(*kueue.Workload) *devices.Problem
	// Recount, unless nil, has an event after devices may be charged in another way: Workloads that this affects are requeued. It is about a
	// ResourceClaimTemplate, or about all Workloads if it has another object.
	Recount <-chan event.GenericEvent
	// Changed, unless nil, brings new rules while the manager runs: every Workload is then requeued.
	Changed <-chan lifecycle.Rules

	current atomic.Pointer[lifecycle.Rules]
	began   sync.Once
	since   time.Time // of the first reconcile
}

// Setup adds the controller to the manager.
func (f *Follower) Setup(mgr ctrl.Manager, workers int) error {
	ofQueues := builder.WithPredicates(reconcile.EditedLater()) // a deletion changes the generation as well
	f.current.Store(&f.Rules)
	again := make(chan event.GenericEvent, 1)
	if f.Changed != nil {
		if err := mgr.Add(&changes{f: f, again: again}); err != nil {
			return err
		}
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("workload").For(&kueue.Workload{})
	if f.Recount != nil {
		b = b.WatchesRawSource(source.Channel(f.Recount, handler.EnqueueRequestsFromMapFunc(f.claiming)))
	}
	return b.
		WatchesRawSource(source.Channel(again, handler.EnqueueRequestsFromMapFunc(f.all))).
		Watches(&kueue.ClusterQueue{}, handler.EnqueueRequestsFromMapFunc(f.under), ofQueues).
		Watches(&kueue.ClusterQueue{}, handler.EnqueueRequestsFromMapFunc(f.gatedUnder), builder.WithPredicates(activated)).
		Watches(&kueue.LocalQueue{}, handler.EnqueueRequestsFromMapFunc(f.inside), ofQueues).
		WithOptions(reconcile.ControllerOptions(workers)).
		Complete(f)
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads/status,verbs=update;patch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues;localqueues,verbs=get;list;watch

// Reconcile decides about one Workload and makes at most one write.
func (f *Follower) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	var wl kueue.Workload
	if found, err := f.get(ctx, req.NamespacedName, &wl); err != nil || !found {
		return ctrlreconcile.Result{}, err
	}
	world, old, err := f.readWorld(ctx, &wl)
	if err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	now := metav1.NewTime(f.Now())
	f.began.Do(func() { f.since = now.Time })
	world.Since = f.since
	next := reconcile.CopyStatus(&wl)
	todo := f.current.Load().Follow(next, world, now)
	if err := f.finishReplaced(ctx, &wl, old, &todo, now); err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	if err := f.forsaken(ctx, &wl, &todo, now); err != nil {
		return ctrlreconcile.Result{}, err
	}
	told, err := f.write(ctx, &wl, next, todo)
	if err != nil {
		return reconcile.Retry(client.IgnoreNotFound(err)).Result(ctx)
	}
	for _, e := range todo.Events {
		if e.Warning {
			f.Events.Warning(told, e.Reason, e.Note)
		} else {
			f.Events.Normal(told, e.Reason, e.Note)
		}
	}
	if todo.Wake.IsZero() {
		return ctrlreconcile.Result{}, nil
	}
	return ctrlreconcile.Result{RequeueAfter: max(todo.Wake.Sub(now.Time), time.Millisecond)}, nil
}

// readWorld reads what decides about a Workload beside itself, and the slice that it names as replaced.
func (f *Follower) readWorld(ctx context.Context, wl *kueue.Workload) (world lifecycle.World, old *kueue.Workload, err error) {
	if world, err = f.readQueues(ctx, wl); err != nil {
		return world, nil, err
	}
	if world.Dispatchers, err = f.dispatchers(ctx, wl); err != nil {
		return world, nil, err
	}
	if f.Devices != nil {
		if p := f.Devices(wl); p != nil && !p.Reading {
			world.Devices = p.Text
		}
	}
	if old, err = f.replaced(ctx, wl); old != nil && slices.HasReplaced(wl, old) {
		world.Replaced = old
	}
	return world, old, err
}

// changes is a runnable that stores new rules, on every replica.
type changes struct {
	f     *Follower
	again chan<- event.GenericEvent
}

func (c *changes) NeedLeaderElection() bool { return false }

func (c *changes) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case rules := <-c.f.Changed:
			c.f.current.Store(&rules)
			select {
			case c.again <- event.GenericEvent{Object: &kueue.Workload{}}: // stands for all Workloads
			default: // all are about to be requeued
			}
		}
	}
}

func (f *Follower) all(ctx context.Context, _ client.Object) []ctrlreconcile.Request {
	return f.workloads(ctx, "", func(*kueue.Workload) bool { return true })
}

// claiming returns the Workloads whose devices cannot be charged, or could not the last time: those with claims from a template, or all.
func (f *Follower) claiming(ctx context.Context, o client.Object) []ctrlreconcile.Request {
	changed, namespace := devices.Changed{All: true}, ""
	if t, ok := o.(*resourcev1.ResourceClaimTemplate); ok {
		changed, namespace = devices.Changed{Templates: sets.New(client.ObjectKeyFromObject(t))}, t.Namespace
	}
	return f.workloads(ctx, namespace, func(wl *kueue.Workload) bool {
		return changed.Has(wl) && (lifecycle.IsRejected(wl) || f.Devices(wl) != nil)
	})
}

// readQueues reads the queues of a Workload: its LocalQueue, and the ClusterQueue of its admission or else of the LocalQueue.
func (f *Follower) readQueues(ctx context.Context, wl *kueue.Workload) (lifecycle.World, error) {
	var w lifecycle.World
	name := kueue.ClusterQueueReference("")
	if wl.Spec.QueueName != "" {
		lq := &kueue.LocalQueue{}
		found, err := f.get(ctx, entranceOf(wl), lq)
		if err != nil {
			return w, err
		}
		if found {
			w.LocalQueue, name = lq, lq.Spec.ClusterQueue
		}
	}
	if a := wl.Status.Admission; a != nil {
		name = a.ClusterQueue
	}
	if name == "" {
		return w, nil
	}
	cq := &kueue.ClusterQueue{}
	found, err := f.get(ctx, types.NamespacedName{Name: string(name)}, cq)
	if found {
		w.ClusterQueue = cq
	}
	return w, err
}

// dispatchers returns the MultiKueue checks of a Workload. A deleted check counts as one if it has been
// answered and the Workload has a cluster.
func (f *Follower) dispatchers(ctx context.Context, wl *kueue.Workload) (names []kueue.AdmissionCheckReference, err error) {
	if !lifecycle.MayRunElsewhere(wl) {
		return nil, nil
	}
	for _, c := range wl.Status.AdmissionChecks {
		check := &kueue.AdmissionCheck{}
		found, err := f.get(ctx, types.NamespacedName{Name: string(c.Name)}, check)
		if err != nil {
			return nil, err
		}
		deleted := !found && c.State != kueue.CheckStatePending && wl.Status.ClusterName != ""
		if deleted || check.Spec.ControllerName == kueue.MultiKueueControllerName {
			names = append(names, c.Name)
		}
	}
	return names, nil
}

// get reads from the cache, without a copy: the object must not be changed.
func (f *Follower) get(ctx context.Context, key types.NamespacedName, into client.Object) (found bool, err error) {
	err = f.Client.Get(ctx, key, into, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// write makes the write of todo, if any, and returns the Workload for its events.
func (f *Follower) write(ctx context.Context, wl, next *kueue.Workload, todo lifecycle.Followed) (*kueue.Workload, error) {
	switch {
	case todo.Status:
		return f.Status.Strict(ctx, next)
	case todo.Deactivate, todo.Unfinalize:
		next = next.DeepCopy() // the answer is decoded into it
		if todo.Deactivate {
			next.Spec.Active = new(false)
		} else {
			controllerutil.RemoveFinalizer(next, kueue.ResourceInUseFinalizer)
		}
		return next, named(f.Client.Patch(ctx, next, client.MergeFromWithOptions(wl, client.MergeFromWithOptimisticLock{})), "updating", wl)
	case todo.Delete:
		uid, version := wl.UID, wl.ResourceVersion
		err := f.Client.Delete(ctx, next, client.Preconditions{UID: &uid, ResourceVersion: &version},
			client.PropagationPolicy(metav1.DeletePropagationBackground))
		return wl, named(err, "deleting", wl)
	}
	return wl, nil
}

func named(err error, what string, wl *kueue.Workload) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s workload %s/%s: %w", what, wl.Namespace, wl.Name, err)
}

// under maps a ClusterQueue to the Workloads that are pending in it or hold its quota.
func (f *Follower) under(ctx context.Context, cq client.Object) []ctrlreconcile.Request {
	entrance := entrances(ctx, f.Client, cq)
	return f.workloads(ctx, "", func(wl *kueue.Workload) bool {
		a := wl.Status.Admission
		return entrance[entranceOf(wl)] || (a != nil && string(a.ClusterQueue) == cq.GetName())
	})
}

// activated passes ClusterQueues that become active or inactive.
var activated = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		is := func(o client.Object) bool {
			return apimeta.IsStatusConditionFalse(o.(*kueue.ClusterQueue).Status.Conditions, kueue.ClusterQueueActive)
		}
		return is(e.ObjectOld) != is(e.ObjectNew)
	},
}

// gatedUnder maps a ClusterQueue to the gated Workloads in it: the engine does not evaluate them, and so does not report that it is inactive.
func (f *Follower) gatedUnder(ctx context.Context, cq client.Object) []ctrlreconcile.Request {
	entrance := entrances(ctx, f.Client, cq)
	return f.workloads(ctx, "", func(wl *kueue.Workload) bool {
		return wl.Annotations[kueue.AdmissionGatedByAnnotation] != "" && entrance[entranceOf(wl)]
	})
}

// entranceOf returns the LocalQueue that a Workload names.
func entranceOf(wl *kueue.Workload) types.NamespacedName {
	return types.NamespacedName{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
}

// entrances returns the LocalQueues of a ClusterQueue, of a cache.
func entrances(ctx context.Context, c client.Reader, cq client.Object) map[types.NamespacedName]bool {
	var queues kueue.LocalQueueList
	if err := c.List(ctx, &queues, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing LocalQueues")
	}
	out := map[types.NamespacedName]bool{}
	for i := range queues.Items {
		if string(queues.Items[i].Spec.ClusterQueue) == cq.GetName() {
			out[client.ObjectKeyFromObject(&queues.Items[i])] = true
		}
	}
	return out
}

func (f *Follower) inside(ctx context.Context, lq client.Object) []ctrlreconcile.Request {
	return f.workloads(ctx, lq.GetNamespace(), func(wl *kueue.Workload) bool {
		return string(wl.Spec.QueueName) == lq.GetName()
	})
}

func (f *Follower) workloads(ctx context.Context, namespace string, match func(*kueue.Workload) bool) []ctrlreconcile.Request {
	return reconcile.Matching(ctx, f.Client, &kueue.WorkloadList{}, "Workloads", match, client.InNamespace(namespace))
}
