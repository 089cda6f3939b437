package controller

import (
	"context"
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// NewReconciler is the reconciler without a queue, for the benchmark.
func NewReconciler(ctx context.Context, c plan.Config, cached client.Client, source cache.Cache, o Options) (ctrlreconcile.Reconciler, error) {
	m, err := registerMetrics()
	if err != nil {
		return nil, err
	}
	r := &reconciler{plan: c, client: cached, live: cached, jobs: newJobs(), pods: o.Pods, now: o.Now, metrics: m, written: newWritten(o.Now), turns: newTurns()}
	informer, err := source.GetInformer(ctx, &batchv1.Job{})
	if err != nil {
		return nil, err
	}
	follow, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.jobs.put(o.(client.Object)) },
		UpdateFunc: func(_, o any) { r.jobs.put(o.(client.Object)) },
	})
	if err != nil {
		return nil, err
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), follow.HasSynced) {
		return nil, errors.New("the Jobs did not come")
	}
	return r, nil
}
