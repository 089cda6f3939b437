package jobset

import (
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// madeJob returns why a Job does not belong to a JobSet: its name has no valid index, or it is larger than its template.
func madeJob(k *plan.OwnedBy) error {
	child, ok := k.Child.(*batchv1.Job)
	if !ok {
		return errors.New("it cannot be read")
	}
	err := plan.ErrOtherName
	for _, rj := range view.Maps(view.Of(k.Owner).Object, "spec", "replicatedJobs") {
		index, named := plan.Ordinal(child.Name, k.Owner.GetName()+"-"+view.String(rj, "name")+"-")
		if !named {
			continue
		}
		if err = isOf(child, rj, index); err == nil {
			return nil
		}
	}
	return err
}

// isOf compares a Job to the template of a replicated job.
func isOf(child *batchv1.Job, rj map[string]any, index int64) error {
	name := view.String(rj, "name")
	if replicas := view.Int(rj, 1, "replicas"); index >= int64(replicas) {
		return fmt.Errorf("%s has %d replicas", name, replicas)
	}
	n := ptr.Deref(child.Spec.Parallelism, 1)
	n = min(n, ptr.Deref(child.Spec.Completions, n))
	if most := pods(rj); n > most {
		return fmt.Errorf("a Job of %s has %d pods, and not %d", name, most, n)
	}
	var template corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(view.Map(rj, "template", "spec", "template"), &template); err != nil {
		return fmt.Errorf("the template of %s cannot be read: %w", name, err)
	}
	return plan.PodExceeds(&child.Spec.Template.Spec, &template.Spec)
}
