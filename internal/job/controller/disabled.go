package controller

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// disabled ends the Workloads of jobs whose kind was removed from the configuration: no reconciler finishes them or answers their eviction, so they
// would keep their quota. The jobs stay as they are, as the manager has no right to change them any more.
type disabled struct {
	Options
	client client.Client
	live   client.Reader
	status *reconcile.WorkloadStatus
}

func newDisabled(mgr ctrl.Manager, o *Options) *disabled {
	return &disabled{Options: *o, client: mgr.GetClient(), live: mgr.GetAPIReader(), status: reconcile.NewWorkloadStatus(mgr.GetClient())}
}

func (r *disabled) setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("disabled_kinds").
		For(&kueue.Workload{}, builder.WithPredicates(predicate.NewPredicateFuncs(r.isLeft))).
		WithOptions(reconcile.ControllerOptions(1)).
		Complete(r)
	if err != nil {
		return err
	}
	return mgr.Add(r)
}

func (r *disabled) isLeft(w client.Object) bool { return r.Config.Kinds.AreOff(w.GetOwnerReferences()) }

// Reconcile makes the next write for a Workload.
func (r *disabled) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	var w kueue.Workload
	if err := r.client.Get(ctx, req.NamespacedName, &w); err != nil || !r.isLeft(&w) {
		return reconcile.Retry(client.IgnoreNotFound(err)).Result(ctx)
	}
	var err error
	switch a := decide.LeaveKind(r.Config, &w, metav1.NewTime(r.Now())); a.Verb {
	case job.WriteStatus:
		owner := w.OwnerReferences[0]
		ctrl.LoggerFrom(ctx).Info("A workload ends, since the kind of its job is not in integrations.frameworks; the job stays as it is",
			"job", owner.Kind+"/"+owner.Name, "hadQuota", lifecycle.IsReserved(&w))
		_, err = r.status.Strict(ctx, a.Workload)
	case job.UpdateWorkload:
		err = named(r.client.Patch(ctx, a.Workload, pinned(&w)), "updating workload", &w)
	default:
	}
	return reconcile.Retry(client.IgnoreNotFound(err)).Result(ctx)
}

// retryAfter is the pause after a failure to release pods.
const retryAfter = time.Minute

// Start releases objects that run once, such as pods, from the finalizer by which their kind keeps them: of a kind that is not enabled no
// reconciler does it, and they could not be deleted.
func (r *disabled) Start(ctx context.Context) error {
	for _, d := range r.Descriptors {
		if enabled, known := r.Config.Kinds[d.GVK]; d.Once == nil || enabled || !known {
			continue
		}
		for {
			err := r.release(ctx, d)
			if err == nil || ctx.Err() != nil {
				break
			}
			ctrl.Log.WithName("integrations").Error(err, "The finalizer "+kueue.ManagedFinalizer+" stays: remove it by hand", "kind", d.GVK.Kind)
			if apierrors.IsForbidden(err) {
				break
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(retryAfter):
			}
		}
	}
	return nil
}

// release releases the marked objects of a kind that is not enabled.
func (r *disabled) release(ctx context.Context, d *job.Descriptor) error {
	for next := ""; ; {
		list := d.NewList().(client.ObjectList)
		if err := r.live.List(ctx, list, client.MatchingLabels{kueue.ManagedLabel: "true"}, client.Limit(500), client.Continue(next)); err != nil {
			return err
		}
		err := apimeta.EachListItem(list, func(item runtime.Object) error {
			o := item.(job.Object)
			free := o.DeepCopyObject().(job.Object)
			if !d.Once.Finalize(free) {
				return nil
			}
			return named(client.IgnoreNotFound(r.client.Patch(ctx, free, pinned(o))), "updating "+d.GVK.Kind, o)
		})
		if next = list.GetContinue(); err != nil || next == "" {
			return err
		}
	}
}
