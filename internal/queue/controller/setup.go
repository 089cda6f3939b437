package controller

import (
	"context"
	"slices"
	"sync/atomic"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Workers is the number of concurrent reconciles of each kind.
type Workers struct {
	ClusterQueue, LocalQueue, Cohort, ResourceFlavor int
}

type queue = workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]

// Setup adds the controllers to the manager. The engine reports which figures changed; none are
// written before known reports that the engine knows all objects that exist. variants is the feature gate ConcurrentAdmission.
func Setup(mgr ctrl.Manager, e *engine.Engine, known func() bool, variants bool, workers Workers) error {
	c, turns := mgr.GetClient(), newTurns()
	ofClusterQueues, ofLocalQueues, ofCohorts := newPace(turns, known), newPace(turns, known), newPace(turns, known)
	clusterTouched, localTouched, cohortTouched := &touched{pace: ofClusterQueues}, &touched{pace: ofLocalQueues}, &touched{pace: ofCohorts}
	e.OnTouched(func(queues []state.Name, cohorts []string) {
		for _, n := range queues {
			if n.Namespace == "" {
				clusterTouched.add(types.NamespacedName{Name: n.Name})
			} else {
				localTouched.add(types.NamespacedName(n))
			}
		}
		for _, name := range cohorts {
			cohortTouched.add(types.NamespacedName{Name: name})
		}
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("clusterqueue").For(&kueue.ClusterQueue{}, builder.WithPredicates(editedOrUnheld)).
		Watches(&kueue.ResourceFlavor{}, handler.EnqueueRequestsFromMapFunc(usersOf(c, convert.NamesFlavor))).
		Watches(&kueue.AdmissionCheck{}, handler.EnqueueRequestsFromMapFunc(usersOf(c, convert.NamesCheck))).
		Watches(&kueue.Topology{}, handler.EnqueueRequestsFromMapFunc(placedBy(c))).
		Watches(&kueue.Cohort{}, handler.EnqueueRequestsFromMapFunc(inCohorts(c)), edited).
		WatchesRawSource(clusterTouched.source()).
		WithOptions(reconcile.ControllerOptions(workers.ClusterQueue)).
		Complete(&clusterQueues{writer{c, e, ofClusterQueues}, variants})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("localqueue").For(&kueue.LocalQueue{}, edited).
		Watches(&kueue.ClusterQueue{}, handler.EnqueueRequestsFromMapFunc(entrancesTo(c)), builder.WithPredicates(turned)).
		WatchesRawSource(localTouched.source()).
		WithOptions(reconcile.ControllerOptions(workers.LocalQueue)).
		Complete(&localQueues{writer{c, e, ofLocalQueues}})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("cohort").For(&kueue.Cohort{}, edited).
		WatchesRawSource(cohortTouched.source()).
		WithOptions(reconcile.ControllerOptions(workers.Cohort)).
		Complete(&cohorts{writer{c, e, ofCohorts}})
	if err != nil {
		return err
	}
	return setupHeld(mgr, workers.ResourceFlavor)
}

// edited passes updates that change more than the status; a deletion changes the generation as well.
var edited = builder.WithPredicates(reconcile.Edited())

// editedOrUnheld passes these, and a ClusterQueue that lost its finalizer, to add it again. spec: 10 §3.
var editedOrUnheld = predicate.Or[client.Object](reconcile.Edited(), predicate.NewPredicateFuncs(func(o client.Object) bool {
	return o.GetDeletionTimestamp() == nil && !controllerutil.ContainsFinalizer(o, kueue.ResourceInUseFinalizer)
}))

// turned passes edits, and updates of a ClusterQueue that became active or inactive.
var turned = reconcile.EditedOr(func(cq *kueue.ClusterQueue) bool {
	return apimeta.IsStatusConditionTrue(cq.Status.Conditions, kueue.ClusterQueueActive)
})

// touched puts the objects whose figures changed into a controller's queue, with low priority, for the
// time when they may be written.
type touched struct {
	pace  *pace
	queue atomic.Pointer[queue]
}

func (t *touched) source() source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		t.queue.Store(&q)
		return nil
	})
}

func (t *touched) add(name types.NamespacedName) {
	q := t.queue.Load()
	if q == nil {
		return
	}
	request, after := ctrlreconcile.Request{NamespacedName: name}, t.pace.changed(name)
	if ranked, ok := (*q).(priorityqueue.PriorityQueue[ctrlreconcile.Request]); ok {
		ranked.AddWithOpts(priorityqueue.AddOpts{After: after, Priority: new(handler.LowPriority)}, request)
		return
	}
	(*q).AddAfter(request, after)
}

// usersOf maps a flavor or a check to the ClusterQueues that name it.
func usersOf(c client.Client, names func(*kueue.ClusterQueue, string) bool) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []ctrlreconcile.Request {
		return reconcile.Matching(ctx, c, &kueue.ClusterQueueList{}, "ClusterQueues", func(cq *kueue.ClusterQueue) bool { return names(cq, o.GetName()) })
	}
}

// inCohorts maps a Cohort to the ClusterQueues that may be below it.
func inCohorts(c client.Client) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) []ctrlreconcile.Request {
		return reconcile.Matching(ctx, c, &kueue.ClusterQueueList{}, "ClusterQueues", func(cq *kueue.ClusterQueue) bool { return cq.Spec.CohortName != "" })
	}
}

// placedBy maps a Topology to the ClusterQueues with flavors that name it.
func placedBy(c client.Client) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []ctrlreconcile.Request {
		var flavors kueue.ResourceFlavorList
		if err := c.List(ctx, &flavors, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing ResourceFlavors")
			return nil
		}
		return reconcile.Matching(ctx, c, &kueue.ClusterQueueList{}, "ClusterQueues", func(cq *kueue.ClusterQueue) bool {
			return slices.ContainsFunc(flavors.Items, func(f kueue.ResourceFlavor) bool {
				return string(f.Spec.TopologyName) == o.GetName() && convert.NamesFlavor(cq, f.Name)
			})
		})
	}
}

// entrancesTo maps a ClusterQueue to the LocalQueues that point to it.
func entrancesTo(c client.Client) handler.MapFunc {
	return func(ctx context.Context, cq client.Object) []ctrlreconcile.Request {
		return reconcile.Matching(ctx, c, &kueue.LocalQueueList{}, "LocalQueues", func(lq *kueue.LocalQueue) bool {
			return string(lq.Spec.ClusterQueue) == cq.GetName()
		})
	}
}
