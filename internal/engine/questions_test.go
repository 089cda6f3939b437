package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/state"
)

// waiting is how many questions wait for an engine.
func (e *Engine) waiting() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.questions.own) + len(e.questions.reads)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what + ": it does not come")
		}
	}
}

// reads asks n questions with the same key, or each with its own, and returns a function that waits for the answers.
func reads(t *testing.T, e *Engine, n int, key string, f func(*state.State) any) (wait func()) {
	t.Helper()
	var group sync.WaitGroup
	for i := range n {
		own := key
		if own == "" {
			own = fmt.Sprint(i)
		}
		group.Go(func() {
			if got, err := e.Read(context.Background(), own, f); err != nil || got != "answer" {
				t.Errorf("question %d: %v, %v", i, got, err)
			}
		})
	}
	eventually(t, "the questions", func() bool { return e.waiting() == n })
	return group.Wait
}

// Readers do not delay the scheduler: while every turn has work, one of their questions is answered between two turns.
func TestReadersDoNotDelayTurns(t *testing.T) {
	const questions, turns = 40, 60
	e := New(state.New(state.Options{}), time.Now)
	var run, most, worked int // only used in the engine's goroutine
	answered := reads(t, e, questions, "", func(*state.State) any {
		run++
		return "answer"
	})
	done := make(chan struct{})
	var event func(*state.State)
	event = func(*state.State) {
		if most, run = max(most, run), 0; worked == turns {
			close(done)
			return
		}
		worked++
		e.Post(event)
	}
	e.Post(event)
	go func() { _ = e.Run(t.Context()) }() // it ends with the test, without an error
	answered()
	<-done
	if most != 1 {
		t.Errorf("%d questions were answered between two turns that have work", most)
	}
}

// The same question is answered once a turn, and once more when something has happened.
func TestSameQuestionIsAnsweredOnce(t *testing.T) {
	e := New(state.New(state.Options{}), time.Now)
	var run atomic.Int32
	f := func(*state.State) any {
		run.Add(1)
		return "answer"
	}
	answered := reads(t, e, 20, "the same", f)
	go func() { _ = e.Run(t.Context()) }() // it ends with the test, without an error
	answered()
	if got, err := e.Read(t.Context(), "the same", f); err != nil || got != "answer" || run.Load() != 1 {
		t.Errorf("%v, %v; worked out %d times, want once", got, err, run.Load())
	}
	e.Post(func(*state.State) {})
	if _, err := e.Read(t.Context(), "the same", f); err != nil || run.Load() != 2 {
		t.Errorf("after an event worked out %d times, want twice: %v", run.Load(), err)
	}
	if _, err := e.Read(t.Context(), "another", f); err != nil || run.Load() != 3 {
		t.Errorf("another question was not answered by itself: %v", err)
	}
}

// A question whose asker has left is not answered, and takes no place in the queue.
func TestQuestionsEndWithTheirContext(t *testing.T) {
	e := New(state.New(state.Options{}), time.Now)
	gone, leave := context.WithCancel(t.Context())
	var run atomic.Int32
	var left sync.WaitGroup
	left.Go(func() {
		_, err := e.Read(gone, "a", func(*state.State) any { return run.Add(1) })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a reader who has left: %v", err)
		}
	})
	left.Go(func() {
		if err := e.Ask(gone, func(*state.State) { run.Add(1) }); !errors.Is(err, context.Canceled) {
			t.Errorf("an asker who has left: %v", err)
		}
	})
	eventually(t, "the questions", func() bool { return e.waiting() == 2 })
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
	answered := reads(t, e, maxReads, "", func(*state.State) any { return "answer" })
	if _, err := e.Read(t.Context(), "one more", func(*state.State) any { return "answer" }); !errors.Is(err, ErrBusy) {
		t.Errorf("%v for one question too many", err)
	}
	var own sync.WaitGroup
	own.Go(func() {
		if err := e.Ask(t.Context(), func(*state.State) {}); err != nil {
			t.Errorf("the manager's own question: %v", err)
		}
	})
	eventually(t, "the manager's own question", func() bool { return e.waiting() == maxReads+1 })
	go func() { _ = e.Run(t.Context()) }() // it ends with the test, without an error
	own.Wait()
	answered()
}

// A question is answered after the events that were posted before it, and their decisions.
func TestReadFollowsEvents(t *testing.T) {
	e, r := start(t)
	e.Open()
	e.Post(setup)
	e.Post(func(s *state.State) { s.SetWorkload(pending("a")) })
	got, err := e.Read(t.Context(), "a", func(s *state.State) any { return s.QueueOf("a") })
	if err != nil || got != "cq" || len(r.of("a")) != 1 {
		t.Errorf("a is in queue %q with %d decisions: %v", got, len(r.of("a")), err)
	}
}
