// Package controller runs TrainJobs: it keeps each one's runtime as it was when the
// TrainJob began, makes its JobSet and what goes with it, and mirrors how the
// JobSet fares.
//
//	TrainJob ──────────┐                        ┌─ snapshot of the runtime, once
//	snapshot or runtime┼─► gather ─► train.Build┼─ ConfigMaps, Secrets, pod group
//	JobSet ────────────┘                  │     └─ JobSet, last
//	                                      └─► train.Status ─► status, one patch
//
// A JobSet that runs is never rewritten: what the TrainJob says then has to wait
// until it is suspended. Every write can be repeated; an object that has not
// changed since it was applied is not applied again.
package controller

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	nodev1 "k8s.io/api/node/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/runtimes"
)

// Delays of a TrainJob whose reconcile fails again and again.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// recheck is the default of Options.Recheck.
const recheck = 5 * time.Minute

// Options say how TrainJobs are run.
type Options struct {
	// Config is how they are planned.
	Config *plan.Config
	// KeepDeleted fails a TrainJob whose unfinished JobSet somebody deletes. Otherwise the JobSet is made again.
	KeepDeleted bool
	// CA is the Secret with the authority of the progress server, in key ca.crt. It is read if Config.Progress is set.
	CA client.ObjectKey
	// Workers is how many objects of a kind, given as Kind.group, are handled at once.
	Workers func(groupKind string) int
	// Patience is how long the API server refuses what a TrainJob with quota needs before the TrainJob fails; 0 is
	// reconcile.Patience.
	Patience time.Duration
	// Runtimes reads runtimes.
	Runtimes *runtimes.Store
	// Recheck is how often the ConfigMaps and Secrets of a TrainJob that runs are compared with what they are to be, and made
	// again if they are gone: they are not watched, because that takes the right to read all of the cluster (docs/rights.md).
	// 0 is every 5 minutes.
	Recheck time.Duration
	// Now is the clock.
	Now func() time.Time
}

// reconciler handles TrainJobs.
type reconciler struct {
	o      *Options
	client client.Client
	live   client.Reader
	events record.EventRecorder
	// groups are the kinds of pod groups that the API server had at the start.
	groups map[schema.GroupVersionKind]bool
	// prunes says that the CRD that is served, an older one, knows no status.runtimePatches (spec: 50 §4.13.6).
	prunes atomic.Bool
	// prunesSnapshot says the same of status.runtimeSnapshot.
	prunesSnapshot atomic.Bool

	newDraft func(*plan.Input) (*plan.Draft, error)
	memory   *memory
	// refusals are those of what TrainJobs need, by their UID
	refusals *reconcile.Refusals
}

// Setup adds the controllers of TrainJobs and of runtimes to the manager.
func Setup(mgr ctrl.Manager, o Options) error {
	o.Recheck = cmp.Or(o.Recheck, recheck)
	events, err := newRecorder(mgr)
	if err != nil {
		return err
	}
	r := &reconciler{
		o: &o, client: mgr.GetClient(), live: mgr.GetAPIReader(), groups: map[schema.GroupVersionKind]bool{},
		events: events, newDraft: plan.NewDraft, memory: newMemory(), refusals: reconcile.NewRefusals(o.Patience, o.Now),
	}
	owned := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &trainerv1alpha1.TrainJob{}, handler.OnlyControllerOwner())
	b := ctrl.NewControllerManagedBy(mgr).
		Named("trainjob_controller").
		For(&trainerv1alpha1.TrainJob{}).
		Watches(&jobsetv1alpha2.JobSet{}, r.noting(owned)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Workers("TrainJob.trainer.kubeflow.org"),
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrlreconcile.Request](firstRetry, lastRetry),
		})
	for _, gvk := range []schema.GroupVersionKind{plan.CoschedulingPodGroup, plan.VolcanoPodGroup} {
		_, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if apimeta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("looking for %s: %w", gvk.GroupKind(), err)
		}
		r.groups[gvk] = true
		b = b.Watches(metadataOf(gvk), owned, builder.OnlyMetadata)
	}
	if len(r.groups) > 0 {
		b = b.Watches(&nodev1.RuntimeClass{}, handler.EnqueueRequestsFromMapFunc(r.suspendedJobs))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("controller of TrainJobs: %w", err)
	}
	return setupRuntimes(mgr, o.Workers)
}

func metadataOf(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(gvk)
	return m
}

// noting is the handler of JobSets, which remembers how those that are deleted had ended: one that is gone must not be
// taken for one that was never made (spec: 50 §4.2).
func (r *reconciler) noting(owned handler.EventHandler) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]
	return handler.Funcs{
		CreateFunc: owned.Create, UpdateFunc: owned.Update, GenericFunc: owned.Generic,
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if jobset, ok := e.Object.(*jobsetv1alpha2.JobSet); ok {
				r.memory.deleted(jobset)
			}
			owned.Delete(ctx, e, q)
		},
	}
}

// suspendedJobs finds the TrainJobs whose pod groups may still change.
func (r *reconciler) suspendedJobs(ctx context.Context, _ client.Object) []ctrlreconcile.Request {
	var list trainerv1alpha1.TrainJobList
	if err := r.client.List(ctx, &list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "TrainJobs cannot be listed")
		return nil
	}
	var out []ctrlreconcile.Request
	for i := range list.Items {
		if plan.IsSuspended(&list.Items[i]) {
			out = append(out, ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}
