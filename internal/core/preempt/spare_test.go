package preempt

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestSpare: which of two candidates goes, if one has just started. The first is that of TestTargets: the newest of the lowest priority.
func TestSpare(t *testing.T) {
	const now = 100
	two := func(minimum workload.Instant, change ...func(old, fresh *workload.Workload)) func() *world {
		return func() *world {
			w := newWorld(queue("q", "", 4))
			w.reserve(held{"old", "q", 2, 0, 10}, held{"fresh", "q", 2, 0, 90})
			ws := w.holders[w.nodes["q"]]
			for _, wl := range ws {
				wl.MinRun = minimum
			}
			for _, c := range change {
				c(ws[0], ws[1])
			}
			return w
		}
	}
	cohorts := func(of ...held) *world {
		w := newWorld(cohort("root", ""), queue("q", "root", 4), queue("b", "root", 0), queue("c", "root", 0))
		w.reserve(of...)
		for _, ws := range w.holders {
			for _, wl := range ws {
				wl.MinRun = 20
			}
		}
		return w
	}
	lower, reclaim := Policy{Within: LowerPriority}, Policy{Reclaim: Any}
	fair := &Fair{Strategies: []Strategy{LessThanOrEqualToFinalShare, LessThanInitialShare}}
	tests := map[string]struct {
		world  func() *world
		policy Policy
		fair   *Fair
		amount resource.Amount
		want   []string
	}{
		"no minimum":                     {two(0), lower, nil, 1, []string{"fresh InClusterQueue"}},
		"its minimum is over":            {two(10), lower, nil, 1, []string{"fresh InClusterQueue"}},
		"the last moment of its minimum": {two(11), lower, nil, 1, []string{"old InClusterQueue"}},
		"by shares":                      {two(11), lower, fair, 1, []string{"old InClusterQueue"}},
		"both have just started":         {two(91), lower, nil, 1, []string{"fresh InClusterQueue"}},
		"both are needed":                {two(11), lower, nil, 4, []string{"fresh InClusterQueue", "old InClusterQueue"}},
		"the other one has a higher priority": {
			two(11, func(old, _ *workload.Workload) { old.Priority = 5 }), lower, nil, 1, []string{"old InClusterQueue"},
		},
		"the other one may not be preempted": {
			two(11, func(old, _ *workload.Workload) { old.Priority = 9 }), lower, nil, 1, []string{"fresh InClusterQueue"},
		},
		"it is being evicted": {
			two(11, func(_, fresh *workload.Workload) { fresh.Evicting = true }), lower, nil, 1, []string{"fresh InClusterQueue"},
		},
		"its admission is tentative": {
			two(11, func(_, fresh *workload.Workload) { fresh.Tentative = true }), lower, nil, 1, []string{"fresh InClusterQueue"},
		},
		"in another queue": {
			func() *world { return cohorts(held{"fresh", "b", 2, 0, 90}, held{"old", "c", 2, 5, 10}) }, reclaim, nil, 1,
			[]string{"old InCohortReclamation"},
		},
		"in another queue, by shares": { // that of b is the higher one
			func() *world { return cohorts(held{"fresh", "b", 3, 0, 90}, held{"old", "c", 1, 0, 10}) }, reclaim, fair, 1,
			[]string{"old InCohortFairSharing"},
		},
		"the candidates of all lists come before it": { // the own queue is the last list
			func() *world {
				w := newWorld(cohort("root", ""), queue("q", "root", 2), queue("b", "root", 0))
				w.reserve(held{"fresh", "b", 1, 0, 90}, held{"old", "q", 1, 0, 10})
				for _, ws := range w.holders {
					ws[0].MinRun = 20
				}
				return w
			}, Policy{Within: LowerPriority, Reclaim: Any}, nil, 1, []string{"old InClusterQueue"},
		},
		"without it there is none": { // after old, b is within its quota
			func() *world {
				w := newWorld(cohort("root", ""), queue("q", "root", 4), queue("b", "root", 4))
				w.reserve(held{"fresh", "b", 3, 0, 90}, held{"old", "b", 2, 0, 10})
				w.holders[w.nodes["b"]][0].MinRun = 20
				return w
			}, Policy{Reclaim: Any, BorrowWithin: true}, nil, 6, []string{"fresh InCohortReclaimWhileBorrowing"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := tc.world().search("q", tc.policy, 9, tc.amount)
			s.Fair = tc.fair
			victims := s.Spare(targets(s), now)
			if diff := cmp.Diff(tc.want, describe(victims)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// hasJustStarted is the rule of Workload.Early, in other words.
func hasJustStarted(now workload.Instant) func(w *workload.Workload) bool {
	return func(w *workload.Workload) bool {
		switch {
		case w.MinRun == 0, w.Evicting, w.Tentative:
			return false
		}
		return w.ReservedAt+w.MinRun > now
	}
}

func count(victims []Victim, of func(w *workload.Workload) bool) (n int) {
	for _, v := range victims {
		if of(v.Workload) {
			n++
		}
	}
	return n
}

// TestSpareTwin: the same victims in the same order, and for the same reasons, as two literal searches. There are victims exactly
// if there are without minima, and of no more that have just started. Within a queue whose rest suffices there is none.
func TestSpareTwin(t *testing.T) {
	for name, tc := range map[string]struct {
		draw func(*rapid.T) (*world, *Search)
		find func(twin) []Victim
	}{
		"classical": {drawSearch, func(t twin) []Victim { return t.classical() }},
		"fair":      {drawFair, func(t twin) []Victim { return (&fairTwin{twin: t}).fair() }},
	} {
		t.Run(name, func(t *testing.T) {
			found, changed, fewer, unavoidable := 0, 0, 0, 0
			rapid.Check(t, func(rt *rapid.T) {
				w, s := tc.draw(rt)
				now := workload.Instant(pick(rt, "now", 3, 5, 6))
				isEarly := hasJustStarted(now)
				plainly := targets(s)
				want := tc.find(twin{s, w.plainOf(s), nil})
				if others := tc.find(twin{s, w.plainOf(s), isEarly}); len(others) > 0 && count(others, isEarly) < count(want, isEarly) {
					want = others
				}
				got := s.Spare(slices.Clone(plainly), now)
				if diff := cmp.Diff(inOrder(want), inOrder(got)); diff != "" {
					rt.Fatalf("victims (-twin +search):\n%s", diff)
				}
				before, after := count(plainly, isEarly), count(got, isEarly)
				if (len(got) == 0) != (len(plainly) == 0) || after > before {
					rt.Fatalf("%v instead of %v", describe(got), describe(plainly))
				}
				if before == 0 {
					return
				}
				found++
				if after < before {
					changed++
				}
				if after == 0 {
					fewer++
				}
				if s.Policy.Reclaim == Never && after > 0 {
					unavoidable++
					p := w.plainOf(s)
					for _, c := range w.holders[s.Node] {
						if w := (Victim{Workload: c, Node: s.Node}); !isEarly(c) && (&twin{Search: s}).passes(c, s.Node) {
							p.remove(w)
						}
					}
					if p.fits(s.Node, s.Requests.Quota) {
						rt.Fatalf("%v, though the others suffice", describe(got))
					}
				}
			})
			t.Logf("victims that have just started in %d worlds, fewer in %d, none in %d; of one queue and needed in %d", found, changed, fewer, unavoidable)
			if found < 50 || changed < 20 || fewer < 20 || unavoidable < 5 {
				t.Error("the worlds are not what they should be")
			}
		})
	}
}

// BenchmarkSpare finds 50 victims of 10,000 holders, half of which have just started, and then 50 others.
func BenchmarkSpare(b *testing.B) {
	for name, fair := range map[string]*Fair{"classical": nil, "fair": {}} {
		b.Run(name, func(b *testing.B) {
			c := newCohortOf(10)
			for n := c.first; n < c.first+10; n++ {
				for w := range c.holders[n].All() {
					if w.ReservedAt > 500 {
						w.MinRun = 1000
					}
				}
			}
			s := c.search(c.idle, Policy{Reclaim: Any}, fair)
			if got := s.Spare(targets(s), 1000); len(got) != 50 || countEarly(got, 1000) > 0 {
				b.Fatalf("%d victims, %d of which have just started", len(got), countEarly(got, 1000))
			}
			b.ReportAllocs()
			for b.Loop() {
				s.Spare(targets(s), 1000)
			}
		})
	}
}
