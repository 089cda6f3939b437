package controller

import (
	"context"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// retention is a runnable that applies a new retention of deactivated jobs, on every replica. Running reconciles keep the
// configuration that they began with.
type retention struct {
	cfg   *atomic.Pointer[job.Config]
	kept  <-chan *time.Duration
	again []chan event.GenericEvent // of each kind
}

// NeedLeaderElection is false.
func (*retention) NeedLeaderElection() bool { return false }

// Start applies new values until ctx ends.
func (r *retention) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case kept := <-r.kept:
			next := *r.cfg.Load()
			next.DeleteDeactivatedAfter = kept
			r.cfg.Store(&next)
		}
		for _, again := range r.again {
			select {
			case again <- event.GenericEvent{Object: &kueue.Workload{}}: // stands for all Workloads
			default: // a reconcile of all is pending
			}
		}
	}
}

// retained enqueues the jobs of deactivated Workloads when their retention changes. of returns the jobs of a Workload.
func (r *reconciler) retained(of handler.MapFunc) source.Source {
	return source.Channel(r.again, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []ctrlreconcile.Request {
		var list kueue.WorkloadList
		if err := r.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Workloads cannot be listed")
			return nil
		}
		var out []ctrlreconcile.Request
		for i := range list.Items {
			if w := &list.Items[i]; !lifecycle.IsActive(w) && lifecycle.DeactivatedByBerth(w) {
				out = append(out, of(ctx, w)...)
			}
		}
		return out
	}))
}
