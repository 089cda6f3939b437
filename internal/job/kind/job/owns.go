package job

import (
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	plan "github.com/berth-project/berth/internal/job"
)

// madePod returns why a pod does not belong to a Job. Its number is not checked: the Job controller deletes pods beyond spec.parallelism, of
// Jobs that are its own and of pods that it selects.
func madePod(k *plan.OwnedBy) error {
	owner := k.Owner.(*batchv1.Job)
	if name := managedBy(owner); name != "" && name != batchv1.JobControllerName {
		return errors.New("its controller is " + name)
	}
	selector, err := metav1.LabelSelectorAsSelector(owner.Spec.Selector)
	if err != nil {
		return err
	}
	if !selector.Matches(labels.Set(k.Child.GetLabels())) {
		return errors.New("spec.selector does not select it")
	}
	return plan.MadePod(k.Child, &owner.Spec.Template.Spec)
}
