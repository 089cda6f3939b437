package lookup

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"sigs.k8s.io/controller-runtime/pkg/client"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	trainingplan "github.com/berth-project/berth/internal/training/plan"
)

// BegunRuntime reads the runtime that a TrainJob began with, which its snapshot keeps; the live one if it has not begun;
// or nil if there is neither. Snapshots are read from live, since the cache holds their metadata only (spec: 50 §4.3).
func BegunRuntime(ctx context.Context, cached, live client.Reader, job *trainerv1alpha1.TrainJob) (*trainingplan.Runtime, error) {
	var snapshot corev1.ConfigMap
	key := client.ObjectKey{Namespace: job.Namespace, Name: job.Name + trainerv1alpha1.SuffixRuntimeSnapshot}
	err := live.Get(ctx, key, &snapshot)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	if err == nil {
		if r, err := trainingplan.ReadSnapshot(job, &snapshot); err == nil {
			return r, nil
		}
	}
	return FindRuntime(ctx, job, cached, live)
}

// FindRuntime reads the live runtime of a TrainJob from the first reader that has it, or nil if none has, as with a name that no object
// can have.
func FindRuntime(ctx context.Context, job *trainerv1alpha1.TrainJob, readers ...client.Reader) (*trainingplan.Runtime, error) {
	_, kind := trainingplan.RefKind(&job.Spec.RuntimeRef)
	name := job.Spec.RuntimeRef.Name
	if name == "" || len(content.IsPathSegmentName(name)) > 0 {
		return nil, nil
	}
	for _, reader := range readers {
		var found *trainingplan.Runtime
		var err error
		if kind == trainerv1alpha1.KindTrainingRuntime {
			var o trainerv1alpha1.TrainingRuntime
			err = reader.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: name}, &o)
			found = trainingplan.NamespacedRuntime(&o)
		} else {
			var o trainerv1alpha1.ClusterTrainingRuntime
			err = reader.Get(ctx, client.ObjectKey{Name: name}, &o)
			found = trainingplan.ClusterRuntime(&o)
		}
		if err == nil {
			return found, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading %s %s: %w", kind, name, err)
		}
	}
	return nil, nil
}

// FindPriorityClasses looks up the classes that decide about a TrainJob of the runtime.
func FindPriorityClasses(ctx context.Context, reader client.Reader, runtime *trainingplan.Runtime) (map[string]bool, error) {
	found := map[string]bool{}
	for _, name := range trainingplan.PriorityClassNames(runtime) {
		err := reader.Get(ctx, client.ObjectKey{Name: name}, &schedulingv1.PriorityClass{})
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading PriorityClass %s: %w", name, err)
		}
		found[name] = err == nil
	}
	return found, nil
}
