package leaderworkerset

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// madeSet returns why a StatefulSet does not belong to a LeaderWorkerSet: it is neither the leaders' nor one of workers, which a
// leader owns. While a roll-out surges or shrinks, the status has their number.
func madeSet(k *plan.OwnedBy) error {
	child, ok := k.Child.(*appsv1.StatefulSet)
	if !ok {
		return errors.New("it cannot be read")
	}
	ofLeader, ofWorker, err := templates(k.Owner)
	if err != nil {
		return err
	}
	n := max(groups(k.Owner), view.Int(view.Of(k.Owner).Object, 0, "status", "replicas"))
	template := ofLeader
	if template == nil {
		template = ofWorker
	}
	switch {
	case child.Name != k.Owner.GetName():
		return plan.ErrOtherName
	case child.Spec.Replicas != nil && *child.Spec.Replicas > n:
		return fmt.Errorf("it has %d groups, and not %d", n, *child.Spec.Replicas)
	}
	// Below the leaders are their workers.
	for _, o := range k.Below {
		set, ok := o.(*appsv1.StatefulSet)
		if !ok {
			continue
		}
		if set.Spec.Replicas != nil && *set.Spec.Replicas > size(k.Owner)-1 {
			return fmt.Errorf("a leader has %d workers, and not %d", size(k.Owner)-1, *set.Spec.Replicas)
		}
		if err := plan.PodExceeds(&set.Spec.Template.Spec, &ofWorker.Spec); err != nil {
			return err
		}
	}
	return plan.PodExceeds(&child.Spec.Template.Spec, &template.Spec)
}
