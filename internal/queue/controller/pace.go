package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

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

// Until the cache has what was written it says nothing about what is still to be written. It is waited for at most this long.
const (
	catchUp    = 100 * time.Millisecond
	remembered = 30 * time.Second
)

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
	mu    sync.Mutex
	last  map[types.NamespacedName]written
}

// written is when an object was written, and the version that it came to.
type written struct {
	at      time.Time
	version string
}

// newTurns makes the turns that writers of figures take.
func newTurns() chan struct{} { return make(chan struct{}, figureWriters) }

func newPace(turns chan struct{}, known func() bool) *pace {
	return &pace{now: time.Now, known: known, turns: turns, last: map[types.NamespacedName]written{}}
}

// after returns how long a change of an object's figures waits before it is written.
func (p *pace) after(name types.NamespacedName) time.Duration { return max(gather, p.rest(name)) }

// rest returns how long the figures of an object may not be written yet.
func (p *pace) rest(name types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, interval-p.now().Sub(p.last[name].at))
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
		t.pace.wrote(t.name, object.GetResourceVersion())
	}
	return 0, nil
}

// writes notes that a write of an object begins.
func (p *pace) writes(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[name] = written{p.now(), p.last[name].version}
}

// wrote notes the version that a write came to.
func (p *pace) wrote(name types.NamespacedName, version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last[name]
	last.version = version
	p.last[name] = last
}

// isBehind says whether a version of an object is older than what was written of it, or the
// engine does not know yet what to write: after a start its figures are too small.
func (p *pace) isBehind(name types.NamespacedName, version string) bool {
	if !p.known() {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last[name]
	return last.version != "" && p.now().Sub(last.at) < remembered && reconcile.IsOlder(version, last.version)
}

// forget drops an object that is gone.
func (p *pace) forget(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, name)
}
