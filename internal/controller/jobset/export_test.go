package jobset

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	plan "github.com/berth-project/berth/internal/plan/jobset"
)

// NewReconciler is the reconciler without a queue, for the benchmark.
func NewReconciler(ctx context.Context, c plan.Config, cached client.Client, source cache.Cache, o Options) (ctrlreconcile.Reconciler, error) {
	j, err := newJobs(ctx, source)
	if err != nil {
		return nil, err
	}
	m, err := registerMetrics()
	return &reconciler{plan: c, client: cached, live: cached, jobs: j, pods: o.Pods, now: o.Now, metrics: m, written: newWritten(o.Now)}, err
}
