package cycle

import (
	"testing"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/ledger/ledgertest"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// seated is a world of three queues with more quota than anything needs, and four seats, of which
// a workload of the first queue holds three.
type seated struct {
	w       *World
	racks   *ledgertest.Racks
	key     ledger.Key
	a, b, c *Queue
	holder  *workload.Workload
}

func newSeated() *seated {
	s := &seated{w: NewWorld(Defaults()), racks: &ledgertest.Racks{Free: []resource.Amount{4}}}
	s.key = s.w.Extend(s.racks)
	cohort := s.w.Quota.Add("all", true)
	s.a, s.b, s.c = addQueue(s.w, "a", cohort, 10), addQueue(s.w, "b", cohort, 10), addQueue(s.w, "c", cohort, 10)
	s.holder = &workload.Workload{UID: "holder", Key: "default/holder", Queue: s.a.Index}
	s.holder.Usage = s.with(ledger.Usage{Quota: resource.Vector{{FR: 0, Amount: 1}}}, 3)
	s.w.Reserve(s.holder)
	s.w.Step(1, 10)
	return s
}

func (s *seated) with(u ledger.Usage, seats resource.Amount) ledger.Usage {
	return u.With(s.key, ledgertest.Seats{seats})
}

// nominate is the nomination of a head that also needs seats, as the search for a place would add
// them. It begins the turn of the head.
func (s *seated) nominate(q *Queue, wl *workload.Workload, seats resource.Amount) *entry {
	e := s.w.entry(q, wl)
	s.w.nominate(e)
	e.got.Usage = s.with(e.got.Usage, seats)
	return e
}

func (s *seated) wantFree(t *testing.T, when string, want resource.Amount) {
	t.Helper()
	if got := s.racks.Free[0]; got != want {
		t.Fatalf("%s: %d seats are free, want %d", when, got, want)
	}
}

// TestDimension: a head waits for a dimension that no package but ledger knows, is evaluated again
// once some of it is released, holds it when admitted, and gives it back.
func TestDimension(t *testing.T) {
	s := newSeated()
	s.wantFree(t, "at first", 1)
	wl := enqueue(s.w, s.b, "head", 1, 2)
	admit := func() Decision {
		t.Helper()
		c := &s.w.round
		c.decisions, c.skipped = nil, nil
		s.b.evaluated, s.b.evaluatedVersion = wl, s.b.tree.version
		c.admit(s.nominate(s.b, wl, 2))
		return c.decisions[0]
	}
	if d := admit(); d.Look.Verdict != trace.Waits || wl.Reserved {
		t.Fatalf("with too few seats free, it %s", d.Look.Verdict)
	}
	if queues := s.w.ready([]*tree{s.b.tree}); len(queues) > 0 {
		t.Fatal("it is evaluated again although nothing has changed")
	}
	s.w.Release(s.holder)
	s.wantFree(t, "after the release", 4)
	if queues := s.w.ready([]*tree{s.b.tree}); len(queues) != 1 || queues[0] != s.b {
		t.Fatal("it is not evaluated again after seats were released")
	}
	if d := admit(); d.Look.Verdict != trace.Admitted || !wl.Usage.Equal(s.with(ledger.Usage{Quota: resource.Vector{{FR: 0, Amount: 2}}}, 2)) {
		t.Fatalf("it %s with %v", d.Look.Verdict, wl.Usage)
	}
	s.wantFree(t, "with the head admitted", 2)
	s.w.RemoveQueue(s.b)
	s.wantFree(t, "without its queue", 4)
}

// TestDimensionOfPreemptor: seats of a victim are held for its preemptor, and nothing is left of
// that when the cycle ends.
func TestDimensionOfPreemptor(t *testing.T) {
	s := newSeated()
	first, second := enqueue(s.w, s.b, "preemptor", 1, 2), enqueue(s.w, s.c, "other", 2, 2)
	c := &s.w.round
	c.decisions, c.skipped = nil, nil
	e := s.nominate(s.b, first, 4)
	e.targets = []preempt.Victim{{Workload: s.holder, Node: s.a.Node}}
	c.preempt(e)
	s.wantFree(t, "with its seats held for the preemptor", 0)
	usage, _, _ := s.b.Nomination()
	if !usage.Equal(e.got.Usage) || !s.holder.Evicting {
		t.Fatalf("%v is held, want %v; its victim is evicted: %v", usage, e.got.Usage, s.holder.Evicting)
	}
	c.admit(s.nominate(s.c, second, 1))
	if d := c.decisions[1]; d.Look.Verdict != trace.Waits {
		t.Fatalf("another head %s with seats that are held", d.Look.Verdict)
	}
	c.undo()
	s.wantFree(t, "after the cycle", 1)
	if s.w.leaving(s.b, first, usage) == nil {
		t.Error("the eviction of its victim is not sufficient any more")
	}
	s.wantFree(t, "after another question", 1)
}
