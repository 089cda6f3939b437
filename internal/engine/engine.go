// Package engine is the one goroutine that owns the scheduling state: it applies the
// events that informers and writers post, lets the state make progress, and hands
// the decisions to the writers. spec: 10 §4.1.
package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// Events have to wait for a turn. It applies events and makes steps until it has no more to do or some time has passed; only the last event
// and the last step go on.
const (
	applyTime   = time.Millisecond
	decideTime  = time.Millisecond
	workPerStep = 24 // the budget of a step, in evaluations
)

// Workload names the object of a decision.
type Workload struct {
	UID, Namespace, Name string
}

// Victim is a workload to evict.
type Victim struct {
	Workload
	Path   string // of its ClusterQueue: /root/…/cohort/queue
	Reason string // of the condition Preempted
}

// Decision is one decision in names, for the writers.
type Decision struct {
	Workload
	Queue      string
	Path       string       // of the ClusterQueue: /root/…/cohort/queue
	Gated      bool         // a preemption gate keeps it from being admitted
	Grant      *state.Grant // not nil when it is admitted
	Evict      []Victim
	Attempt    *trace.Attempt // shared; not to be modified
	PassedOver bool           // the workload was not evaluated itself: no attempt, and no event
	// SecondPass: the workload holds quota, and Grant is that with its new places, nil for none. NodesFailed: it has to be evicted then.
	// Failed are the nodes that are replaced: it is outdated as soon as others have failed, or none any more.
	SecondPass, NodesFailed bool
	Failed                  []string
}

// Writer writes decisions down. It must return at once and report what came of an
// admission, or of an eviction that failed, with an event.
type Writer interface {
	Write(Decision)
}

// Engine runs the state. Make it with New, add writers and watchers, then Run it.
type Engine struct {
	state   *state.State
	now     func() time.Time
	writers []Writer
	touched func(queues []state.Name, cohorts []string)
	turned  func(*Turn)
	model   atomic.Pointer[state.Model]

	batch     []state.Event // taken from the inbox and not applied yet
	batchEnds uint64        // what applied is once they are
	forking   forking

	mu        sync.Mutex
	inbox     inbox
	applied   uint64 // the number of the event up to which the state has all
	questions questions
	signal    chan struct{}
	open      bool // decisions may be made
	opened    bool // since the last turn
	paused    bool // none of them admits or preempts
}

// New returns an engine over an empty state. It makes no decision before Open.
func New(s *state.State, now func() time.Time) *Engine {
	e := &Engine{
		state: s, now: now, signal: make(chan struct{}, 1),
		touched: func([]state.Name, []string) {}, turned: func(*Turn) {},
	}
	e.model.Store(s.Publish())
	return e
}

// Model returns the read model of the last turn. It is published before the decisions of the turn are handed to the writers, and
// before OnTouched: who sees a write of the engine finds its cause in the model.
func (e *Engine) Model() *state.Model { return e.model.Load() }

// AddWriter adds a writer of all decisions. Call it before Run.
func (e *Engine) AddWriter(w Writer) { e.writers = append(e.writers, w) }

// OnTouched makes the engine call f with the queues and cohorts whose view in the published Model may have changed. It
// must return at once. Call it before Run.
func (e *Engine) OnTouched(f func(queues []state.Name, cohorts []string)) { e.touched = f }

// Turn is the work of one turn of the engine, and the time of its parts.
type Turn struct {
	Events                  int // applied
	Apply, Decide, Dispatch time.Duration
	Result                  cycle.Result // of its steps; without a cycle where none was made
}

// OnTurn makes the engine call f after every turn with work. It must return at once, and may
// not keep its argument. Call it before Run.
func (e *Engine) OnTurn(f func(*Turn)) { e.turned = f }

// Post hands over events. They are applied in the order of their posting, except within a turn: see inbox.takeTurn.
func (e *Engine) Post(events ...state.Event) {
	e.mu.Lock()
	for _, ev := range events {
		e.inbox.add(ev)
	}
	e.mu.Unlock()
	e.wake()
}

// wake wakes Run.
func (e *Engine) wake() {
	select {
	case e.signal <- struct{}{}:
	default:
	}
}

// Open lets the engine decide. Before it is called, which is when every informer has
// delivered what exists and this replica leads, the state only follows.
func (e *Engine) Open() {
	e.mu.Lock()
	e.open, e.opened = true, true
	e.mu.Unlock()
	e.wake()
}

// Pause restricts the decisions, from Open on, to workloads that no cycle is about: workloads without a queue, and workloads of
// queues that are stopped or inactive. Call it before Open.
func (e *Engine) Pause() { e.paused = true }

// Run applies events and answers questions until ctx ends.
func (e *Engine) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	timer.Stop() // until a turn says when the next is due
	defer timer.Stop()
	for {
		due := false // a turn, also without an event
		select {
		case <-ctx.Done():
			return nil
		case <-e.signal:
		case <-timer.C:
			due = true
		}
		for again := true; again && ctx.Err() == nil; again = due || e.hasWork() || e.forking.of != nil {
			if due || e.hasWork() {
				due = e.timedTurn(timer)
			}
			e.answer(ctx, due)
		}
	}
}

// timedTurn makes a turn and sets the timer to when the next is due without an event; it tells whether that is at once.
func (e *Engine) timedTurn(timer *time.Timer) (more bool) {
	more, next := e.runTurn()
	timer.Stop()
	if !more && next != 0 {
		timer.Reset(time.Unix(0, int64(next)).Sub(e.now()))
	}
	return more
}

// hasWork reports whether a turn would have something to do at once.
func (e *Engine) hasWork() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opened || len(e.batch) > 0 || e.inbox.Len() > 0
}

// runTurn applies events and makes decisions; it reports whether there is more
// to do and, if not, when to decide again without an event, 0 for never.
func (e *Engine) runTurn() (more bool, next workload.Instant) {
	start := e.now()
	events, open := e.apply(start)
	turn := Turn{Events: events}
	if open {
		from := e.now()
		if e.paused {
			turn.Result.Decisions = e.state.Notices()
		} else {
			turn.Result = e.decide(from)
		}
		decided := e.now()
		e.model.Store(e.state.Publish())
		for i := range turn.Result.Decisions {
			e.dispatch(&turn.Result.Decisions[i])
		}
		turn.Apply, turn.Decide, turn.Dispatch = from.Sub(start), decided.Sub(from), e.now().Sub(decided)
		more, next = turn.Result.More, turn.Result.Next
	} else {
		e.model.Store(e.state.Publish())
		turn.Apply = e.now().Sub(start)
	}
	if turn.Events > 0 || turn.Result.Cycles > 0 {
		e.turned(&turn)
	}
	if queues, cohorts := e.state.Touched(); len(queues)+len(cohorts) > 0 {
		e.touched(queues, cohorts)
	}
	return more, next
}

// apply applies events until none is left of a batch or applyTime has passed. It returns their number, and whether decisions may be made.
func (e *Engine) apply(start time.Time) (events int, open bool) {
	e.mu.Lock()
	if len(e.batch) == 0 {
		e.batch, e.batchEnds = e.inbox.takeTurn()
	}
	e.opened = false
	open = e.open
	e.mu.Unlock()
	for _, ev := range e.batch {
		e.state.Apply(ev)
		if events++; e.now().Sub(start) >= applyTime {
			break
		}
	}
	if e.batch = e.batch[events:]; len(e.batch) == 0 {
		e.mu.Lock()
		e.applied, e.batch = e.batchEnds, nil
		e.mu.Unlock()
	}
	return events, open
}

// decide makes steps until there is no more to do or decideTime has passed, and returns their results as one.
func (e *Engine) decide(start time.Time) cycle.Result {
	sum := e.state.Step(workload.Instant(start.UnixNano()), workPerStep)
	for sum.More {
		now := e.now()
		if now.Sub(start) >= decideTime {
			break
		}
		r := e.state.Step(workload.Instant(now.UnixNano()), workPerStep)
		sum.Decisions = append(sum.Decisions, r.Decisions...)
		sum.Cycles, sum.Admitting, sum.Heads, sum.Work = sum.Cycles+r.Cycles, sum.Admitting+r.Admitting, sum.Heads+r.Heads, sum.Work+r.Work
		sum.More, sum.Next, sum.Endless = r.More, r.Next, append(sum.Endless, r.Endless...)
	}
	return sum
}

func (e *Engine) dispatch(d *cycle.Decision) {
	out := Decision{Workload: name(d.Workload), Queue: d.Queue, Gated: d.Gated, Path: e.state.Path(d.Queue), Attempt: d.Attempt}
	out.SecondPass, out.NodesFailed, out.Failed = d.SecondPass, d.NodesFailed, d.Failed
	if d.Admitted != nil || d.Placed != nil {
		grant := e.state.Grant(d)
		out.Grant = &grant
	}
	for _, v := range d.Evict {
		out.Evict = append(out.Evict, Victim{name(v.Workload), e.state.Path(e.state.QueueOf(v.Workload.UID)), v.Reason})
	}
	for _, w := range e.writers {
		w.Write(out)
	}
}

func name(w *workload.Workload) Workload {
	ns, n := w.Split()
	return Workload{UID: w.UID, Namespace: ns, Name: n}
}
