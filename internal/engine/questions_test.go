package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/state"
)

// waiting is how many questions wait for an engine.
func (e *Engine) waiting() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.questions.own) + len(e.questions.reads)
}

// reads asks a question n times, and returns a function that waits for the answers.
func reads(t *testing.T, e *Engine, n int, f func(*state.State) any) (answered func()) {
	t.Helper()
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			if got, err := e.Read(context.Background(), f); err != nil || got != "answer" {
				t.Errorf("question %d: %v, %v", i, got, err)
			}
		})
	}
	wait.Until(t, "the questions", wait.Is(func() bool { return e.waiting() == n }))
	return group.Wait
}

// Readers do not delay the scheduler: while every turn has work, one of their questions is answered between two turns.
func TestReadersDoNotDelayTurns(t *testing.T) {
	const questions, turns = 40, 60
	e := New(state.New(state.Options{}), time.Now)
	var run, most, worked int // only used in the engine's goroutine
	answered := reads(t, e, questions, func(*state.State) any {
		run++
		return "answer"
	})
	done := make(chan struct{})
	e.OnTurn(func(*Turn) {
		if most, run = max(most, run), 0; worked == turns {
			close(done)
			return
		}
		worked++
		e.Post(state.DeleteWorkload("none"))
	})
	e.Post(state.DeleteWorkload("none"))
	go func() { _ = e.Run(t.Context()) }() // it ends with the test, without an error
	answered()
	<-done
	if most != 1 {
		t.Errorf("%d questions were answered between two turns that have work", most)
	}
}

// A question whose asker has left is not answered, and takes no place in the queue.
func TestQuestionsEndWithTheirContext(t *testing.T) {
	e := New(state.New(state.Options{}), time.Now)
	gone, leave := context.WithCancel(t.Context())
	var run atomic.Int32
	var left sync.WaitGroup
	left.Go(func() {
		_, err := e.Read(gone, func(*state.State) any { return run.Add(1) })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a reader who has left: %v", err)
		}
	})
	left.Go(func() {
		if err := e.Ask(gone, func(*state.State) { run.Add(1) }); !errors.Is(err, context.Canceled) {
			t.Errorf("an asker who has left: %v", err)
		}
	})
	wait.Until(t, "the questions", wait.Is(func() bool { return e.waiting() == 2 }))
	leave()
	left.Wait()
	if n := e.waiting(); n != 0 {
		t.Errorf("%d questions wait for nobody", n)
	}
	go func() { _ = e.Run(t.Context()) }() // it ends with the test, without an error
	waitForTurns(t, e)
	if run.Load() != 0 {
		t.Error("the engine has worked for an asker who has left")
	}
}

// Questions of readers are bounded. The manager's own are not refused.
func TestTooManyQuestions(t *testing.T) {
	e := New(state.New(state.Options{}), time.Now)
	answered := reads(t, e, maxReads, func(*state.State) any { return "answer" })
	if _, err := e.Read(t.Context(), func(*state.State) any { return "answer" }); !errors.Is(err, ErrBusy) {
		t.Errorf("%v for one question too many", err)
	}
	var own sync.WaitGroup
	own.Go(func() {
		if err := e.Ask(t.Context(), func(*state.State) {}); err != nil {
			t.Errorf("the manager's own question: %v", err)
		}
	})
	wait.Until(t, "the manager's own question", wait.Is(func() bool { return e.waiting() == maxReads+1 }))
	go func() { _ = e.Run(t.Context()) }() // it ends with the test, without an error
	own.Wait()
	answered()
}

// A question is answered after the events that were posted before it, and their decisions.
func TestReadFollowsEvents(t *testing.T) {
	e, r := start(t)
	e.Open()
	e.Post(setup()...)
	e.Post(state.SetWorkload(pending("a")))
	got, err := e.Read(t.Context(), func(s *state.State) any { return s.QueueOf("a") })
	if err != nil || got != "cq" || len(r.of("a")) != 1 {
		t.Errorf("a is in queue %q with %d decisions: %v", got, len(r.of("a")), err)
	}
}
