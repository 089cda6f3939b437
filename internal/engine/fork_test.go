package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/state"
)

func forkOf(ctx context.Context, e *Engine) (*state.State, error) {
	c, err := e.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	return c.Fork()
}

// A fork has all events that were posted before, decides as the engine does, and leaves the engine alone.
func TestFork(t *testing.T) {
	e, r := start(t)
	e.Open()
	e.Post(setup()...)
	for i := range 6 { // four of them fit
		e.Post(state.SetWorkload(pending(fmt.Sprint(i))))
	}
	fork, err := forkOf(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	var dump string
	if err := e.Ask(t.Context(), func(s *state.State) { dump = s.Dump() }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dump, fork.Dump()); diff != "" {
		t.Errorf("the fork differs:\n%s", diff)
	}
	fork.Apply(state.DeleteWorkload("0"))
	decisions := fork.Apply(state.Step{Now: 1, Budget: 100}).Decisions
	if len(decisions) == 0 || decisions[0].Workload.UID != "4" || decisions[0].Attempt.Verdict != trace.Admitted {
		t.Errorf("after a release the fork decides %v", decisions)
	}
	waitForTurns(t, e)
	if got := r.of("4"); slices.ContainsFunc(got, func(d Decision) bool { return d.Grant != nil }) || e.Model().LocalQueue("ns", "lq").Reserved != 4 {
		t.Errorf("the engine has decided %v", got)
	}
}

// An engine that is not open can be forked: the fork decides what the engine would.
func TestForkBeforeOpen(t *testing.T) {
	e, _ := start(t)
	e.Post(setup()...)
	e.Post(state.SetWorkload(pending("a")))
	fork, err := forkOf(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if d := fork.Apply(state.Step{Now: 1, Budget: 100}).Decisions; len(d) != 1 || d[0].Attempt.Verdict != trace.Admitted {
		t.Errorf("the fork decides %v", d)
	}
}

// Forks are made while the engine turns. The race detector checks that they share nothing that changes.
func TestForksWhileTheEngineTurns(t *testing.T) {
	s := state.New(state.Options{})
	s.Record(10) // whose checkpoints come between
	e := New(s, time.Now)
	go func() { _ = e.Run(t.Context()) }() // it ends with the test, without an error
	e.Post(setup()...)
	e.Open()
	var forks sync.WaitGroup
	for range 2 {
		forks.Go(func() {
			for range 20 {
				fork, err := forkOf(t.Context(), e)
				if err != nil {
					t.Error(err)
					return
				}
				for i := range 9 {
					fork.Apply(state.DeleteWorkload(fmt.Sprint(i)))
					fork.Apply(state.Step{Now: 1, Budget: 100})
				}
				fork.Publish()
			}
		})
	}
	for i := range 400 {
		w := pending(fmt.Sprint(i % 9))
		w.Version, w.Priority = uint64(i+2), int64(i%3)
		e.Post(state.SetWorkload(w))
		if i%4 == 3 {
			e.Post(state.DeleteWorkload(fmt.Sprint((i - 2) % 9)))
		}
		if i%10 == 0 {
			waitForTurns(t, e)
		}
	}
	forks.Wait()
}

// A fork is not made while a step has left something to do.
func TestForkWaitsForTheEndOfARun(t *testing.T) {
	e := New(state.New(state.Options{}), time.Now)
	q := &question{ctx: t.Context(), answer: make(chan any, 1)}
	e.questions.forks = append(e.questions.forks, q)
	e.answerForks(true)
	if e.forking.of != nil || len(e.questions.forks) != 1 {
		t.Error("a fork was begun in the middle of a run")
	}
	e.answerForks(false)
	if answer, is := (<-q.answer).(*state.Checkpoint); !is || !answer.Done() {
		t.Error("there is no complete checkpoint")
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := e.Checkpoint(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("an asker who has left: %v", err)
	}
}
