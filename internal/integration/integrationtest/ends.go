package integrationtest

import (
	"errors"
	"fmt"

	"github.com/google/go-cmp/cmp"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/lifecycle"
)

// ended is a job that has to make room and cannot come back: it keeps its quota until its own controller says that it is
// over, and then its Workload is, too.
func ended(w *world) {
	o := w.create("train", nil)
	wl := w.workloadOf(o)
	w.admit(wl)
	w.started(o)
	w.status(o, Active)
	w.settle()
	was := w.again(o).GetGeneration()
	w.evict(wl)
	w.eventually("the job is told to stop", func() error {
		if got := w.again(o); got.GetGeneration() == was {
			return errors.New("it is as it was")
		}
		return nil
	})
	w.settle()
	if got := w.again(o); got.GetGeneration() != was+1 || !lifecycle.IsReserved(w.get(wl)) {
		w.t.Errorf("%d changes of a job that has to stop, want 1; reserved: %v", got.GetGeneration()-was, lifecycle.IsReserved(w.get(wl)))
	}
	w.status(o, Stopped)
	w.eventually("the workload is let go", func() error {
		got := w.get(wl)
		if c := lifecycle.Condition(got, kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonFailed || len(got.Finalizers) > 0 {
			return fmt.Errorf("%v, finalizers %v", conditions(got), got.Finalizers)
		}
		return nil
	})
	if diff := cmp.Diff([]string{"CreatedWorkload", "FinishedWorkload", "Started", "Stopped"}, w.events(o)); diff != "" {
		w.t.Errorf("events -want +got:\n%s", diff)
	}
}
