// Package inflight bounds how much work is done at once for callers, and shares it fairly between them: a caller with much to ask
// waits for itself, and not in front of the others.
package inflight

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrFull is the error of Acquire when too much waits already. The caller may ask again later.
var ErrFull = errors.New("too many requests")

// Limiter hands out seats. Callers that wait are served in turn, each with its oldest request first. The fields are set before
// the first use. Where nothing may wait there are only Seats and PerCaller.
type Limiter struct {
	// Seats there are, and how many of them one caller may have.
	Seats, PerCaller int
	// Waiting requests there may be, and how many of them of one caller.
	Waiting, WaitingPerCaller int

	mu      sync.Mutex
	taken   int
	waiting int
	callers map[string]*caller
	turns   []*caller // those with requests that wait, the next one first
}

// caller has seats or waits for some.
type caller struct {
	name    string
	taken   int
	waiters []*waiter
}

// waiter is one request that waits.
type waiter struct {
	seats  int
	seated chan struct{} // is closed once it has its seats; Limiter.mu orders that
}

// Acquire waits for seats, at most as many as one caller may have, until ctx ends; the error is ErrFull if the request may not
// even wait. Call release once the work is done.
func (l *Limiter) Acquire(ctx context.Context, name string, seats int) (release func(), err error) {
	w := &waiter{seats: min(max(seats, 1), l.PerCaller, l.Seats), seated: make(chan struct{})}
	c, err := l.enter(name, w)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.seated:
	case <-ctx.Done():
		if l.leave(c, w) {
			return nil, ctx.Err()
		}
	}
	return sync.OnceFunc(func() { l.release(c, w.seats) }), nil
}

// enter seats a request, or has it wait if it may.
func (l *Limiter) enter(name string, w *waiter) (*caller, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.callers[name]
	if c == nil {
		c = &caller{name: name}
		if l.callers == nil {
			l.callers = map[string]*caller{}
		}
		l.callers[name] = c
	}
	if len(c.waiters) == 0 {
		l.turns = append(l.turns, c)
	}
	c.waiters = append(c.waiters, w)
	l.waiting++
	l.seat()
	last := len(c.waiters) - 1
	if last >= 0 && c.waiters[last] == w && (l.waiting > l.Waiting || last >= l.WaitingPerCaller) {
		l.drop(c, last)
		l.forget(c)
		return nil, ErrFull
	}
	return c, nil
}

func (l *Limiter) fits(c *caller, w *waiter) bool {
	return l.taken+w.seats <= l.Seats && c.taken+w.seats <= l.PerCaller
}

// seat gives free seats to those whose turn it is. A caller that has as many as it may is passed over; for one that needs more
// seats than are free, these are kept.
func (l *Limiter) seat() {
	for i := 0; i < len(l.turns); {
		c := l.turns[i]
		w := c.waiters[0]
		switch {
		case c.taken+w.seats > l.PerCaller:
			i++
			continue
		case !l.fits(c, w):
			return
		}
		l.taken += w.seats
		c.taken += w.seats
		l.drop(c, 0)
		if len(c.waiters) > 0 { // behind all others
			l.turns = append(slices.Delete(l.turns, i, i+1), c)
		}
		close(w.seated)
	}
}

// drop takes a request from those that wait.
func (l *Limiter) drop(c *caller, at int) {
	c.waiters = slices.Delete(c.waiters, at, at+1)
	l.waiting--
	if len(c.waiters) == 0 {
		l.turns = slices.DeleteFunc(l.turns, func(other *caller) bool { return other == c })
	}
}

// leave ends the wait of a request; false if it has its seats by now.
func (l *Limiter) leave(c *caller, w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(c.waiters, w)
	if at < 0 {
		return false
	}
	l.drop(c, at)
	l.forget(c)
	l.seat() // seats may have been kept for it
	return true
}

func (l *Limiter) release(c *caller, seats int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken -= seats
	c.taken -= seats
	l.forget(c)
	l.seat()
}

// forget drops a caller that has nothing any more.
func (l *Limiter) forget(c *caller) {
	if c.taken == 0 && len(c.waiters) == 0 {
		delete(l.callers, c.name)
	}
}
