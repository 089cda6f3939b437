package state

import (
	"testing"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/topology"
)

// TestSecondPassFollowsQueue: pods of a queue that places them in other clusters get no second pass here, whenever the queue says so.
func TestSecondPassFollowsQueue(t *testing.T) {
	gates := topology.DefaultGates()
	here, elsewhere := Queue{Name: "q"}, Queue{Name: "q", PlacedElsewhere: true}
	w := SetWorkload{
		UID: "u", Namespace: "n", Name: "w", LocalQueue: "q", Version: 1, Reserved: true, Queue: "q", PlaceNow: true,
		PodSets: []PodSet{{Name: "main", Count: 1}}, Delayed: []string{"main"},
	}
	for name, tc := range map[string]struct {
		events []Event
		want   int
	}{
		"the queue comes first":                     {[]Event{SetQueue(elsewhere), w}, 0},
		"the queue comes later":                     {[]Event{w, SetQueue(elsewhere)}, 0},
		"the queue comes later, and places here":    {[]Event{w, SetQueue(here)}, 1},
		"the queue does no longer place here":       {[]Event{SetQueue(here), w, SetQueue(elsewhere)}, 0},
		"the queue places here now":                 {[]Event{SetQueue(elsewhere), w, SetQueue(here)}, 1},
		"the queue is made anew for other clusters": {[]Event{SetQueue(here), w, DeleteQueue("q"), SetQueue(elsewhere)}, 0},
	} {
		s := New(Options{Options: cycle.Defaults(), Topology: &gates})
		for _, e := range tc.events {
			s.Apply(e)
		}
		if len(s.second) != tc.want {
			t.Errorf("%s: %d wait for a second pass, want %d", name, len(s.second), tc.want)
		}
	}
}

// TestSecondPassAfterClockSetBack: a second pass waits no longer than its pause.
func TestSecondPassAfterClockSetBack(t *testing.T) {
	gates := topology.DefaultGates()
	s := New(Options{Options: cycle.Defaults(), Topology: &gates})
	s.Apply(SetQueue{Name: "q"})
	s.Apply(SetWorkload{
		UID: "u", Namespace: "n", Name: "w", LocalQueue: "q", Version: 1, Reserved: true, Queue: "q", PlaceNow: true,
		PodSets: []PodSet{{Name: "main", Count: 1}}, Delayed: []string{"main"},
	})
	const day = 24 * 3600 * firstPause
	s.runSecondPass(2 * day)
	if _, next := s.runSecondPass(day); next != day+firstPause {
		t.Errorf("the next round is %d s away", (next-day)/firstPause)
	}
}
