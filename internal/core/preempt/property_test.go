package preempt

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestMain runs ten times as many checks as rapid does by itself.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// drawSearch makes a tree of up to three levels that is more or less full, and a
// preemptor that does not fit.
func drawSearch(t *rapid.T, single bool) (*world, *Search) {
	amount := func(what string) resource.Amount { return resource.Amount(rapid.IntRange(0, 6).Draw(t, what)) }
	limit := rapid.SampledFrom([]resource.Amount{quota.NoLimit, quota.NoLimit, quota.NoLimit, 0, 1, 3})
	w := newWorld()
	parents := []quota.Node{quota.None}
	queues := []quota.Node{}
	add := func(isCohort bool) {
		n := w.f.Add(isCohort)
		w.total++
		w.f.SetParent(n, rapid.SampledFrom(parents).Draw(t, "parent"))
		var cells []quota.Cell
		for _, fr := range []resource.FR{cpu, memory} {
			cells = append(cells, quota.Cell{FR: fr, Nominal: amount("nominal"), Borrow: limit.Draw(t, "borrow"), Lend: limit.Draw(t, "lend")})
		}
		w.f.SetQuota(n, cells)
		if isCohort {
			parents = append(parents, n)
		} else {
			queues = append(queues, n)
		}
	}
	if single {
		add(false)
	} else {
		for range rapid.IntRange(1, 3).Draw(t, "cohorts") {
			add(true)
		}
		parents = parents[1:] // queues without a cohort are another test
		for range rapid.IntRange(2, 5).Draw(t, "queues") {
			add(false)
		}
	}
	w.f.Settle()
	for i := range rapid.IntRange(1, 14).Draw(t, "holders") {
		wl := &workload.Workload{
			UID: fmt.Sprintf("%02d", rapid.Permutation([]int{1, 2, 3}).Draw(t, "uid")[0]*20+i), Priority: rapid.Int64Range(0, 3).Draw(t, "priority"),
			Since: workload.Instant(rapid.IntRange(0, 9).Draw(t, "since")),
		}
		for _, fr := range []resource.FR{cpu, memory} {
			if a := resource.Amount(rapid.IntRange(0, 4).Draw(t, "usage")); a > 0 {
				wl.Usage = wl.Usage.Plus(fr, a)
			}
		}
		wl.Reserved, wl.ReservedAt = true, workload.Instant(rapid.IntRange(0, 5).Draw(t, "at"))
		wl.Evicting = rapid.IntRange(0, 7).Draw(t, "leaving") == 7
		n := rapid.SampledFrom(queues).Draw(t, "queue")
		if !w.f.Fits(n, wl.Usage) && rapid.IntRange(0, 3).Draw(t, "over-admit") < 3 {
			continue
		}
		w.f.Charge(n, wl.Usage)
		w.holders[n] = append(w.holders[n], wl)
	}
	rules := []Rule{Never, LowerPriority, LowerOrNewerEqualPriority}
	s := w.search("", Policy{
		Within:  rapid.SampledFrom(rules).Draw(t, "within"),
		Reclaim: rapid.SampledFrom(append(rules, Any, Any)).Draw(t, "reclaim"),
	}, rapid.Int64Range(0, 4).Draw(t, "p"), 0)
	s.Node = rapid.SampledFrom(queues).Draw(t, "preemptor's queue")
	s.Preemptor.Since = workload.Instant(rapid.IntRange(0, 9).Draw(t, "p since"))
	if s.Policy.Reclaim != Never && rapid.Bool().Draw(t, "borrow within") {
		s.Policy.BorrowWithin = true
		if rapid.Bool().Draw(t, "bounded") {
			s.Policy.Threshold = new(rapid.Int64Range(0, 3).Draw(t, "threshold"))
		}
	}
	s.Requests, s.Need = nil, nil
	for _, fr := range []resource.FR{cpu, memory} {
		if a := resource.Amount(rapid.IntRange(0, 6).Draw(t, "asked")); a > 0 {
			s.Requests = s.Requests.Plus(fr, a)
			if a > w.f.Available(s.Node, fr) {
				s.Need = append(s.Need, fr)
			}
		}
	}
	if len(s.Need) == 0 {
		t.Skip("it fits")
	}
	return w, s
}

// usage is everything that is charged anywhere.
func (w *world) usage() (out []resource.Amount) {
	for n := range w.total {
		out = append(out, w.f.Usage(quota.Node(n), cpu), w.f.Usage(quota.Node(n), memory))
	}
	return out
}

// TestProperties: victims are allowed by policy, their going makes the preemptor fit,
// none of them but the last could stay, and looking changed nothing.
func TestProperties(t *testing.T) {
	found := 0
	rapid.Check(t, func(rt *rapid.T) {
		w, s := drawSearch(rt, false)
		before := w.usage()
		victims := s.Targets()
		if diff := cmp.Diff(before, w.usage()); diff != "" {
			rt.Fatalf("looking changed the forest:\n%s", diff)
		}
		if diff := cmp.Diff(describe(victims), describe(s.Targets())); diff != "" {
			rt.Fatalf("looking again gives something else:\n%s", diff)
		}
		if len(victims) == 0 {
			return
		}
		found++
		seen := map[string]bool{}
		for _, v := range victims {
			if seen[v.Workload.UID] {
				rt.Fatalf("%s is a victim twice", v.Workload.UID)
			}
			seen[v.Workload.UID] = true
			s.checkAllowed(rt, v)
		}
		mark := w.f.Mark()
		defer w.f.Rollback(mark)
		for _, v := range victims {
			w.f.Release(v.Node, v.Workload.Usage)
		}
		if !w.f.Fits(s.Node, s.Requests) {
			rt.Fatalf("the preemptor does not fit without %v", describe(victims))
		}
		borrows := false
		for _, e := range s.Requests {
			borrows = borrows || w.f.Borrowing(s.Node, e.FR, e.Amount)
		}
		for _, v := range victims[:len(victims)-1] {
			w.f.Charge(v.Node, v.Workload.Usage)
			// An attempt that does not borrow may also need a victim for that alone.
			if w.f.Fits(s.Node, s.Requests) && (borrows || s.ownQuotaSuffices()) {
				rt.Fatalf("%s could have stayed, of %v", v.Workload.UID, describe(victims))
			}
			w.f.Release(v.Node, v.Workload.Usage)
		}
	})
	if found < 50 {
		t.Errorf("victims were found %d times only: the worlds are not what they should be", found)
	}
}

func (s *Search) ownQuotaSuffices() bool {
	for _, e := range s.Requests {
		if s.Quota.Borrowing(s.Node, e.FR, e.Amount) {
			return false
		}
	}
	return true
}

// checkAllowed holds a victim against §4.7.2: it has some of what is short, its
// priority is in reach, and if it is of another queue, that queue borrows.
func (s *Search) checkAllowed(t *rapid.T, v Victim) {
	if !slices.ContainsFunc(s.Need, func(fr resource.FR) bool { return v.Workload.Usage.Of(fr) > 0 }) {
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

// TestOthersTwin: candidates of other queues, and the terms on which they may be taken,
// are those of the table of §4.7.2, read literally for every queue of the tree.
func TestOthersTwin(t *testing.T) {
	found := map[bool]int{}
	rapid.Check(t, func(rt *rapid.T) {
		w, s := drawSearch(rt, false)
		hierarchical, priority := s.others()
		got := map[string]string{}
		for _, c := range slices.Concat(hierarchical, priority) {
			if got[c.Workload.UID] != "" {
				rt.Fatalf("%s is a candidate twice", c.Workload.UID)
			}
			got[c.Workload.UID] = fmt.Sprintf("below %d, while borrowing %v, %s", c.below, c.borrowOK, c.Reason)
		}
		want := map[string]string{}
		for n, holders := range w.holders {
			lca, reachable := w.reach(s, n)
			if n == s.Node || lca == quota.None || !reachable {
				continue
			}
			entitled := w.entitled(s, lca)
			for _, h := range holders {
				holds := slices.ContainsFunc(s.Need, func(fr resource.FR) bool { return h.Usage.Of(fr) > 0 })
				if !holds || !s.Policy.Reclaim.allows(s.Preemptor, h) {
					continue
				}
				found[entitled]++
				reason, borrowing := InCohortReclamation, entitled
				if !entitled && s.Policy.BorrowWithin && h.Priority < s.Preemptor.Priority &&
					(s.Policy.Threshold == nil || h.Priority <= *s.Policy.Threshold) {
					reason, borrowing = InCohortReclaimWhileBorrows, true
				}
				want[h.UID] = fmt.Sprintf("below %d, while borrowing %v, %s", lca, borrowing, reason)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatalf("candidates (-twin +search):\n%s", diff)
		}
	})
	if found[true] < 10 || found[false] < 100 {
		t.Errorf("%d candidates with and %d without advantage: the worlds are not what they should be", found[true], found[false])
	}
}

// path is n and everything above it.
func (w *world) path(n quota.Node) (path []quota.Node) {
	for ; n != quota.None; n = w.f.Parent(n) {
		path = append(path, n)
	}
	return path
}

// reach gives the nearest node above both the preemptor and n, and whether every node
// from n up to it uses more than its own of something that is short.
func (w *world) reach(s *Search, n quota.Node) (quota.Node, bool) {
	mine := w.path(s.Node)
	for at := n; at != quota.None; at = w.f.Parent(at) {
		if slices.Contains(mine, at) {
			return at, true
		}
		if !slices.ContainsFunc(s.Need, func(fr resource.FR) bool { return w.f.Usage(at, fr) > w.f.Subtree(at, fr) }) {
			return quota.None, false
		}
	}
	return quota.None, false
}

// entitled tells whether everything that is asked fits in the quota of a node around
// the preemptor, below lca, less what the nodes under that one guarantee and do not use.
func (w *world) entitled(s *Search, lca quota.Node) bool {
	path := w.path(s.Node)
	for i, n := range path[:slices.Index(path, lca)] {
		fits := true
		for _, e := range s.Requests {
			rest := e.Amount
			for _, below := range path[:i] {
				rest = max(0, rest-w.f.Local(below, e.FR))
			}
			fits = fits && w.f.Subtree(n, e.FR) >= w.f.Usage(n, e.FR)+rest
		}
		if fits {
			return true
		}
	}
	return false
}

// TestSingleQueueTwin: alone in its queue and its cohort, a preemptor's victims are
// what sorting, taking until it fits and putting back gives.
func TestSingleQueueTwin(t *testing.T) {
	found := 0
	rapid.Check(t, func(rt *rapid.T) {
		w, s := drawSearch(rt, true)
		s.Policy.Within = LowerPriority
		var order []*workload.Workload
		for _, h := range w.holders[s.Node] {
			holds := slices.ContainsFunc(s.Need, func(fr resource.FR) bool { return h.Usage.Of(fr) > 0 })
			if holds && h.Priority < s.Preemptor.Priority {
				order = append(order, h)
			}
		}
		slices.SortFunc(order, func(a, b *workload.Workload) int {
			key := func(w *workload.Workload) []int64 {
				leaving := int64(1)
				if w.Evicting {
					leaving = 0
				}
				uid := int64(0)
				if _, err := fmt.Sscan(w.UID, &uid); err != nil {
					rt.Fatal(err)
				}
				return []int64{leaving, w.Priority, -int64(w.ReservedAt), uid}
			}
			return slices.Compare(key(a), key(b))
		})
		fits := func(gone []*workload.Workload) bool {
			for _, e := range s.Requests {
				free := w.f.Nominal(s.Node, e.FR)
				for _, h := range w.holders[s.Node] {
					if !slices.Contains(gone, h) {
						free -= h.Usage.Of(e.FR)
					}
				}
				if free < e.Amount {
					return false
				}
			}
			return true
		}
		var want []string
		for n := 1; n <= len(order); n++ {
			if gone := slices.Clone(order[:n]); fits(gone) {
				for i := n - 2; i >= 0; i-- {
					if without := slices.Concat(gone[:i], gone[i+1:]); fits(without) {
						gone = without
					}
				}
				for _, g := range gone {
					want = append(want, g.UID+" InClusterQueue")
				}
				found++
				break
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, describe(s.Targets())); diff != "" {
			rt.Fatalf("victims (-twin +search):\n%s", diff)
		}
	})
	if found < 50 {
		t.Errorf("victims were found %d times only: the worlds are not what they should be", found)
	}
}
