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

// retention is a runnable that takes another retention of deactivated jobs, on every replica. Who decides meanwhile does so by
// the configuration that was there when they began.
type retention struct {
	cfg   *atomic.Pointer[job.Config]
	kept  <-chan *time.Duration
	again []chan event.GenericEvent // of each kind
}

// NeedLeaderElection is false.
func (*retention) NeedLeaderElection() bool { return false }

// Start takes what comes until ctx ends.
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
			case again <- event.GenericEvent{Object: &kueue.Workload{}}: // which stands for all of them
			default: // they are about to be looked at
			}
		}
	}
}

// retained brings back the jobs of the Workloads that Berth deactivated, when their retention changes. of finds the jobs of a
// Workload.
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
