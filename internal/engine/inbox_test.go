package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-project/berth/internal/state"
)

func update(uid string, version uint64) state.Workload {
	w := pending(uid)
	w.Version = version
	return w
}

// takeAll empties an inbox as turns do.
func takeAll(in *inbox) (turns [][]state.Event, applied []uint64) {
	for in.Len() > 0 {
		events, number := in.takeTurn()
		turns, applied = append(turns, events), append(applied, number)
	}
	return turns, applied
}

func TestInbox(t *testing.T) {
	ended := update("a", 9)
	ended.Queueable = false
	a, b := state.SetWorkload(update("a", 1)), state.SetWorkload(update("b", 1))
	a2, stale := state.SetWorkload(update("a", 2)), state.SetWorkload(update("a", 0))
	for name, tc := range map[string]struct{ posted, want []state.Event }{
		"as posted":                            {[]state.Event{state.DeleteQueue("q"), a, b}, []state.Event{state.DeleteQueue("q"), a, b}},
		"updates of one workload":              {[]state.Event{a, b, a2}, []state.Event{a2, b}},
		"an older version":                     {[]state.Event{a, stale}, []state.Event{a, stale}},
		"updates with another event between":   {[]state.Event{a, state.AdmissionFailed{UID: "a"}, a2}, []state.Event{a, state.AdmissionFailed{UID: "a"}, a2}},
		"releases first":                       {[]state.Event{b, state.SetWorkload(ended)}, []state.Event{state.SetWorkload(ended), b}},
		"deletions first":                      {[]state.Event{b, state.DeleteWorkload("a")}, []state.Event{state.DeleteWorkload("a"), b}},
		"a release after an update stays":      {[]state.Event{b, a, state.DeleteWorkload("a")}, []state.Event{b, a, state.DeleteWorkload("a")}},
		"a workload that comes after its name": {[]state.Event{state.DeleteWorkload("a"), b, a}, []state.Event{state.DeleteWorkload("a"), b, a}},
	} {
		t.Run(name, func(t *testing.T) {
			var in inbox
			for _, e := range tc.posted {
				in.add(e)
			}
			turns, applied := takeAll(&in)
			if got := slices.Concat(turns...); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got  %v\nwant %v", got, tc.want)
			}
			if applied[len(applied)-1] != uint64(len(tc.posted)) {
				t.Errorf("%d of %d events count as applied", applied[len(applied)-1], len(tc.posted))
			}
		})
	}
}

// A turn applies a bounded number of events. An update of a workload counts as applied with the event that it replaces.
func TestInboxOfManyTurns(t *testing.T) {
	var in inbox
	add := func(from, to int) {
		for i := from; i < to; i++ {
			in.add(state.SetWorkload(update(fmt.Sprint(i), 1)))
		}
	}
	const many = 2*eventsPerTurn + 1
	add(0, many)
	in.add(state.SetWorkload(update("0", 2)))
	in.add(state.SetWorkload(update(fmt.Sprint(many-1), 2)))
	first, applied := in.takeTurn()
	if e, is := first[0].(state.SetWorkload); !is || len(first) != eventsPerTurn || e.Version != 2 || applied != eventsPerTurn {
		t.Fatalf("%d events in a turn, applied up to %d; the first is %v", len(first), applied, first[0])
	}
	in.add(state.SetWorkload(update("0", 3)))                // its last update is gone: this is a new event
	in.add(state.SetWorkload(update(fmt.Sprint(many-1), 3))) // this one replaces an event that waits
	turns, numbers := takeAll(&in)
	if rest := slices.Concat(turns...); len(rest) != eventsPerTurn+2 || rest[len(rest)-2].(state.SetWorkload).Version != 3 {
		t.Errorf("%d events are left", len(rest))
	}
	if want := []uint64{2 * eventsPerTurn, many + 4}; !slices.Equal(numbers, want) {
		t.Errorf("applied up to %v, want %v", numbers, want)
	}
	if len(in.by) != 0 {
		t.Errorf("%d places are kept", len(in.by))
	}
}
