package controller

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/reconcile"
)

// setupRuntimes adds the controllers that remove a finalizer which runtimes once had.
func setupRuntimes(mgr ctrl.Manager, workers func(string) int) error {
	held := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return controllerutil.ContainsFinalizer(o, trainerv1alpha1.ResourceInUseFinalizer)
	}))
	for _, kind := range []struct {
		name, groupKind string
		object          client.Object
	}{
		{"trainingruntime_controller", "TrainingRuntime.trainer.kubeflow.org", &trainerv1alpha1.TrainingRuntime{}},
		{"clustertrainingruntime_controller", "ClusterTrainingRuntime.trainer.kubeflow.org", &trainerv1alpha1.ClusterTrainingRuntime{}},
	} {
		release := ctrlreconcile.Func(func(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
			return releaseRuntime(ctx, mgr.GetClient(), req, kind.object).Result(ctx)
		})
		err := ctrl.NewControllerManagedBy(mgr).Named(kind.name).For(kind.object, held).
			WithOptions(controller.Options{MaxConcurrentReconciles: workers(kind.groupKind)}).Complete(release)
		if err != nil {
			return fmt.Errorf("controller of %s: %w", kind.groupKind, err)
		}
	}
	return nil
}

func releaseRuntime(ctx context.Context, c client.Client, req ctrlreconcile.Request, kind client.Object) reconcile.Outcome {
	runtime := kind.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, req.NamespacedName, runtime); err != nil {
		return reconcile.Retry(client.IgnoreNotFound(err))
	}
	next := runtime.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(next, trainerv1alpha1.ResourceInUseFinalizer) {
		return reconcile.Done()
	}
	lock := client.MergeFromWithOptions(runtime, client.MergeFromWithOptimisticLock{})
	return reconcile.Retry(client.IgnoreNotFound(c.Patch(ctx, next, lock, fieldOwner)))
}
