package kubeflow

import (
	"errors"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// owns are the pods of all roles, and the Job of the launcher of an MPIJob.
func (k kind) owns(isMPI bool) []plan.Child {
	out := []plan.Child{{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Made: k.madePod}}
	if isMPI {
		out = append(out, plan.Child{GVK: batchv1.SchemeGroupVersion.WithKind("Job"), Made: madeLauncher})
	}
	return out
}

// madePod returns why a pod does not belong to a job: its name is not NAME-ROLE-INDEX, or it is larger than the template of the
// role.
func (k kind) madePod(of *plan.OwnedBy) error {
	roles, err := k.find(view.Of(of.Owner), nil)
	if err != nil {
		return err
	}
	for i := range roles {
		r := &roles[i]
		if n, ok := plan.Ordinal(of.Child.GetName(), of.Owner.GetName()+"-"+r.Name+"-"); ok {
			if n >= int64(r.Count) {
				return fmt.Errorf("there are %d pods %s", r.Count, r.Name)
			}
			return fits(of.Child, r.Template)
		}
	}
	return plan.ErrOtherName
}

func fits(pod plan.Object, tree map[string]any) error {
	var template corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, &template); err != nil {
		return err
	}
	return plan.MadePod(pod, &template.Spec)
}

// madeLauncher returns why a Job is not the launcher.
func madeLauncher(of *plan.OwnedBy) error {
	child, ok := of.Child.(*batchv1.Job)
	template := view.Map(view.Of(of.Owner).Object, "spec", "mpiReplicaSpecs", launcher, "template")
	switch {
	case !ok || template == nil:
		return errors.New("there is no launcher")
	case child.Name != of.Owner.GetName()+"-"+strings.ToLower(launcher):
		return plan.ErrOtherName
	case child.Spec.Parallelism != nil && *child.Spec.Parallelism > 1:
		return fmt.Errorf("there is 1 launcher, and not %d", *child.Spec.Parallelism)
	}
	return fits(&corev1.Pod{Spec: child.Spec.Template.Spec}, template)
}
