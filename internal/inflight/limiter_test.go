package inflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// request is a request of a test: the function that releases its seats, or an error.
type request struct {
	granted chan func()
	failed  chan error
}

// ask makes a request that is seated or queued when ask returns.
func ask(ctx context.Context, t *testing.T, l *Limiter, name string, seats int) *request {
	t.Helper()
	before := l.load()
	r := &request{granted: make(chan func(), 1), failed: make(chan error, 1)}
	go func() {
		if release, err := l.Acquire(ctx, name, seats); err != nil {
			r.failed <- err
		} else {
			r.granted <- release
		}
	}()
	wait.Until(t, "the request is seated, waits or is refused", wait.Is(func() bool { return l.load() != before || len(r.failed) > 0 }))
	return r
}

// load changes with each new request.
func (l *Limiter) load() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken + 1000*l.waiting
}

func (r *request) release(t *testing.T) {
	t.Helper()
	select {
	case release := <-r.granted:
		release()
		release() // the second time it does nothing
	case err := <-r.failed:
		t.Fatal(err)
	case <-time.After(wait.Patience):
		t.Fatal("the request was not seated")
	}
}

// One caller cannot take all seats, and callers are served in turn.
func TestCallersAreServedInTurn(t *testing.T) {
	l := &Limiter{Seats: 3, PerCaller: 2, Waiting: 100, WaitingPerCaller: 10}
	busy := []*request{}
	for range 5 {
		busy = append(busy, ask(t.Context(), t, l, "busy", 1))
	}
	if l.load() != 2+3000 {
		t.Errorf("load %d, want two seats taken and three requests that wait", l.load())
	}
	other := ask(t.Context(), t, l, "other", 1) // there is a seat left for it
	if l.load() != 3+3000 {
		t.Errorf("load %d: another caller has no seat", l.load())
	}
	second := ask(t.Context(), t, l, "other", 1)
	third := ask(t.Context(), t, l, "third", 1)
	busy[0].release(t) // the next of the busy caller, whose turn it is
	busy[1].release(t) // that of the other one, before the rest of the busy one
	second.release(t)
	third.release(t)
	for _, r := range append(busy[2:], other) {
		r.release(t)
	}
	if l.load() != 0 || len(l.callers) != 0 || len(l.turns) != 0 {
		t.Errorf("load %d, callers %v: something is kept", l.load(), l.callers)
	}
}

func TestTooMuchWaits(t *testing.T) {
	l := &Limiter{Seats: 1, PerCaller: 1, Waiting: 3, WaitingPerCaller: 2}
	held := ask(t.Context(), t, l, "a", 1)
	a := []*request{ask(t.Context(), t, l, "a", 1), ask(t.Context(), t, l, "a", 1)}
	if _, err := l.Acquire(t.Context(), "a", 1); !errors.Is(err, ErrFull) {
		t.Errorf("one too many of a caller: %v", err)
	}
	b := ask(t.Context(), t, l, "b", 1)
	if _, err := l.Acquire(t.Context(), "c", 1); !errors.Is(err, ErrFull) {
		t.Errorf("one too many in all: %v", err)
	}
	for _, r := range []*request{held, a[0], b, a[1]} {
		r.release(t)
	}
}

// Free seats are reserved for a large request until it is cancelled.
func TestLargeRequests(t *testing.T) {
	l := &Limiter{Seats: 4, PerCaller: 3, Waiting: 10, WaitingPerCaller: 10}
	small := []*request{ask(t.Context(), t, l, "small", 1), ask(t.Context(), t, l, "small", 1)}
	ctx, leave := context.WithCancel(t.Context())
	large := ask(ctx, t, l, "large", 100)
	behind := ask(t.Context(), t, l, "behind", 1)
	if l.load() != 2+2000 {
		t.Errorf("load %d: the large request was passed over", l.load())
	}
	leave()
	if err := <-large.failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	behind.release(t)
	for _, r := range small {
		r.release(t)
	}
	ask(t.Context(), t, l, "large", 100).release(t)
	if l.load() != 0 {
		t.Errorf("load %d in the end", l.load())
	}
}

// The rate is shared: a caller with one request does not wait for a hundred of another caller.
func TestRateIsShared(t *testing.T) {
	r := NewRate(1000, 1)
	order := make(chan string, 101)
	turn := func(ctx context.Context, name string) {
		if err := r.Wait(For(ctx, name)); err != nil {
			t.Error(err)
		}
		order <- name
	}
	release, err := r.turns.Acquire(t.Context(), "test", 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		go turn(t.Context(), "greedy")
	}
	loaded := func(turns int) {
		t.Helper()
		wait.Until(t, "the turns are waited for", func() error {
			if n := r.turns.load(); n != turns {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
	}
	loaded(1 + 100*1000)
	go turn(t.Context(), "modest")
	loaded(1 + 101*1000)
	release()
	var got []string
	for range 101 {
		got = append(got, <-order)
	}
	if at := slices.Index(got, "modest"); at > 5 {
		t.Errorf("the modest caller was served after %d requests of the greedy one", at)
	}
	if release, err = r.turns.Acquire(t.Context(), "test", 1); err != nil {
		t.Fatal(err)
	}
	waiting := ask(t.Context(), t, &r.turns, "modest", 1)
	if r.TryAccept() {
		t.Error("a request that does not wait was served before one that waits")
	}
	release()
	waiting.release(t)
	wait.Until(t, "the rate allows a request while none waits", func() error {
		if !r.TryAccept() {
			return errors.New("no turn")
		}
		return nil
	})
	if r.turns.load() != 0 {
		t.Errorf("load %d in the end", r.turns.load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Wait(ctx); err == nil {
		t.Error("a request whose context has ended got a turn")
	}
}
