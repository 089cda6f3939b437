package preempt

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// twin reads spec 10 §4.7 literally: it collects everything, sorts it, removes, and fills
// back, on a forest that works out every figure anew.
type twin struct {
	*Search
	p *plain
	// last are candidates that come after all others.
	last func(*workload.Workload) bool
}

// spares returns 1 for a candidate that comes after all others, else 0.
func (t *twin) spares(c *workload.Workload) int64 {
	if t.last != nil && t.last(c) {
		return 1
	}
	return 0
}

func (t *twin) passes(c *workload.Workload, n quota.Node) bool {
	p := t.Preemptor
	if c.UID == p.UID || (t.Replaces != nil && c.UID == t.Replaces.UID) {
		return false
	}
	if !slices.ContainsFunc(t.Need, func(fr resource.FR) bool { return c.Usage.Quota.Of(fr) > 0 }) {
		return false
	}
	rule := t.Policy.Reclaim
	if n == t.Node {
		rule = t.Policy.Within
	}
	return map[Rule]bool{
		LowerPriority:             p.Priority > c.Priority,
		LowerOrNewerEqualPriority: p.Priority > c.Priority || (p.Priority == c.Priority && p.Since < c.Since),
		Any:                       true,
	}[rule]
}

// variant is a candidate of §4.7.2.
type variant struct {
	list     int // 0 hierarchical, 1 priority, 2 own
	borrowOK bool
	lca      quota.Node
}

func (t *twin) candidates() (cs []keyed, terms map[string]variant) {
	terms = map[string]variant{}
	add := func(n quota.Node, as func(*workload.Workload) (variant, string)) {
		for _, c := range t.p.members[n] {
			if t.passes(c, n) {
				v, reason := as(c)
				terms[c.UID] = v
				cs = append(cs, keyed{Victim{Workload: c, Node: n, Reason: reason}, append([]int64{truth(c.Evicting), t.spares(c), int64(v.list), t.usageKey(c, n)}, keysOf(c)...)})
			}
		}
	}
	add(t.Node, func(*workload.Workload) (variant, string) { return variant{2, true, t.Node}, InClusterQueue })
	if t.Policy.Reclaim == Never {
		return cs, terms
	}
	rem := map[resource.FR]resource.Amount{}
	adv := true
	for _, e := range t.Requests.Quota {
		adv = adv && t.p.subtree(t.Node, e.FR) >= t.p.usage(t.Node, e.FR)+e.Amount
		rem[e.FR] = max(0, e.Amount-t.p.local(t.Node, e.FR))
	}
	visited := []quota.Node{t.Node}
	for _, a := range t.p.path(t.Node)[1:] {
		var visit func(n quota.Node)
		visit = func(n quota.Node) {
			for _, k := range t.p.kids(n) {
				if slices.Contains(visited, k) || !t.p.over(k, t.Need) {
					continue
				}
				visit(k)
				add(k, func(c *workload.Workload) (variant, string) { return t.terms(c, adv, a) })
			}
		}
		visit(a)
		visited = append(visited, a)
		all := true
		for fr, rest := range rem {
			all = all && t.p.subtree(a, fr) >= t.p.usage(a, fr)+rest
			rem[fr] = max(0, rest-t.p.local(a, fr))
		}
		adv = adv || all
	}
	return cs, terms
}

func (t *twin) terms(c *workload.Workload, adv bool, lca quota.Node) (variant, string) {
	switch {
	case adv:
		return variant{0, true, lca}, InCohortReclamation
	case t.Policy.BorrowWithin && c.Priority < t.Preemptor.Priority && (t.Policy.Threshold == nil || c.Priority <= *t.Policy.Threshold):
		return variant{1, true, lca}, InCohortReclaimWhileBorrows
	}
	return variant{1, false, lca}, InCohortReclamation
}

func (t *twin) attempts(terms map[string]variant) []bool {
	var has [3]bool
	for _, v := range terms {
		has[v.list] = true
	}
	under := true
	for _, fr := range t.Need {
		under = under && t.p.usage(t.Node, fr) < t.p.cell(t.Node, fr).Nominal
	}
	forbidden := !t.Policy.BorrowWithin
	switch {
	case !has[0] && !has[1], forbidden && !under:
		return []bool{true}
	case forbidden && !has[0]:
		return []bool{false, true}
	}
	return []bool{true, false}
}

func (t *twin) fitsIn(borrow bool) bool {
	if !t.p.fits(t.Node, t.Requests.Quota) {
		return false
	}
	for _, e := range t.Requests.Quota {
		if !borrow && t.p.cell(t.Node, e.FR).Nominal < t.p.usage(t.Node, e.FR)+e.Amount {
			return false
		}
	}
	return true
}

func (t *twin) skips(c keyed, v variant, borrow bool) bool {
	if c.Node == t.Node {
		return false
	}
	if borrow && !v.borrowOK {
		return true
	}
	for _, at := range t.p.path(c.Node) {
		if at == v.lca {
			break
		}
		if !t.p.over(at, t.Need) {
			return true
		}
	}
	return false
}

func (t *twin) classical() []Victim {
	cs, terms := t.candidates()
	sortKeyed(cs)
	for _, borrow := range t.attempts(terms) {
		var got []Victim
		for _, c := range cs {
			if t.skips(c, terms[c.Workload.UID], borrow) {
				continue
			}
			t.p.remove(c.Victim)
			got = append(got, c.Victim)
			if t.fitsIn(borrow) {
				for i := len(got) - 2; i >= 0; i-- {
					t.p.putBack(got[i])
					if t.fitsIn(borrow) {
						got = slices.Delete(got, i, i+1)
					} else {
						t.p.remove(got[i])
					}
				}
				return got
			}
		}
		for _, v := range got {
			t.p.putBack(v)
		}
	}
	return nil
}

// inOrder gives the victims as "name reason".
func inOrder(victims []Victim) []string {
	var out []string
	for _, v := range victims {
		out = append(out, v.Workload.UID+" "+v.Reason)
	}
	return out
}

// TestClassicalTwin: the same victims, in the same order and for the same reasons.
func TestClassicalTwin(t *testing.T) {
	found, reasons := 0, map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		w, s := drawSearch(rt)
		got, reach := s.Targets()
		want := (&twin{s, w.plainOf(s), nil}).classical()
		if diff := cmp.Diff(inOrder(want), inOrder(got)); diff != "" {
			rt.Fatalf("victims (-twin +search):\n%s", diff)
		}
		if len(got) == 0 {
			w.checkReach(rt, s, reach)
			return
		}
		found++
		for _, v := range got {
			reasons[v.Reason]++
		}
	})
	t.Logf("victims in %d worlds: %v", found, reasons)
	if found < 50 || reasons[InClusterQueue] < 50 || reasons[InCohortReclamation] < 50 || reasons[InCohortReclaimWhileBorrows] < 50 {
		t.Errorf("victims in %d worlds only, for %v: the worlds are not what they should be", found, reasons)
	}
}

// checkReach holds the reach against what is plain to see.
func (w *world) checkReach(t *rapid.T, s *Search, r trace.Reach) {
	p := w.plainOf(s)
	tw := &twin{s, p, nil}
	own, others := 0, 0
	for n, ws := range p.members {
		for _, c := range ws {
			switch {
			case !tw.passes(c, n):
			case n == s.Node:
				own++
			default:
				others++
			}
		}
	}
	if r.Within != s.Policy.Within.String() || r.Reclaim != s.Policy.Reclaim.String() || r.Own != len(w.holders[s.Node]) {
		t.Fatalf("reach %+v: of the own queue it says the wrong thing", r)
	}
	if r.OwnAllowed != own || r.OthersAllowed > others || r.OthersAllowed > r.Others || (r.Queues == 0) != (r.Others == 0 && r.Queues == 0) {
		t.Fatalf("reach %+v, with %d and %d allowed", r, own, others)
	}
}
