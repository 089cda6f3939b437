package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// A copy is made on every nominated worker, and removed from those that lost, while the Workload goes on where it is admitted. So such steps
// are made on all workers at a time, and a worker that does not answer soon is not waited for: until it does, or counts as one that cannot be
// reached, it counts as slow for this Workload alone.

// patience is how long such a step is waited for. Events of workers are gathered for as long before the Workload is looked at again, so that
// it loses no time.
const patience = settle

// prompt says whether nothing that comes after a step in its plan needs to know how it went.
func prompt(step *plan.Step) bool {
	return !step.Blocks && len(step.Events) == 0 && (step.Do == plan.CreateCopy || step.Do == plan.RemoveCopy)
}

// promptOnes is how many of the next steps can be made at a time: such ones, each on a cluster of its own.
func promptOnes(steps []plan.Step) int {
	seen := map[string]bool{}
	for i := range steps {
		if !prompt(&steps[i]) || seen[steps[i].Cluster] {
			return i
		}
		seen[steps[i].Cluster] = true
	}
	return len(steps)
}

// outcome is what became of a step.
type outcome struct {
	again  time.Duration
	err    error
	events []lifecycle.Event
}

// together makes steps at a time, or one. What is not made, since a step before it blocks, has the empty outcome.
func (w *workloads) together(ctx context.Context, s *sight, steps []plan.Step, blocked bool) []outcome {
	out := make([]outcome, len(steps))
	var wg sync.WaitGroup
	for i := range steps {
		step := &steps[i]
		switch {
		case blocked && step.Do != plan.RemoveCopy:
		case prompt(step):
			wg.Go(func() { out[i].err = w.promptly(ctx, s, step) })
		default:
			out[i].again, out[i].err = w.step(ctx, s, step)
			if out[i].events = step.Events; out[i].err == nil {
				out[i].events = slices.Concat(step.Events, w.records.warnings(s.observed.Local, step.Warnings))
			}
		}
	}
	wg.Wait()
	return out
}

// promptly makes a step, and leaves it to itself if that takes too long: the Workload is looked at again when it is over.
func (w *workloads) promptly(ctx context.Context, s *sight, step *plan.Step) error {
	own := *s // the rest of the plan goes on with the other
	return w.records.runStep(s.key, step.Cluster, patience, func() error {
		_, err := w.step(ctx, &own, step)
		return err
	}, func() { w.wake(own.key, 0) })
}
