package multikueue

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-project/berth/internal/controller/multikueue/worker"
	"github.com/berth-project/berth/internal/plan/dispatch"
	"github.com/berth-project/berth/internal/plan/lifecycle"
)

// A copy is made on every nominated worker, and removed from those that lost, while the Workload goes on where it is admitted. So such steps
// are made on all workers at a time, and a worker that does not answer soon is not waited for: until it does, or counts as one that cannot be
// reached, it counts as slow for this Workload alone.

// patience is how long such a step is waited for. Events of workers are gathered for as long before the Workload is looked at again, so that
// it loses no time.
const patience = settle

// prompt says whether nothing that comes after a step in its plan needs to know how it went.
func prompt(step *dispatch.Step) bool {
	return !step.Blocks && len(step.Events) == 0 && (step.Do == dispatch.CreateCopy || step.Do == dispatch.RemoveCopy)
}

// promptOnes is how many of the next steps can be made at a time: such ones, each on a cluster of its own.
func promptOnes(steps []dispatch.Step) int {
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
func (w *workloads) together(ctx context.Context, s *sight, steps []dispatch.Step, blocked bool) []outcome {
	out := make([]outcome, len(steps))
	var wg sync.WaitGroup
	for i := range steps {
		step := &steps[i]
		switch {
		case blocked && step.Do != dispatch.RemoveCopy:
		case prompt(step):
			wg.Go(func() { out[i].err = w.promptly(ctx, s, step) })
		default:
			out[i].again, out[i].err = w.step(ctx, s, step)
			if out[i].events = step.Events; out[i].err == nil {
				out[i].events = slices.Concat(step.Events, w.faults.warnings(s.observed.Local.UID, step.Warnings))
			}
		}
	}
	wg.Wait()
	return out
}

// promptly makes a step, and leaves it to itself if that takes too long: the Workload is looked at again when it is over.
func (w *workloads) promptly(ctx context.Context, s *sight, step *dispatch.Step) error {
	own := *s // the rest of the plan goes on with the other
	return w.pending.run(pendingStep{s.key, step.Cluster}, patience, func() error {
		_, err := w.step(ctx, &own, step)
		return err
	}, func() { w.wake(own.key, 0) })
}

// pending are the steps that are being made. Nobody waits for some of them any more.
type pending struct {
	mu    sync.Mutex
	steps map[pendingStep]bool // whether nobody waits for it
}

// pendingStep is where a step is made, and of what.
type pendingStep struct {
	workload types.NamespacedName
	cluster  string
}

// run makes a step and waits for a while. If it is not over by then the answer is nil, and what it comes to is lost; over is called when it is
// over. A step on the same cluster for the same Workload is not begun before.
func (p *pending) run(at pendingStep, patience time.Duration, do func() error, over func()) error {
	if !p.add(at) {
		return worker.ErrStuck // with what came before in the same plan
	}
	result := make(chan error, 1)
	go func() {
		err := do()
		if p.end(at) {
			over()
		}
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-time.After(patience):
		if p.leave(at) {
			return nil
		}
		return <-result // just now
	}
}

// add notes a step, and says whether there was none there.
func (p *pending) add(at pendingStep) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.steps[at]; ok {
		return false
	}
	if p.steps == nil {
		p.steps = map[pendingStep]bool{}
	}
	p.steps[at] = false
	return true
}

// leave lets a step go on by itself, and says whether it does.
func (p *pending) leave(at pendingStep) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.steps[at]; !ok {
		return false
	}
	p.steps[at] = true
	return true
}

// end forgets a step, and says whether nobody waits for it.
func (p *pending) end(at pendingStep) (alone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	alone = p.steps[at]
	delete(p.steps, at)
	return alone
}

// any says whether a Workload has a step anywhere.
func (p *pending) any(workload types.NamespacedName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.steps {
		if at.workload == workload {
			return true
		}
	}
	return false
}

// has says whether it has one on a cluster.
func (p *pending) has(workload types.NamespacedName, cluster string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.steps[pendingStep{workload, cluster}]
	return ok
}
