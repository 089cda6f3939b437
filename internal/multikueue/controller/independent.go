package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Creations and removals of copies do not depend on each other, so they run on all worker clusters at once. A cluster that does not
// answer soon counts as slow for this Workload until its step ends, or until it counts as unreachable.

// stepWait is how long to wait for such a step. Events of worker clusters are delayed as long anyway.
const stepWait = copyEventDelay

func isIndependent(step *plan.Step) bool {
	return !step.Blocks && len(step.Events) == 0 && (step.Do == plan.CreateCopy || step.Do == plan.RemoveCopy)
}

// independentSteps returns how many of the next steps can run at once: independent ones, each on another cluster.
func independentSteps(steps []plan.Step) int {
	seen := map[string]bool{}
	for i := range steps {
		if !isIndependent(&steps[i]) || seen[steps[i].Cluster] {
			return i
		}
		seen[steps[i].Cluster] = true
	}
	return len(steps)
}

type outcome struct {
	again  time.Duration
	err    error
	events []lifecycle.Event
}

// runSteps runs independent steps at once, or one other step. Steps that are blocked have an empty outcome.
func (w *workloads) runSteps(ctx context.Context, s *observation, steps []plan.Step, blocked bool) []outcome {
	out := make([]outcome, len(steps))
	var wg sync.WaitGroup
	for i := range steps {
		step := &steps[i]
		switch {
		case blocked && step.Do != plan.RemoveCopy:
		case isIndependent(step):
			wg.Go(func() { out[i].err = w.runIndependent(ctx, s, step) })
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

// runIndependent runs a step, and abandons it if it takes too long: its Workload is requeued when it ends.
func (w *workloads) runIndependent(ctx context.Context, s *observation, step *plan.Step) error {
	own := *s // later steps continue with s
	return w.records.runStep(s.key, step.Cluster, stepWait, func() error {
		_, err := w.step(ctx, &own, step)
		return err
	}, func() { w.requeue(own.key, 0) })
}
