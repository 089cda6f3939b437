package job

import (
	"errors"

	batchv1 "k8s.io/api/batch/v1"

	plan "github.com/berth-project/berth/internal/job"
)

// oldUIDLabel is the earlier name of batchv1.ControllerUidLabel.
const oldUIDLabel = "controller-uid"

// madePod returns why a pod does not belong to a Job. Its number is not checked: the Job controller deletes pods beyond
// spec.parallelism.
func madePod(k *plan.OwnedBy) error {
	owner := k.Owner.(*batchv1.Job)
	labels, uid := k.Child.GetLabels(), string(owner.UID)
	if labels[batchv1.ControllerUidLabel] != uid && labels[oldUIDLabel] != uid {
		return errors.New("the label " + batchv1.ControllerUidLabel + " does not name the Job")
	}
	return plan.MadePod(k.Child, &owner.Spec.Template.Spec)
}
