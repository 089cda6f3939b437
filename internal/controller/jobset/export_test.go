package jobset

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	plan "github.com/berth-project/berth/internal/plan/jobset"
)

// NewReconciler is the reconciler without a queue, for the benchmark.
func NewReconciler(c plan.Config, cached client.Client, o Options) (ctrlreconcile.Reconciler, error) {
	m, err := registerMetrics()
	return &reconciler{plan: c, client: cached, live: cached, pods: o.Pods, now: o.Now, metrics: m, written: newWritten(o.Now)}, err
}
