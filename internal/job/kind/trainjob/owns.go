package trainjob

import (
	plan "github.com/berth-project/berth/internal/job"
)

// madeJobSet says why a JobSet is none of a TrainJob. There is one, of its name, with the pods that the runtime says. Without the runtime
// only the name counts: what the TrainJob asks for is not known either, so it is not admitted.
func (k kind) madeJobSet(of *plan.Kinship) error {
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
	return plan.SetsExceed(children, sets, false)
}
