package trainjob

import (
	plan "github.com/berth-project/berth/internal/job"
)

// madeJobSet returns why a JobSet does not belong to a TrainJob. It has the name of the TrainJob and at most the pods of its plan, or those
// for which the TrainJob holds quota: another version of the controller may have planned a JobSet that runs. Without the runtime only the
// name is compared: such a TrainJob is not admitted.
func (k kind) madeJobSet(of *plan.OwnedBy) error {
	if of.Child.GetName() != of.Owner.GetName() {
		return plan.ErrOtherName
	}
	if of.Objects == nil || of.Kind == nil {
		return nil
	}
	sets, err := k.podSets(of.Owner, of.Setting())
	if err != nil {
		return nil //nolint:nilerr // the plan of the TrainJob says what is wrong
	}
	children, err := of.Kind.PodSets(of.Child, &plan.Setting{Config: of.Config})
	if err != nil {
		return err
	}
	exceeds := plan.SetsExceed(children, sets, false)
	if exceeds != nil && len(of.Held) > 0 && plan.SetsExceed(children, of.Held, false) == nil {
		return nil
	}
	return exceeds
}
