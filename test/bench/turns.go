package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/state"
)

// turns: the world of steady behind an engine, whose decisions are written at once. 20,000 running workloads finish one after another,
// each followed by an arrival; in the middle 100,000 workloads arrive at once. A turn is what an event may have to wait for.
func (b *bench) turns() error { return b.turnsBeside("turn", nil) }

// turnsBeside measures turns as figures of a group. What runs beside, unless nil, is in a goroutine of its own until its context ends, and gets
// a time after all events.
func (b *bench) turnsBeside(group string, beside func(context.Context, *engine.Engine, workload.Instant) error) error {
	const events, finishes = 20_000, 4 // workloads that finish at a time
	y, err := newYard(cycle.Defaults(), preempt.Policy{}, 1000, many)
	if err != nil {
		return err
	}
	if err := b.measuring(); err != nil {
		return err
	}
	// Times are processor time of the engine's thread. As in a manager, the garbage collector has another core.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	from := time.Unix(0, int64(y.now))
	e := engine.New(y.s, func() time.Time { return from.Add(spentByThread()) })
	w := &turnWriter{engine: e, y: y}
	e.AddWriter(w)
	var took []float64 // milliseconds
	var turns []engine.Turn
	e.OnTurn(func(turn *engine.Turn) {
		took = append(took, (turn.Apply+turn.Decide+turn.Dispatch).Seconds()*1000)
		turns = append(turns, *turn)
		turns[len(turns)-1].Result.Decisions = nil
	})
	e.Open()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		ended <- e.Run(ctx)
	}()
	other := make(chan error, 1)
	if beside != nil {
		after := y.now + workload.Instant(time.Hour)
		go func() { other <- beside(ctx, e, after) }()
	} else {
		other <- nil
	}
	idle := func() error { return e.Ask(ctx, func(*state.State) {}) }
	for i := range events / finishes {
		var next []state.Event
		w.mu.Lock()
		if i == events/finishes/2 {
			for _, def := range y.burst(many) {
				next = append(next, state.SetWorkload(def))
			}
		}
		for range finishes {
			next = append(next, y.replace()...)
		}
		w.mu.Unlock()
		e.Post(next...)
		if err := idle(); err != nil {
			return err
		}
	}
	cancel()
	if err := errors.Join(<-other, <-ended); err != nil {
		return err
	}
	if w.written < events/2 {
		return fmt.Errorf("only %d workloads were admitted", w.written)
	}
	b.sayLongest(turns)
	b.figure(group+".p50_ms", percentile(took, 50))
	b.figure(group+".p99_ms", percentile(took, 99))
	b.figure(group+".p999_ms", percentile(took, 99.9))
	b.figure(group+".max_ms", percentile(took, 100))
	return nil
}

// forecasts: the turns of turns while a run of the forecast follows the other, without a pause; a manager makes one in a twentieth of the time.
// forecast.seconds is the processor time of a run, with its fork, over 2 hours.
func (b *bench) forecasts() error {
	var took []float64
	err := b.turnsBeside("forecast.turn", func(ctx context.Context, e *engine.Engine, now workload.Instant) error {
		runtime.LockOSThread()
		for n := uint64(0); ; n++ {
			at, err := e.Checkpoint(ctx)
			select {
			case <-ctx.Done():
				return nil
			default:
			}
			if err != nil {
				return err
			}
			from := spentByThread()
			if _, err := foresee(at, now, 2*time.Hour, n); err != nil {
				return err
			}
			took = append(took, (spentByThread() - from).Seconds())
		}
	})
	if err != nil {
		return err
	}
	b.say("%d forecasts", len(took))
	b.figure("forecast.seconds", percentile(took, 50))
	return nil
}

// sayLongest reports the longest turns.
func (b *bench) sayLongest(turns []engine.Turn) {
	length := func(t engine.Turn) time.Duration { return t.Apply + t.Decide + t.Dispatch }
	numbers := make([]int, len(turns))
	for i := range numbers {
		numbers[i] = i
	}
	slices.SortStableFunc(numbers, func(x, y int) int { return cmp.Compare(length(turns[y]), length(turns[x])) })
	b.say("the longest of %d turns:", len(turns))
	for _, i := range numbers[:min(12, len(numbers))] {
		t := &turns[i]
		b.say("turn %d: %v = %v for %d events + %v for %d units of work + %v", i, length(*t), t.Apply, t.Events, t.Decide, t.Result.Work, t.Dispatch)
	}
}

// spentByThread is the processor time of this thread so far.
func spentByThread() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // only its arguments can be wrong
	}
	return time.Duration(t.Nano())
}

// turnWriter writes admissions at once, in the engine's goroutine.
type turnWriter struct {
	engine  *engine.Engine
	mu      sync.Mutex // guards the rest
	y       *yard
	written int
}

func (w *turnWriter) Write(d engine.Decision) {
	if d.Grant == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written++
	n := w.y.job(d.UID)
	j := &w.y.jobs[n]
	j.at = int32(len(w.y.running))
	w.y.running = append(w.y.running, n)
	j.def.Version++
	j.def.Reserved, j.def.Admitted, j.def.Queue, j.def.ReservedAt = true, true, d.Queue, w.y.now
	j.def.Held = d.Grant.PodSets[0].Held
	w.engine.Post(state.AdmissionWritten(j.def))
}

// burst makes workloads that arrive at once.
func (y *yard) burst(n int) []state.Workload {
	defs := make([]state.Workload, n)
	for i := range defs {
		q := y.busy[i%len(y.busy)]
		y.now += millis
		defs[i] = arrival(len(y.slots), q, y.priority(), y.now, y.shapes[q][y.rnd.IntN(len(y.shapes[q]))].podSets("main"))
		y.slots = append(y.slots, int32(len(y.jobs)))
		y.jobs = append(y.jobs, job{def: defs[i], at: -1})
	}
	return defs
}

// replace returns the end of a random running workload and the arrival that takes its place; nothing if none runs.
func (y *yard) replace() []state.Event {
	if len(y.running) == 0 {
		return nil
	}
	n := y.running[y.rnd.IntN(len(y.running))]
	j := &y.jobs[n]
	y.stopped(j)
	done := j.def.UID
	y.now += millis
	j.def.UID, j.def.Name = identity(len(y.slots))
	y.slots = append(y.slots, n)
	j.def.Version, j.def.Created, j.def.Since = 1, y.now, y.now
	j.def.Reserved, j.def.Admitted, j.def.Queue, j.def.Held, j.def.ReservedAt = false, false, "", nil, 0
	return []state.Event{state.DeleteWorkload(done), state.SetWorkload(j.def)}
}

// copies: the longest piece of a checkpoint of the world of steady, and all pieces together, in its owner's goroutine; how long a fork of
// it takes beside; and what the recorder keeps beside that world after so many events that its record is full. The wide figures are of
// a world with 10,000 queues and as many pending workloads.
func (b *bench) copies() error {
	if err := b.wideCheckpoints(); err != nil {
		return err
	}
	y, err := newYard(cycle.Defaults(), preempt.Policy{}, 1000, many)
	if err != nil {
		return err
	}
	if err := b.checkpoints("snapshot.", y, true); err != nil {
		return err
	}
	for range 6 {
		if _, err := y.play(b, recorded, math.MaxInt64); err != nil {
			return err
		}
	}
	full := heap()
	y.s.Record(recorded) // which drops the record
	empty := heap()
	c := y.s.Checkpoint()
	b.figure("recorder.bytes", full-empty+(heap()-empty)) // the record has as large a checkpoint now
	runtime.KeepAlive(y)
	runtime.KeepAlive(c)
	return nil
}

func (b *bench) wideCheckpoints() error {
	y, err := newYard(cycle.Defaults(), preempt.Policy{}, 10_000, many)
	if err != nil {
		return err
	}
	return b.checkpoints("snapshot.wide_", y, false)
}

// checkpoints measures the checkpoints of a world between events, and forks of them.
func (b *bench) checkpoints(name string, y *yard, fork bool) error {
	if err := b.measuring(); err != nil {
		return err
	}
	var pauses, totals, forks []float64
	for range 9 {
		y.prepare(10)
		for range 10 {
			y.event()
		}
		began := spent()
		c := y.s.BeginCheckpoint()
		total := spent() - began
		pause := total
		for more := true; more; {
			began = spent()
			more = y.s.ContinueCheckpoint(1024)
			took := spent() - began
			pause, total = max(pause, took), total+took
		}
		pauses, totals = append(pauses, pause.Seconds()*1000), append(totals, total.Seconds()*1000)
		if !fork {
			continue
		}
		began = spent()
		fork, err := c.Fork()
		if err != nil {
			return err
		}
		forks = append(forks, (spent()-began).Seconds()*1000)
		runtime.KeepAlive(fork)
	}
	b.figure(name+"pause_ms", median(pauses))
	b.figure(name+"total_ms", median(totals))
	if fork {
		b.figure("fork.ready_ms", median(forks))
	}
	return nil
}

// recorded is how many events a manager records at least.
const recorded = 5000
