// Package controller runs TrainJobs: it stores a snapshot of the runtime, applies the
// JobSet and its companions, and derives the status from the JobSet.
//
//	TrainJob ──────────┐                             ┌─ snapshot of the runtime, once
//	snapshot or runtime┼─► observation ─► plan.Draft ┼─ ConfigMaps, Secrets, pod group
//	JobSet ────────────┘        │                    └─ JobSet, last
//	                            └─► plan.Status ─► status, one patch
//
// A JobSet that runs is never changed: changes of the TrainJob take effect when it is
// suspended. Every write can be repeated, and unchanged objects are not applied again.
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
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/runtimes"
)

const recheck = 5 * time.Minute

// Options configure the controllers of TrainJobs and runtimes.
type Options struct {
	Config *plan.Config
	// KeepDeleted fails a TrainJob whose unfinished JobSet is deleted. Otherwise the JobSet is created again.
	KeepDeleted bool
	// CA is the Secret with the certificate authority of the progress server, in key ca.crt. It is read if Config.Progress is set.
	CA client.ObjectKey
	// Workers returns the number of concurrent reconciles of a kind, given as Kind.group.
	Workers func(groupKind string) int
	// Patience is how long the API server may refuse objects of a TrainJob with quota before it fails; 0 is reconcile.Patience.
	Patience time.Duration
	Runtimes *runtimes.Store
	// Recheck is the interval at which the ConfigMaps and Secrets of a TrainJob that runs are repaired; 0 is 5 minutes. They are not
	// watched, because that takes the right to read them in all namespaces (docs/rights.md).
	Recheck time.Duration
	Now     func() time.Time
}

type reconciler struct {
	o      *Options
	client client.Client
	live   client.Reader
	events record.EventRecorder
	// groups are the kinds of pod groups that the API server served at the start.
	groups map[schema.GroupVersionKind]bool
	// prunesPatches and prunesSnapshot report that the CRD that is served, an older one, does not have status.runtimePatches
	// (spec: 50 §4.13.6) and status.runtimeSnapshot.
	prunesPatches  atomic.Bool
	prunesSnapshot atomic.Bool

	newDraft func(*plan.Input) (*plan.Draft, error)
	memory   *memory
	// refusals of objects of TrainJobs, by the UID of the TrainJob.
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
		Watches(&jobsetv1alpha2.JobSet{}, r.jobSetHandler(owned)).
		WithOptions(reconcile.ControllerOptions(o.Workers("TrainJob.trainer.kubeflow.org")))
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
		b = b.Watches(&nodev1.RuntimeClass{}, handler.EnqueueRequestsFromMapFunc(r.suspendedTrainJobs))
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

// jobSetHandler enqueues the owners of JobSets, and remembers JobSets that are deleted: a deleted JobSet differs from one that does not
// exist yet (spec: 50 §4.2).
func (r *reconciler) jobSetHandler(owned handler.EventHandler) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]
	return handler.Funcs{
		CreateFunc: owned.Create, UpdateFunc: owned.Update, GenericFunc: owned.Generic,
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if jobset, ok := e.Object.(*jobsetv1alpha2.JobSet); ok {
				r.memory.noteDeleted(jobset)
			}
			owned.Delete(ctx, e, q)
		},
	}
}

func (r *reconciler) suspendedTrainJobs(ctx context.Context, _ client.Object) []ctrlreconcile.Request {
	return reconcile.Matching(ctx, r.client, &trainerv1alpha1.TrainJobList{}, "TrainJobs", plan.IsSuspended)
}
