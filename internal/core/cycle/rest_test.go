package cycle

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestRests: a tree that comes no further rests for a second, whatever happens in it. Others go on, and afterwards it goes on where it was.
func TestRests(t *testing.T) {
	defer func(most, perPending int) { mostVain, vainPerPending = most, perPending }(mostVain, vainPerPending)
	mostVain, vainPerPending = 2, 0
	w := NewWorld(Defaults())
	a, b := addQueue(w, "a", quota.None, 3), addQueue(w, "b", quota.None, 3)
	for i, gpus := range []resource.Amount{2, 2, 3, 1} {
		name := []string{"1st", "2nd", "3rd", "4th"}[i]
		enqueue(w, a, name, int32(i+1), gpus)
		enqueue(w, b, "b "+name, int32(i+1), 1)
	}
	const begin = workload.Instant(1e9)
	for _, step := range []struct {
		now      workload.Instant
		decided  []string
		endless  []string
		next     workload.Instant
		arriving string
	}{
		{begin, []string{"1st admitted", "b 1st admitted", "2nd waits", "b 2nd admitted", "3rd waits", "b 3rd admitted", "b 4th waits"}, []string{"a"}, begin + restTime, "late"},
		{begin + restTime - 1, nil, nil, begin + restTime, ""},
		{begin + restTime, []string{"4th admitted", "late waits"}, nil, 0, ""},
		{begin + restTime + 1, nil, nil, 0, ""},
	} {
		r := w.Step(step.now, math.MaxInt)
		if diff := cmp.Diff(step.decided, verdicts(r)); diff != "" {
			t.Errorf("decisions at %d (-want +got):\n%s", step.now, diff)
		}
		if r.More || !slices.Equal(r.Endless, step.endless) || r.Next != step.next {
			t.Errorf("at %d: more %v, endless %v, next %d", step.now, r.More, r.Endless, r.Next)
		}
		if step.arriving != "" {
			enqueue(w, a, step.arriving, 9, 3)
		}
	}
}

// TestProgress: more admissions and evictions than ever since it was touched are progress; admissions in place of retracted ones are not.
func TestProgress(t *testing.T) {
	w, tr := &World{}, &tree{}
	for i, cycle := range []struct{ gained, vain int }{{0, 1}, {2, 0}, {0, 1}, {-1, 2}, {1, 3}, {-1, 4}, {1, 5}, {1, 0}} {
		w.gained = cycle.gained
		if w.countCycle([]*tree{tr}) || tr.progress.vain != cycle.vain {
			t.Errorf("after cycle %d: %+v, want %d in vain", i, tr.progress, cycle.vain)
		}
	}
	tr.progress.vain = mostVain - 1
	if !w.countCycle([]*tree{{}, tr}) {
		t.Error("it does not rest")
	}
}

// TestRefusesMany: a queue that refuses a great many workloads in one step, each in a cycle of its own, does not rest.
func TestRefusesMany(t *testing.T) {
	const many = 5000
	w := NewWorld(Defaults())
	q := addQueue(w, "q", quota.None, 1)
	for i := range many {
		enqueue(w, q, fmt.Sprintf("%04d", i), int32(i+1), resource.Amount(i+2))
	}
	enqueue(w, q, "last", many+1, 1)
	r := w.Step(1, math.MaxInt)
	if len(r.Endless) > 0 || len(r.Decisions) != many+1 || r.Decisions[many].Admitted == nil {
		t.Errorf("%d decisions, endless %v", len(r.Decisions), r.Endless)
	}
}

// TestClockSetBack: what waits for a time waits no longer than from now on after the clock was set back.
func TestClockSetBack(t *testing.T) {
	const now, later = workload.Instant(time.Minute), workload.Instant(time.Hour)
	w := NewWorld(Defaults())
	q := &Queue{nomination: &nomination{since: later}}
	w.due = []*tree{{queues: []*Queue{q}, edited: true, woke: true, wokeAt: later}}
	w.resting = []*tree{{restsUntil: later}}
	w.holders = []*Queue{q}
	for name, tc := range map[string]struct {
		of   func(workload.Instant) workload.Instant
		wait workload.Instant
	}{
		"edits": {w.wakeEdited, w.EditWindow}, "a tree that rests": {w.endRests, restTime}, "a nomination": {w.expireNominations, w.ClaimTimeout},
	} {
		for range 2 {
			if got := tc.of(now); got != now+tc.wait {
				t.Errorf("%s: next at %v, want %v", name, time.Duration(got), time.Duration(now+tc.wait))
			}
		}
	}
	interrupted := &tree{runSince: later, queues: []*Queue{{Preemption: preempt.Policy{Within: preempt.LowerPriority}}}}
	w.touched = []*tree{interrupted}
	for _, at := range []workload.Instant{now, now + holdWindow} {
		if w.SettleAdmissions(at, true); interrupted.tentative != (at == now) {
			t.Errorf("after %v admissions of an interrupted run are tentative: %v", time.Duration(at-now), interrupted.tentative)
		}
	}
}
