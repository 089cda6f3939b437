package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/reconcile"
)

// The figures of an object are written at most once in every interval, and a change of
// them within the interval: the first one after a rest waits for gather, so that one write
// shows what changes together, and those that follow for the rest of the interval.
const (
	interval = time.Second
	gather   = interval / 2
)

// catchUp is how soon the cache is read again that does not have what was written: it says nothing about what is still to be written.
const catchUp = 100 * time.Millisecond

// figureWriters bounds the writes of figures that are under way at once, of all objects
// together. It is a bound of concurrency and not of the rate: an API server that keeps up
// takes hundreds of them in a second, and one that is busy gets most of its requests from
// the many more writers of admissions.
const figureWriters = 4

// pace spaces the writes of figures. The controllers of all kinds share its turns.
type pace struct {
	now   func() time.Time
	known func() bool // the engine has been told of everything that exists
	turns chan struct{}

	written *reconcile.Overlay[client.Object] // by their metadata

	mu   sync.Mutex
	last map[types.NamespacedName]time.Time // when an object was written
}

// newTurns makes the turns that writers of figures take.
func newTurns() chan struct{} { return make(chan struct{}, figureWriters) }

func newPace(turns chan struct{}, known func() bool) *pace {
	p := &pace{now: time.Now, known: known, turns: turns, last: map[types.NamespacedName]time.Time{}}
	p.written = reconcile.NewOverlay[client.Object](func() time.Time { return p.now() })
	return p
}

// after returns how long a change of an object's figures waits before it is written.
func (p *pace) after(name types.NamespacedName) time.Duration { return max(gather, p.rest(name)) }

// rest returns how long the figures of an object may not be written yet.
func (p *pace) rest(name types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, interval-p.now().Sub(p.last[name]))
}

// turn is the right to write the status of one object. Figures are to be read after it is
// taken, so that the newest ones are written.
type turn struct {
	pace *pace
	name types.NamespacedName
	rest time.Duration // figures may be written after that
}

// take waits for a turn, if figures may be written now. Release it.
func (p *pace) take(ctx context.Context, name types.NamespacedName) (turn, error) {
	t := turn{p, name, p.rest(name)}
	if t.rest > 0 {
		return t, nil // for a condition, which does not wait
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

// write makes the patch of a status. What is more than figures never waits. Figures whose
// time has not come are not written: it returns how long they wait.
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
	p.last[name] = p.now()
}

// isBehind reports whether the cache shows an object as it was before it was written, or the
// engine does not know yet what to write: after a start its figures are too small.
func (p *pace) isBehind(shown client.Object) bool { return !p.known() || p.written.IsBehind(shown) }

// forget drops an object that is gone.
func (p *pace) forget(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, name)
}
