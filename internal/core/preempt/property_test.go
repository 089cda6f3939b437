package preempt

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/worldtest"
)

func TestMain(m *testing.M) { os.Exit(worldtest.Main(m, "rapid.checks=10000")) }

// pick draws one of a few values, about equally often: rapid by itself prefers the first.
func pick[T any](t *rapid.T, what string, of ...T) T {
	mixed := rapid.Uint32().Draw(t, what) * 0x9E3779B1
	return of[int(mixed>>8)%len(of)]
}

// drawSearch makes a tree of up to three levels of cohorts that is more or less full, or
// a single queue, and a preemptor that does not fit.
func drawSearch(t *rapid.T) (*world, *Search) {
	w := newWorld()
	queues := w.drawNodes(t)
	var gone, replaced []*workload.Workload
	for i := range pick(t, "holders", 4, 8, 12, 16, 20, 24) {
		wl := drawHolder(t, i)
		n := pick(t, "queue", queues...)
		if !w.l.Fits(n, wl.Usage) && !pick(t, "over-admit", false, false, true) {
			continue
		}
		w.holders[n] = append(w.holders[n], wl)
		switch pick(t, "fate", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2) {
		case 1:
			replaced = append(replaced, wl)
		case 2:
			gone = append(gone, wl)
			continue
		}
		w.l.Charge(n, wl.Usage)
	}
	rules := []Rule{Never, LowerPriority, LowerOrNewerEqualPriority}
	s := w.search("", Policy{
		Within:  pick(t, "within", append(rules, LowerPriority, LowerPriority)...),
		Reclaim: pick(t, "reclaim", append(rules, LowerPriority, Any, Any, Any)...),
	}, pick[int64](t, "p", 0, 1, 2, 3, 4, 4), 0)
	s.Node = pick(t, "preemptor's queue", queues...)
	if pick(t, "of the emptiest", true, false) {
		s.Node = slices.MinFunc(queues, func(a, b quota.Node) int { return len(w.holders[a]) - len(w.holders[b]) })
	}
	s.Preemptor.Since = workload.Instant(pick(t, "p since", 0, 1, 2, 5))
	s.Gone = func(w *workload.Workload) bool { return slices.Contains(gone, w) }
	if pick(t, "by usage", false, true) { // of the LocalQueues
		s.Standing = func(w *workload.Workload) order.Standing { return order.Standing(w.UID[len(w.UID)-1] % 3) }
	}
	if len(replaced) > 0 {
		s.Replaces = replaced[0]
	}
	if s.Policy.Reclaim != Never && rapid.Bool().Draw(t, "borrow within") {
		s.Policy.BorrowWithin = true
		if rapid.Bool().Draw(t, "bounded") {
			s.Policy.Threshold = new(pick[int64](t, "threshold", 0, 1, 2, 3))
		}
	}
	s.Requests, s.Need = ledger.Usage{}, nil
	for _, fr := range allFRs {
		a := pick[resource.Amount](t, "asked", 0, 0, 1, 2, 3, 4, 6)
		if a = min(a, w.f.Potential(s.Node, fr)); a > 0 {
			s.Requests.Quota = s.Requests.Quota.Plus(fr, a)
			if a > w.l.Available(s.Node, fr) {
				s.Need = append(s.Need, fr)
			}
		}
	}
	return w, s
}

// drawNodes makes the tree, and returns its queues.
func (w *world) drawNodes(t *rapid.T) (queues []quota.Node) {
	limits := []resource.Amount{quota.NoLimit, quota.NoLimit, quota.NoLimit, quota.NoLimit, quota.NoLimit, 0, 1, 3}
	weights := []quota.Weight{1e9, 1e9, 1e9, 2e9, 5e8, 0, 100_000}
	parents := []quota.Node{quota.None}
	add := func(cohort bool) quota.Node {
		var cells []quota.Cell
		for _, fr := range allFRs {
			if pick(t, "unlisted", 0, 0, 0, 0, 0, 0, 0, 0, 0, 1) == 1 {
				continue
			}
			nominal := pick[resource.Amount](t, "nominal", 0, 2, 3, 4, 6, 10)
			cells = append(cells, quota.Cell{FR: fr, Nominal: nominal, Borrow: pick(t, "borrow", limits...), Lend: pick(t, "lend", limits...)})
		}
		name := fmt.Sprintf("%s%d", pick(t, "name", "a", "b", "c"), len(w.defs))
		up := parents
		if cohort { // deep rather than wide
			up = append(slices.Clone(parents), parents[len(parents)-1], parents[len(parents)-1])
		}
		return w.add(name, cohort, pick(t, "parent", up...), pick(t, "weight", weights...), cells)
	}
	if pick(t, "single", 0, 0, 0, 0, 0, 0, 0, 0, 0, 1) == 0 {
		for range pick(t, "cohorts", 1, 2, 3, 3, 4) {
			parents = append(parents, add(true))
		}
		parents = parents[1:] // queues without a cohort come alone
	}
	for range pick(t, "queues", 2, 3, 4, 5, 6) {
		queues = append(queues, add(false))
	}
	w.f.Recompute()
	return queues
}

func drawHolder(t *rapid.T, i int) *workload.Workload {
	wl := &workload.Workload{
		UID: fmt.Sprintf("%02d", pick(t, "uid", 1, 2, 3)*30+i), Priority: pick[int64](t, "priority", 0, 0, 1, 1, 2, 3),
		Since: workload.Instant(rapid.IntRange(0, 5).Draw(t, "since")),
	}
	for _, fr := range allFRs {
		if a := pick[resource.Amount](t, "usage", 0, 0, 1, 2, 3, 4); a > 0 {
			wl.Usage.Quota = wl.Usage.Quota.Plus(fr, a)
		}
	}
	wl.Reserved, wl.ReservedAt = true, workload.Instant(pick(t, "at", 0, 1, 2, 3, 4, 5))
	wl.Evicting = pick(t, "leaving", 0, 0, 0, 0, 0, 0, 0, 1) == 1
	wl.Tentative = pick(t, "tentative", 0, 0, 0, 0, 0, 0, 0, 1) == 1
	wl.MinRun = workload.Instant(pick(t, "minimum", 0, 0, 1, 3, 5, 9))
	return wl
}

// usage is everything that is charged anywhere.
func (w *world) usage() (out []resource.Amount) {
	for n := range w.defs {
		for _, fr := range allFRs {
			out = append(out, w.f.Usage(quota.Node(n), fr))
		}
	}
	return out
}

// TestProperties: victims are allowed by policy, their going makes the preemptor fit,
// none of them but the last could stay, and looking changed nothing.
func TestProperties(t *testing.T) {
	found := 0
	rapid.Check(t, func(rt *rapid.T) {
		w, s := drawSearch(rt)
		before := w.usage()
		victims := targets(s)
		if diff := cmp.Diff(before, w.usage()); diff != "" {
			rt.Fatalf("looking changed the forest:\n%s", diff)
		}
		if diff := cmp.Diff(describe(victims), describe(targets(s))); diff != "" {
			rt.Fatalf("looking again gives something else:\n%s", diff)
		}
		if len(victims) == 0 {
			return
		}
		found++
		w.checkVictims(rt, s, victims)
		w.checkVictims(rt, s, s.Spare(victims, 5))
		if diff := cmp.Diff(before, w.usage()); diff != "" {
			rt.Fatalf("looking for others changed the forest:\n%s", diff)
		}
	})
	if found < 50 {
		t.Errorf("victims were found %d times only: the worlds are not what they should be", found)
	}
}

// checkVictims checks victims of a search that is not fair.
func (w *world) checkVictims(t *rapid.T, s *Search, victims []Victim) {
	seen := map[string]bool{}
	for _, v := range victims {
		if seen[v.Workload.UID] {
			t.Fatalf("%s is a victim twice", v.Workload.UID)
		}
		seen[v.Workload.UID] = true
		s.checkAllowed(t, v)
	}
	mark := w.l.Mark()
	defer w.l.Rollback(mark)
	for _, v := range victims {
		w.l.Release(v.Node, v.Workload.Usage)
	}
	if !w.l.Fits(s.Node, s.Requests) {
		t.Fatalf("the preemptor does not fit without %v", describe(victims))
	}
	borrows := false
	for _, e := range s.Requests.Quota {
		borrows = borrows || w.f.Borrowing(s.Node, e.FR, e.Amount)
	}
	for _, v := range victims[:len(victims)-1] {
		w.l.Charge(v.Node, v.Workload.Usage)
		// An attempt that does not borrow may also need a victim for that alone.
		if w.l.Fits(s.Node, s.Requests) && (borrows || s.ownQuotaSuffices()) {
			t.Fatalf("%s could have stayed, of %v", v.Workload.UID, describe(victims))
		}
		w.l.Release(v.Node, v.Workload.Usage)
	}
}

func (s *Search) ownQuotaSuffices() bool {
	for _, e := range s.Requests.Quota {
		if s.Quota.Borrowing(s.Node, e.FR, e.Amount) {
			return false
		}
	}
	return true
}

// checkAllowed holds a victim against §4.7.2: it has some of what is short, its
// priority is in reach, and if it is of another queue, that queue borrows.
func (s *Search) checkAllowed(t *rapid.T, v Victim) {
	if !slices.ContainsFunc(s.Need, func(fr resource.FR) bool { return v.Workload.Usage.Quota.Of(fr) > 0 }) {
		t.Fatalf("%s holds nothing of what is short", v.Workload.UID)
	}
	rule := s.Policy.Reclaim
	if v.Node == s.Node {
		rule = s.Policy.Within
	} else if !slices.ContainsFunc(s.Need, func(fr resource.FR) bool { return s.Quota.Usage(v.Node, fr) > s.Quota.Nominal(v.Node, fr) }) {
		t.Fatalf("%s is of a queue within its nominal quota", v.Workload.UID)
	}
	p, c := s.Preemptor, v.Workload
	allowed := map[Rule]bool{
		LowerPriority:             p.Priority > c.Priority,
		LowerOrNewerEqualPriority: p.Priority > c.Priority || (p.Priority == c.Priority && p.Since < c.Since),
		Any:                       true,
	}[rule]
	if !allowed {
		t.Fatalf("%s may not be preempted: rule %d, priorities %d and %d", c.UID, rule, p.Priority, c.Priority)
	}
	switch v.Reason {
	case InClusterQueue:
		if v.Node != s.Node {
			t.Fatalf("%s is of another queue, and goes for %s", c.UID, v.Reason)
		}
	case InCohortReclaimWhileBorrows:
		if !s.Policy.BorrowWithin || c.Priority >= p.Priority || (s.Policy.Threshold != nil && c.Priority > *s.Policy.Threshold) {
			t.Fatalf("%s may not go for %s", c.UID, v.Reason)
		}
	case InCohortReclamation:
		if v.Node == s.Node {
			t.Fatalf("%s is of the preemptor's own queue, and goes for %s", c.UID, v.Reason)
		}
	default:
		t.Fatalf("%s goes for no reason: %q", c.UID, v.Reason)
	}
}
