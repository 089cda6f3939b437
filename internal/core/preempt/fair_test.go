package preempt

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestFair are the acceptance examples 8 to 12 of spec 20 §7, and its tie rules.
func TestFair(t *testing.T) {
	final, initial := []Strategy{LessThanOrEqualToFinalShare}, []Strategy{LessThanInitialShare}
	both := []Strategy{LessThanOrEqualToFinalShare, LessThanInitialShare}
	top := func(nominal resource.Amount) node { return node{name: "root", nominal: nominal, cohort: true} }
	reclaim := Policy{Within: LowerPriority, Reclaim: Any}
	ex8 := func() *world {
		w := newWorld(top(10), queue("A", "root", 0), queue("B", "root", 0))
		w.reserve(held{"b1", "B", 2, 0, 1}, held{"b2", "B", 4, 1, 2})
		return w
	}
	ex9 := func() *world {
		w := newWorld(top(0), queue("A", "root", 5), queue("B", "root", 5))
		w.reserve(held{"b1", "B", 5, 0, 1}, held{"b2", "B", 5, 1, 2})
		return w
	}
	equals := func(first, second string) *world { // two cohorts, by name
		w := newWorld(top(8), queue("A", "root", 0), cohort(first, "root"), cohort(second, "root"), queue("B", first, 0), queue("C", second, 0))
		w.reserve(held{"of " + first, "B", 4, 0, 1}, held{"of " + second, "C", 4, 0, 2})
		return w
	}
	tests := map[string]struct {
		world  func() *world
		fair   Fair
		policy Policy
		amount resource.Amount
		want   []string
	}{
		"8: refused by the final share":            {ex8, Fair{Strategies: final}, reclaim, 5, nil},
		"8: accepted by the initial share":         {ex8, Fair{Strategies: both}, reclaim, 5, []string{"b1 InCohortFairSharing"}},
		"8: accepted by that alone":                {ex8, Fair{Strategies: initial}, reclaim, 5, []string{"b1 InCohortFairSharing"}},
		"8: equal to the final share will do":      {ex8, Fair{Strategies: final}, reclaim, 4, []string{"b1 InCohortFairSharing"}},
		"8: equal to the initial one will not":     {ex8, Fair{Strategies: both}, reclaim, 6, nil},
		"9: within nominal no shares are compared": {ex9, Fair{both, true}, reclaim, 5, []string{"b1 InCohortReclamation"}},
		"9: they are if that is off":               {ex9, Fair{both, false}, reclaim, 5, []string{"b1 InCohortFairSharing"}},
		"10: fill back": {func() *world {
			w := newWorld(top(0), queue("A", "root", 10), queue("B", "root", 0))
			w.reserve(held{"v1", "B", 1, 0, 1}, held{"v2", "B", 3, 1, 2}, held{"v3", "B", 4, 2, 2}, held{"v4", "B", 2, 3, 2})
			return w
		}, Fair{both, true}, reclaim, 7, []string{"v2 InCohortReclamation", "v3 InCohortReclamation"}},
		"11: a cohort before a queue": {func() *world {
			w := newWorld(top(8), queue("A", "root", 0), queue("B", "root", 0), cohort("c", "root"), queue("C", "c", 0))
			w.reserve(held{"b", "B", 4, -9, 9}, held{"c", "C", 4, 0, 1})
			return w
		}, Fair{Strategies: initial}, reclaim, 1, []string{"c InCohortFairSharing"}},
		"cohorts by name":            {func() *world { return equals("y", "x") }, Fair{Strategies: initial}, reclaim, 1, []string{"of x InCohortFairSharing"}},
		"cohorts by name, other way": {func() *world { return equals("x", "y") }, Fair{Strategies: initial}, reclaim, 1, []string{"of x InCohortFairSharing"}},
		"12: never reclaim":          {ex9, Fair{both, true}, Policy{Within: LowerPriority}, 5, nil},
		"queues by first candidate": {func() *world {
			w := newWorld(top(8), queue("A", "root", 0), queue("B", "root", 0), queue("C", "root", 0))
			w.reserve(held{"b", "B", 4, 2, 9}, held{"c", "C", 4, 1, 1})
			return w
		}, Fair{Strategies: initial}, reclaim, 1, []string{"c InCohortFairSharing"}},
		"the higher share first": {func() *world {
			w := newWorld(top(8), queue("A", "root", 0), queue("B", "root", 0), queue("C", "root", 0))
			w.reserve(held{"b1", "B", 1, 2, 9}, held{"b2", "B", 4, 2, 9}, held{"c", "C", 3, 1, 1})
			return w
		}, Fair{Strategies: initial}, reclaim, 1, []string{"b1 InCohortFairSharing"}},
		"alone without a cohort": {func() *world {
			w := newWorld(queue("A", "", 5))
			w.reserve(held{"a", "A", 5, 0, 1})
			return w
		}, Fair{Strategies: both}, reclaim, 5, []string{"a InClusterQueue"}},
		// With o out, A has 4 and B 5: b may go. With o back, the preemptor would fit all
		// the same, but A would have 6: B would take it back. spec: 10 §6 #5.
		"who justifies another victim stays one": {func() *world {
			w := newWorld(top(7), queue("A", "root", 0), queue("B", "root", 0))
			w.reserve(held{"o", "A", 2, 0, 1}, held{"b", "B", 5, 0, 1})
			return w
		}, Fair{Strategies: initial}, reclaim, 4, []string{"b InCohortFairSharing", "o InClusterQueue"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := tc.world().search("A", tc.policy, 5, tc.amount)
			s.Fair = &tc.fair
			if diff := cmp.Diff(tc.want, describe(targets(s))); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReach: without victims, the reach lists the candidates.
func TestReach(t *testing.T) {
	full := func() *world {
		w := newWorld(cohort("c", ""), queue("A", "c", 4), queue("B", "c", 4), queue("C", "c", 4), queue("D", "c", 4))
		w.reserve(held{"a1", "A", 1, 0, 1}, held{"a2", "A", 1, 0, 1}, held{"a3", "A", 2, 9, 1})
		w.reserve(held{"b1", "B", 3, 9, 1}, held{"b2", "B", 2, 9, 1}, held{"b3", "B", 1, 0, 1})
		w.reserve(held{"c1", "C", 4, 0, 1}, held{"c2", "C", 2, 9, 1})
		return w
	}
	lower := Policy{Within: LowerPriority, Reclaim: LowerPriority}
	tests := map[string]struct {
		policy Policy
		fair   *Fair
		want   trace.Reach
	}{
		"no preemption":                            {Policy{}, nil, trace.Reach{Within: "Never", Reclaim: "Never", Own: 3}},
		"own queue":                                {Policy{Within: LowerPriority}, nil, trace.Reach{Within: "LowerPriority", Reclaim: "Never", Own: 3, OwnAllowed: 2}},
		"other queues, but it would borrow":        {lower, nil, trace.Reach{Within: "LowerPriority", Reclaim: "LowerPriority", Own: 3, OwnAllowed: 2, Queues: 2, Others: 5}},
		"other queues while it borrows":            {Policy{Within: LowerPriority, Reclaim: LowerPriority, BorrowWithin: true}, nil, trace.Reach{Within: "LowerPriority", Reclaim: "LowerPriority", Own: 3, OwnAllowed: 2, Queues: 2, Others: 5, OthersAllowed: 2}},
		"other queues, fair, with too large share": {lower, &Fair{}, trace.Reach{Within: "LowerPriority", Reclaim: "LowerPriority", Own: 3, OwnAllowed: 2, Queues: 2, Others: 5}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := full().search("A", tc.policy, 5, 12)
			s.Fair = tc.fair
			victims, reach := s.Targets()
			if diff := cmp.Diff(tc.want, reach); diff != "" || victims != nil {
				t.Errorf("victims %v, reach (-want +got):\n%s", describe(victims), diff)
			}
		})
	}
}

// TestBelowCycle: nothing fits there, with any victims.
func TestBelowCycle(t *testing.T) {
	w := newWorld(cohort("x", ""), cohort("y", "x"), queue("A", "y", 4))
	w.reserve(held{"a", "A", 4, 0, 1})
	w.f.SetParent(w.nodes["x"], w.nodes["y"])
	w.f.Recompute()
	for name, fair := range map[string]*Fair{"classical": nil, "fair": {}} {
		s := w.search("A", Policy{Within: LowerPriority, Reclaim: Any}, 5, 4)
		if s.Fair = fair; targets(s) != nil {
			t.Errorf("%s: there are victims", name)
		}
	}
}

// TestAllocations: a search that is kept allocates nothing but the victims it returns.
func TestAllocations(t *testing.T) {
	c := newCohortOf(100)
	fair := &Fair{Strategies: []Strategy{LessThanOrEqualToFinalShare, LessThanInitialShare}}
	tests := map[string]struct {
		node   quota.Node
		policy Policy
		fair   *Fair
		amount resource.Amount
		want   float64
	}{
		"own queue":            {c.first, Policy{Within: LowerPriority}, nil, 50, 1},
		"own queue, in vain":   {c.first, Policy{Within: LowerPriority}, nil, 99, 0},
		"reclaim":              {c.idle, Policy{Reclaim: Any}, nil, 50, 1},
		"reclaim, in vain":     {c.idle, Policy{Reclaim: Any}, nil, 51, 0},
		"fair":                 {c.idle, Policy{Reclaim: Any}, fair, 50, 1},
		"fair, in vain":        {c.idle, Policy{Reclaim: Any}, fair, 9000, 0},
		"fair, own queue only": {c.first, Policy{Within: LowerPriority}, fair, 50, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := c.search(tc.node, tc.policy, tc.fair)
			s.Requests.Quota[0].Amount = tc.amount
			if got := testing.AllocsPerRun(20, func() { targets(s) }); got != tc.want {
				t.Errorf("%v allocations, want %v", got, tc.want)
			}
		})
	}
}

// TestKeptSearch: a search that is used again remembers nothing.
func TestKeptSearch(t *testing.T) {
	c := newCohortOf(10)
	kept := c.search(c.idle, Policy{Reclaim: Any}, nil)
	fair := &Fair{Strategies: []Strategy{LessThanInitialShare}}
	for i, p := range []Policy{{Reclaim: Any}, {Within: LowerPriority}, {Reclaim: LowerPriority, BorrowWithin: true}, {}} {
		for n := c.idle; n < c.first+2; n++ {
			for _, f := range []*Fair{fair, nil, fair} {
				kept.Node, kept.Policy, kept.Fair = n, p, f
				fresh := c.search(n, p, f)
				want, wantReach := fresh.Targets()
				got, reach := kept.Targets()
				if diff := cmp.Diff(inOrder(want), inOrder(got)); diff != "" || reach != wantReach {
					t.Errorf("policy %d, node %d: %+v, want %+v, victims:\n%s", i, n, reach, wantReach, diff)
				}
			}
		}
	}
}

// TestNoCandidates: neither the preemptor, nor the slice that it replaces, nor a workload that is out already.
func TestNoCandidates(t *testing.T) {
	w := newWorld(queue("q", "", 4))
	w.reserve(held{"a", "q", 4, 0, 1})
	a := w.holders[w.nodes["q"]][0]
	tests := map[string]func(*Search){
		"itself":           func(s *Search) { s.Preemptor.UID = "a" },
		"what it replaces": func(s *Search) { s.Replaces = a },
		"gone already":     func(s *Search) { s.Gone = func(w *workload.Workload) bool { return w == a } },
		"another rule":     func(s *Search) { s.Policy.Within = Never },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			s := w.search("q", Policy{Within: LowerPriority}, 5, 4)
			if len(targets(s)) != 1 {
				t.Fatal("a is not a victim to begin with")
			}
			change(s)
			if got := targets(s); got != nil {
				t.Errorf("victims: %v", describe(got))
			}
		})
	}
}

func TestStrings(t *testing.T) {
	got := fmt.Sprint(Never, LowerPriority, LowerOrNewerEqualPriority, Any, LessThanOrEqualToFinalShare, LessThanInitialShare)
	if want := "Never LowerPriority LowerOrNewerEqualPriority Any LessThanOrEqualToFinalShare LessThanInitialShare"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
