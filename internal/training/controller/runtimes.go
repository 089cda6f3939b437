package controller

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/reconcile"
)

// setupRuntimes adds the controllers that remove the finalizer of earlier versions from runtimes.
func setupRuntimes(mgr ctrl.Manager, workers func(string) int) error {
	hasFinalizer := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return controllerutil.ContainsFinalizer(o, trainerv1alpha1.ResourceInUseFinalizer)
	}))
	for _, kind := range []struct {
		name, groupKind string
		object          client.Object
	}{
		{"trainingruntime_controller", "TrainingRuntime.trainer.kubeflow.org", &trainerv1alpha1.TrainingRuntime{}},
		{"clustertrainingruntime_controller", "ClusterTrainingRuntime.trainer.kubeflow.org", &trainerv1alpha1.ClusterTrainingRuntime{}},
	} {
		remove := ctrlreconcile.Func(func(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
			return removeFinalizer(ctx, mgr.GetClient(), req, kind.object).Result(ctx)
		})
		err := ctrl.NewControllerManagedBy(mgr).Named(kind.name).For(kind.object, hasFinalizer).
			WithOptions(reconcile.ControllerOptions(workers(kind.groupKind))).Complete(remove)
		if err != nil {
			return fmt.Errorf("controller of %s: %w", kind.groupKind, err)
		}
	}
	return nil
}

func removeFinalizer(ctx context.Context, c client.Client, req ctrlreconcile.Request, kind client.Object) reconcile.Outcome {
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
