package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/reconcile"
)

// The figures of an object are written at most once in every interval. The first change after a pause
// is written after delay, so that one write shows all that changes together; later changes wait for the
// rest of the interval. While five changes come in a second (many) the interval doubles with every write, up to longest: in a burst each of
// them is old soon.
const (
	interval = time.Second
	longest  = 4 * interval
	delay    = interval / 2
	many     = 5
)

// catchUp is how soon a cache that lags behind a write is read again: no other event is certain to come.
const catchUp = 100 * time.Millisecond

// figureWriters bounds the concurrent writes of figures, of all objects together. It bounds
// concurrency and not the rate: an API server that keeps up takes hundreds of them in a second,
// and a busy one gets most of its requests from the many more writers of admissions.
const figureWriters = 4

// pace spaces the writes of figures. The controllers of all kinds share its turns.
type pace struct {
	now   func() time.Time
	known func() bool // the engine knows all objects that exist
	turns chan struct{}

	written *reconcile.Overlay[client.Object] // by their metadata

	mu   sync.Mutex
	last map[types.NamespacedName]*lastWrite
}

// lastWrite is the last write of an object's status.
type lastWrite struct {
	at       time.Time
	interval time.Duration // until figures may be written again
	changes  int           // of figures since
}

func newTurns() chan struct{} { return make(chan struct{}, figureWriters) }

func newPace(turns chan struct{}, known func() bool) *pace {
	p := &pace{now: time.Now, known: known, turns: turns, last: map[types.NamespacedName]*lastWrite{}}
	p.written = reconcile.NewOverlay[client.Object](func() time.Time { return p.now() })
	return p
}

// changed notes a change of an object's figures, and returns how long it waits before it is written.
func (p *pace) changed(name types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.last[name]; l != nil {
		l.changes++
	}
	return max(delay, p.remaining(name))
}

// rest returns how long the figures of an object must not be written yet.
func (p *pace) rest(name types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.remaining(name)
}

func (p *pace) remaining(name types.NamespacedName) time.Duration {
	l := p.last[name]
	if l == nil {
		return 0
	}
	return max(0, l.interval-p.now().Sub(l.at))
}

// turn is the right to write the status of one object. Read the figures after acquiring it, so that the
// newest ones are written.
type turn struct {
	pace *pace
	name types.NamespacedName
	rest time.Duration // how long figures must wait
}

// acquire waits for a turn, if figures may be written now. Release it.
func (p *pace) acquire(ctx context.Context, name types.NamespacedName) (turn, error) {
	t := turn{p, name, p.rest(name)}
	if t.rest > 0 {
		return t, nil // to write a condition, which needs no turn
	}
	select {
	case p.turns <- struct{}{}:
		return t, nil
	case <-ctx.Done():
		return turn{}, ctx.Err()
	}
}

func (t turn) release() {
	if t.rest == 0 {
		<-t.pace.turns
	}
}

// write patches a status. A change of conditions never waits. Figures that must wait are not written: write
// returns for how long.
func (t turn) write(ctx context.Context, c client.Client, object client.Object, patch client.Patch, figuresOnly bool) (time.Duration, error) {
	if figuresOnly && t.rest > 0 {
		return t.rest, nil
	}
	t.pace.writes(t.name)
	if err := c.Status().Patch(ctx, object, patch); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("writing status: %w", err)
	} else if err == nil {
		version := metav1.ObjectMeta{UID: object.GetUID(), ResourceVersion: object.GetResourceVersion()}
		t.pace.written.Updated(&metav1.PartialObjectMetadata{ObjectMeta: version})
	}
	return 0, nil
}

// writes notes that a write of an object begins.
func (p *pace) writes(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	l := p.last[name]
	switch {
	case l == nil:
		l = &lastWrite{interval: interval}
		p.last[name] = l
	case float64(l.changes) >= many*max(l.interval, now.Sub(l.at)).Seconds():
		l.interval = min(2*l.interval, longest)
	default:
		l.interval = interval
	}
	l.at, l.changes = now, 0
}

// isBehind reports whether the cache lags behind the last write of an object, or the engine does not know
// all objects yet: after a start its figures are too small.
func (p *pace) isBehind(shown client.Object) bool { return !p.known() || p.written.IsBehind(shown) }

func (p *pace) forget(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, name)
}

// writer writes the status of one kind of objects with figures.
type writer struct {
	client client.Client
	engine *engine.Engine
	pace   *pace
}

// inTurn reads an object and calls update in its turn. It retries soon if the cache lags behind.
func (w *writer) inTurn(ctx context.Context, key types.NamespacedName, object client.Object, update func(turn) (ctrl.Result, error)) (ctrl.Result, error) {
	if err := w.client.Get(ctx, key, object); err != nil {
		w.pace.forget(key)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if w.pace.isBehind(object) {
		return ctrl.Result{RequeueAfter: catchUp}, nil
	}
	t, err := w.pace.acquire(ctx, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer t.release()
	return update(t)
}
