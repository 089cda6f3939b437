package queues

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-project/berth/internal/reconcile"
)

// settle is how long changes of a queue's figures are gathered before its status is
// written: at most one write a second and object. While an object keeps changing, each
// pause between two writes is twice the one before, up to slowest: who watches a queue
// that is busy sees it move, and the metrics have the figures of the moment.
const (
	settle  = time.Second
	slowest = 5 * time.Second
)

// Until the cache has what was written it says nothing about what is still to be written. It is waited for at most this long.
const (
	catchUp    = 100 * time.Millisecond
	remembered = 30 * time.Second
)

// Figures of all queues and cohorts together are written at this rate: a thousand queues
// that move at once must not crowd out admissions.
const (
	figuresPerSecond = 20
	figuresBurst     = 50
)

func newLimiter() *rate.Limiter { return rate.NewLimiter(figuresPerSecond, figuresBurst) }

// pace holds back writes of figures that come sooner than that after the last write, or
// for which all objects together have written too much.
type pace struct {
	now  func() time.Time
	all  *rate.Limiter
	mu   sync.Mutex
	last map[types.NamespacedName]written
}

// written is when an object was written, how long its figures pause after that, and the version that it came to.
type written struct {
	at      time.Time
	pause   time.Duration
	version string
}

func newPace(all *rate.Limiter) *pace {
	return &pace{now: time.Now, all: all, last: map[types.NamespacedName]written{}}
}

// take returns 0 once the status of an object may be written, which counts as done, or how
// long to wait before it is looked at again. What is more than figures never waits.
func (p *pace) take(ctx context.Context, name types.NamespacedName, figuresOnly bool) time.Duration {
	wait := p.since(name, figuresOnly)
	if wait == 0 && figuresOnly && p.all.Wait(ctx) != nil {
		return settle // the manager stops
	}
	return wait
}

func (p *pace) since(name types.NamespacedName, figuresOnly bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, now := p.last[name], p.now()
	since := now.Sub(last.at)
	if figuresOnly && since < last.pause {
		return last.pause - since
	}
	next := written{now, settle, ""}
	if since < 2*last.pause { // it did not come to rest
		next.pause = min(2*last.pause, slowest)
	}
	p.last[name] = next
	return 0
}

// wrote notes the version that a write came to.
func (p *pace) wrote(name types.NamespacedName, version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last[name]
	last.version = version
	p.last[name] = last
}

// isBehind says whether a version of an object is older than what was written of it.
func (p *pace) isBehind(name types.NamespacedName, version string) bool {
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
