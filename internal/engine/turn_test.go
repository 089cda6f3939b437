package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// slowEngine is an engine whose clock moves by a step whenever it is read.
func slowEngine(step time.Duration) *Engine {
	now := time.Unix(1000, 0)
	return New(state.New(state.Options{}), func() time.Time {
		now = now.Add(step)
		return now
	})
}

// A turn ends after a while, and the next one goes on with the events that are left: in their order, before later ones, and they count
// as applied only together.
func TestTurnsAreShort(t *testing.T) {
	e := slowEngine(applyTime / 2)
	e.Post(setup()...)
	var turns, applied []int
	e.OnTurn(func(turn *Turn) { turns, applied = append(turns, turn.Events), append(applied, int(e.applied)) })
	e.runTurn()
	e.Post(state.SetWorkload(pending("late")))
	for e.hasWork() {
		e.runTurn()
	}
	if want := []int{2, 2, 1}; !slices.Equal(turns, want) {
		t.Errorf("turns of %v events, want %v", turns, want)
	}
	if want := []int{0, 4, 5}; !slices.Equal(applied, want) {
		t.Errorf("applied up to %v, want %v", applied, want)
	}
	if e.state.QueueOf("late") != "cq" {
		t.Error("the last event came before those that were left")
	}
}

// A turn makes several steps while there is time, and its result is that of all of them.
func TestTurnsMakeSteps(t *testing.T) {
	for name, tc := range map[string]struct {
		step time.Duration
		more bool
	}{
		"enough time": {1, false},
		"no time":     {decideTime, true},
	} {
		t.Run(name, func(t *testing.T) {
			const queues = 3 * workPerStep
			e := slowEngine(tc.step)
			for _, ev := range setup()[:2] {
				e.state.Apply(ev)
			}
			for i := range queues {
				q, l := setup()[2].(state.SetQueue), setup()[3].(state.SetLocalQueue)
				q.Name = fmt.Sprint("cq", i)
				l.Name, l.Queue = q.Name, q.Name
				w := pending(fmt.Sprint("w", i))
				w.LocalQueue = l.Name
				for _, ev := range []state.Event{q, l, state.SetWorkload(w)} {
					e.state.Apply(ev)
				}
			}
			r := e.decide(e.now())
			if r.More != tc.more || len(r.Decisions) != r.Work || (r.Work == queues) == tc.more {
				t.Errorf("%d decisions, %d units of work, more: %v", len(r.Decisions), r.Work, r.More)
			}
			if !tc.more && (r.Cycles < 3 || r.Admitting != r.Cycles) {
				t.Errorf("%d cycles, %d of which admitted, in three steps at least", r.Cycles, r.Admitting)
			}
		})
	}
}

// TestInboxTwin: an inbox gives its events in turns as a list of all of them would.
func TestInboxTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var in inbox
		var list []state.Event // what waits
		next, versions := 0, uint64(0)
		for range rapid.IntRange(1, 30).Draw(rt, "rounds") {
			for range rapid.SampledFrom([]int{1, 10, 3 * eventsPerTurn, 2 * pieceLen}).Draw(rt, "posted") {
				next++
				e := state.SetWorkload{UID: fmt.Sprint(next), Queueable: true}
				in.add(e)
				list = append(list, e)
			}
			at := rapid.IntRange(0, len(list)-1).Draw(rt, "updated")
			versions++
			update := list[at].(state.SetWorkload)
			update.Version, update.Since = versions, workload.Instant(versions)
			in.add(update)
			list[at] = update
			for range rapid.IntRange(0, 12).Draw(rt, "turns") {
				if in.Len() == 0 {
					break
				}
				events, _ := in.takeTurn()
				for i, e := range events {
					if got, want := e.(state.SetWorkload), list[i].(state.SetWorkload); got.UID != want.UID || got.Version != want.Version {
						rt.Fatalf("event %d is %s of version %d, want %s of %d", i, got.UID, got.Version, want.UID, want.Version)
					}
				}
				list = list[len(events):]
			}
			if in.Len() != len(list) || len(in.by) != len(list) {
				rt.Fatalf("%d events wait, and %d places are kept, want %d", in.Len(), len(in.by), len(list))
			}
			if len(list) == 0 {
				return
			}
		}
	})
}
