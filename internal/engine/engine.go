// Package engine is the one goroutine that owns the scheduling state: it applies the
// events that informers and writers post, lets the state make progress, and hands
// the decisions to the writers. spec: 10 §4.1.
package engine

import (
	"context"
	"sync"
	"time"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// cyclesPerStep bounds how long events have to wait for a step to end.
const cyclesPerStep = 64

// Event changes the state. It runs in the engine's goroutine and must not block.
type Event func(*state.State)

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
	Generation int64 // of the spec that was looked at
	Queue      string
	Path       string       // of the ClusterQueue: /root/…/cohort/queue
	Gated      bool         // a preemption gate keeps it from being admitted
	Grant      *state.Grant // not nil when it is admitted
	Evict      []Victim
	Look       *trace.Look // shared; not to be modified
	PassedOver bool        // the workload was not evaluated itself: no attempt, and no event
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

	mu        sync.Mutex
	inbox     []Event
	questions questions
	posted    uint64 // events
	applied   uint64 // how many of them the state has, or has once the turn is over
	signal    chan struct{}
	open      bool // decisions may be made
	paused    bool // none of them admits or preempts
}

// New returns an engine over an empty state. It makes no decision before Open.
func New(s *state.State, now func() time.Time) *Engine {
	return &Engine{
		state: s, now: now, signal: make(chan struct{}, 1),
		touched: func([]state.Name, []string) {}, turned: func(*Turn) {},
	}
}

// AddWriter adds a writer of all decisions. Call it before Run.
func (e *Engine) AddWriter(w Writer) { e.writers = append(e.writers, w) }

// OnTouched makes the engine call f with the queues and cohorts whose view may have changed. It
// must return at once. Call it before Run.
func (e *Engine) OnTouched(f func(queues []state.Name, cohorts []string)) { e.touched = f }

// Turn is the work of one turn of the engine, and the time of its parts.
type Turn struct {
	Events                  int // applied
	Apply, Decide, Dispatch time.Duration
	Result                  cycle.Result // of the step; without a cycle where none was made
}

// OnTurn makes the engine call f after every turn with work. It must return at once, and may
// not keep its argument. Call it before Run.
func (e *Engine) OnTurn(f func(*Turn)) { e.turned = f }

// Post hands over an event; events are applied in the order of their posting.
func (e *Engine) Post(ev Event) {
	e.mu.Lock()
	e.inbox = append(e.inbox, ev)
	e.posted++
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
	e.open = true
	e.mu.Unlock()
	e.Post(func(*state.State) {})
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
		for again := true; again && ctx.Err() == nil; again = due || e.hasEvents() {
			if due || e.hasEvents() {
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

func (e *Engine) hasEvents() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.inbox) > 0
}

// runTurn applies the inbox and makes one step; it reports whether there is more
// to do and, if not, when to step again without an event, 0 for never.
func (e *Engine) runTurn() (more bool, next workload.Instant) {
	e.mu.Lock()
	events := e.inbox
	e.inbox, e.applied, e.questions.answers = nil, e.posted, nil
	open := e.open
	e.mu.Unlock()
	turn, start := Turn{Events: len(events)}, e.now()
	for _, ev := range events {
		ev(e.state)
	}
	if open {
		applied := e.now()
		if e.paused {
			turn.Result.Decisions = e.state.Notices()
		} else {
			turn.Result = e.state.Step(workload.Instant(applied.UnixNano()), cyclesPerStep)
		}
		decided := e.now()
		for i := range turn.Result.Decisions {
			e.dispatch(&turn.Result.Decisions[i])
		}
		turn.Apply, turn.Decide, turn.Dispatch = applied.Sub(start), decided.Sub(applied), e.now().Sub(decided)
		more, next = turn.Result.More, turn.Result.Next
	} else {
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

func (e *Engine) dispatch(d *cycle.Decision) {
	out := Decision{Workload: name(d.Workload), Generation: e.state.Generation(d.Workload.UID), Queue: d.Queue, Gated: d.Gated, Path: e.state.Path(d.Queue), Look: d.Look}
	if d.Look.Verdict == trace.Admitted {
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
