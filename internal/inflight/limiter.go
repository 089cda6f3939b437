// Package inflight limits concurrent work for callers, and shares it fairly between them: a caller with many requests delays only its own.
package inflight

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrFull is the error of Acquire if too many requests are queued. The caller may retry later.
var ErrFull = errors.New("too many requests")

// Limiter grants seats to requests. Callers are served in turn, each with its oldest request first. The fields are set before the first
// use. Without Waiting and WaitingPerCaller no request is queued.
type Limiter struct {
	// Seats is the number of seats, PerCaller the most that one caller holds.
	Seats, PerCaller int
	// Waiting is the number of queued requests, WaitingPerCaller the most of one caller.
	Waiting, WaitingPerCaller int

	mu      sync.Mutex
	taken   int
	waiting int
	callers map[string]*caller
	turns   []*caller // callers with queued requests, the next one first
}

// caller holds seats or has queued requests.
type caller struct {
	name   string
	taken  int
	queued []*entry
}

type entry struct {
	seats  int
	seated chan struct{} // is closed once it has its seats; Limiter.mu orders that
}

// Acquire waits for seats until ctx ends, at most for PerCaller. The error is ErrFull if the request may not be queued. Call release
// after the work.
func (l *Limiter) Acquire(ctx context.Context, name string, seats int) (release func(), err error) {
	w := &entry{seats: min(max(seats, 1), l.PerCaller, l.Seats), seated: make(chan struct{})}
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

// tryAcquire is Acquire for a request that is not queued: ok is false if it would have to wait.
func (l *Limiter) tryAcquire(name string, seats int) (release func(), ok bool) {
	ended, end := context.WithCancel(context.Background())
	end()
	release, err := l.Acquire(ended, name, seats)
	return release, err == nil
}

func (l *Limiter) enter(name string, w *entry) (*caller, error) {
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
	if len(c.queued) == 0 {
		l.turns = append(l.turns, c)
	}
	c.queued = append(c.queued, w)
	l.waiting++
	l.seat()
	last := len(c.queued) - 1
	if last >= 0 && c.queued[last] == w && (l.waiting > l.Waiting || last >= l.WaitingPerCaller) {
		l.drop(c, last)
		l.forget(c)
		return nil, ErrFull
	}
	return c, nil
}

// seat grants free seats in turn. A caller at its limit is passed over. If a request needs more seats than are free, they stay free for
// it.
func (l *Limiter) seat() {
	for i := 0; i < len(l.turns); {
		c := l.turns[i]
		w := c.queued[0]
		switch {
		case c.taken+w.seats > l.PerCaller:
			i++
			continue
		case l.taken+w.seats > l.Seats:
			return
		}
		l.taken += w.seats
		c.taken += w.seats
		l.drop(c, 0)
		if len(c.queued) > 0 { // behind all others
			l.turns = append(slices.Delete(l.turns, i, i+1), c)
		}
		close(w.seated)
	}
}

func (l *Limiter) drop(c *caller, at int) {
	c.queued = slices.Delete(c.queued, at, at+1)
	l.waiting--
	if len(c.queued) == 0 {
		l.turns = slices.DeleteFunc(l.turns, func(other *caller) bool { return other == c })
	}
}

// leave removes a queued request; false if it has its seats by now.
func (l *Limiter) leave(c *caller, w *entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(c.queued, w)
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

func (l *Limiter) forget(c *caller) {
	if c.taken == 0 && len(c.queued) == 0 {
		delete(l.callers, c.name)
	}
}
