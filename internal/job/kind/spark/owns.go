package spark

import (
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// madeDriver returns why a pod is not the driver of an application, or a pod below it is not an executor of its size. The names of
// executors do not show their number.
func madeDriver(k *plan.OwnedBy) error {
	app := view.Of(k.Owner)
	name := view.String(app.Object, "spec", driver, "podName")
	if name == "" {
		name = app.GetName() + "-driver"
	}
	if k.Child.GetName() != name {
		return plan.ErrOtherName
	}
	const overhead = true // Spark adds overhead memory, whether it is counted or not
	template, err := assemble(app, driver, overhead)
	if err != nil {
		return err
	}
	if err := plan.MadePod(k.Child, &template.Spec); err != nil || len(k.Below) == 0 {
		return err
	}
	if template, err = assemble(app, executor, overhead); err != nil {
		return err
	}
	for _, pod := range k.Below {
		if err := plan.MadePod(pod, &template.Spec); err != nil {
			return err
		}
	}
	return nil
}
