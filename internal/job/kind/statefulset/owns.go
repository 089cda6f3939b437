package statefulset

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	plan "github.com/berth-project/berth/internal/job"
)

// madePod returns why a pod does not belong to a StatefulSet.
func madePod(k *plan.OwnedBy) error {
	owner := k.Owner.(*appsv1.StatefulSet)
	n, ok := plan.Ordinal(k.Child.GetName(), owner.Name+"-")
	if !ok {
		return plan.ErrOtherName
	}
	first := int64(0)
	if owner.Spec.Ordinals != nil {
		first = int64(owner.Spec.Ordinals.Start)
	}
	if last := first + int64(replicas(owner)); n < first || n >= last {
		return fmt.Errorf("its pods are %d to %d", first, last-1)
	}
	return plan.MadePod(k.Child, &owner.Spec.Template.Spec)
}
