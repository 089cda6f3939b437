package engine

import (
	"context"

	"github.com/berth-project/berth/internal/state"
)

// forkClasses is how many inadmissible classes are copied for a fork between two turns, in a fraction of a millisecond.
const forkClasses = 1024

// forking is a checkpoint that is being made, nil for none, and the questions that it answers.
type forking struct {
	of    *state.Checkpoint
	asked []*question
}

// Checkpoint returns a checkpoint of the engine's State after all events that were posted before. Its forks decide as the engine would:
// they are for what-if and estimates. The engine only begins a checkpoint, at a moment when it has nothing left to decide, and completes
// it between turns; a fork, a third of a second for 100,000 workloads, is the caller's. The error is the context's, if that ends before
// there is such a moment.
func (e *Engine) Checkpoint(ctx context.Context) (*state.Checkpoint, error) {
	answer, err := e.wait(&e.questions.forks, &question{ctx: ctx})
	if err != nil {
		return nil, err
	}
	return answer.(*state.Checkpoint), nil
}

// answerForks begins a checkpoint for the questions of Checkpoint, if there is nothing more to decide, or goes on with one.
func (e *Engine) answerForks(more bool) {
	if e.forking.of == nil && !more {
		if e.forking.asked = e.ready(&e.questions.forks); len(e.forking.asked) > 0 {
			e.forking.of = e.state.BeginCheckpoint()
		}
	}
	if e.forking.of == nil {
		return
	}
	e.state.ContinueCheckpoint(forkClasses)
	if e.forking.of.Done() {
		for _, q := range e.forking.asked {
			q.answer <- e.forking.of
		}
		e.forking = forking{}
	}
}
