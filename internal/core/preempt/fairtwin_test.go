package preempt

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/quota"
)

// fairTwin reads spec 20 §4.3 literally.
type fairTwin struct {
	twin
	left    []keyed // candidates left, sorted
	retries []keyed
	victims []plainVictim
}

// plainVictim is a victim with the test that it passed, if it did.
type plainVictim struct {
	Victim
	tested bool
	mine   quota.Node
	limit  plainShare
	less   bool
}

func (t *fairTwin) collect() {
	for n := range t.p.nodes {
		node := quota.Node(n)
		if path := t.p.path(node); path[len(path)-1] != t.root() {
			continue
		}
		if node != t.Node && (t.Policy.Reclaim == Never || !t.p.over(node, t.Need)) {
			continue
		}
		for _, c := range t.p.members[node] {
			if t.passes(c, node) {
				keys := append([]int64{truth(c.Evicting), truth(node != t.Node), t.usageKey(c, node)}, keysOf(c)...)
				t.left = append(t.left, keyed{Victim{Workload: c, Node: node}, keys})
			}
		}
	}
	sortKeyed(t.left)
}

func (t *fairTwin) root() quota.Node {
	path := t.p.path(t.Node)
	return path[len(path)-1]
}

// first returns the first candidate left of a queue.
func (t *fairTwin) first(n quota.Node) *keyed {
	for i := range t.left {
		if t.left[i].Node == n {
			return &t.left[i]
		}
	}
	return nil
}

// target descends from n and returns the queue it ends at, None if n is pruned.
func (t *fairTwin) target(n quota.Node) quota.Node {
	if !t.p.nodes[n].cohort {
		if t.first(n) == nil || (n != t.Node && !t.p.borrows(n)) {
			return quota.None
		}
		return n
	}
	if !slices.Contains(t.p.path(t.Node), n) && !t.p.borrows(n) {
		return quota.None
	}
	best, end := quota.None, quota.None
	for _, k := range t.p.kids(n) {
		if at := t.target(k); at != quota.None && (best == quota.None || t.better(k, best)) {
			best, end = k, at
		}
	}
	return end
}

func (t *fairTwin) better(a, b quota.Node) bool {
	if c := t.p.share(a).compare(t.p.share(b)); c != 0 {
		return c > 0
	}
	x, y := t.p.nodes[a], t.p.nodes[b]
	if x.cohort != y.cohort {
		return x.cohort
	}
	if x.cohort {
		return x.name < y.name
	}
	for _, c := range t.left {
		if c.Node == a || c.Node == b {
			return c.Node == a
		}
	}
	return false
}

func (t *fairTwin) drop(v Victim) {
	t.left = slices.DeleteFunc(t.left, func(c keyed) bool { return c.Workload == v.Workload })
}

func (t *fairTwin) dropAll(n quota.Node) (dropped []keyed) {
	t.left = slices.DeleteFunc(t.left, func(c keyed) bool {
		if c.Node == n {
			dropped = append(dropped, c)
		}
		return c.Node == n
	})
	return dropped
}

func (t *fairTwin) preempt(v plainVictim, reason string) {
	v.Reason = reason
	t.drop(v.Victim)
	t.p.remove(v.Victim)
	t.victims = append(t.victims, v)
}

// fitsNow takes the preemptor out for the test.
func (t *fairTwin) fitsNow() bool {
	t.p.at = quota.None
	defer func() { t.p.at = t.Node }()
	return t.p.fits(t.Node, t.Requests.Quota)
}

// sides are the children of the common ancestor of the preemptor's queue and n.
func (t *fairTwin) sides(n quota.Node) (mine, theirs quota.Node) {
	a, b := t.p.path(t.Node), t.p.path(n)
	for a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a[len(a)-1], b[len(b)-1]
}

func (t *fairTwin) shareWithout(n quota.Node, v Victim) plainShare {
	t.p.remove(v)
	defer t.p.putBack(v)
	return t.p.share(n)
}

func (t *fairTwin) roundOne() bool {
	within := true
	for _, fr := range t.Need {
		within = within && t.p.usage(t.Node, fr) <= t.p.cell(t.Node, fr).Nominal
	}
	for {
		n := t.target(t.root())
		if n == quota.None {
			return false
		}
		v := plainVictim{Victim: t.first(n).Victim}
		switch {
		case n == t.Node:
			t.preempt(v, InClusterQueue)
		case t.Fair.WithinNominal && within:
			t.preempt(v, InCohortReclamation)
		case !t.strategy(n):
			continue
		}
		if t.fitsNow() {
			return true
		}
	}
}

// strategy goes over the candidates of a queue until one passes.
func (t *fairTwin) strategy(n quota.Node) bool {
	mine, theirs := t.sides(n)
	p, t0 := t.p.share(mine), t.p.share(theirs)
	if p.infinite && !t0.infinite {
		t.retries = append(t.retries, t.dropAll(n)...)
		return false
	}
	for c := t.first(n); c != nil; c = t.first(n) {
		v := plainVictim{Victim: c.Victim, tested: true, mine: mine, limit: t0, less: true}
		passed := p.compare(t0) < 0
		if t.Fair.Strategies[0] == LessThanOrEqualToFinalShare {
			v.limit, v.less = t.shareWithout(theirs, c.Victim), false
			passed = p.compare(v.limit) <= 0
		}
		if passed {
			t.preempt(v, InCohortFairSharing)
			return true
		}
		t.retries = append(t.retries, *c)
		t.drop(c.Victim)
	}
	return false
}

func (t *fairTwin) roundTwo() bool {
	t.left = t.retries
	sortKeyed(t.left)
	for {
		n := t.target(t.root())
		if n == quota.None {
			return false
		}
		mine, theirs := t.sides(n)
		t0 := t.p.share(theirs)
		if t.p.share(mine).compare(t0) < 0 {
			t.preempt(plainVictim{t.first(n).Victim, true, mine, t0, true}, InCohortFairSharing)
			if t.fitsNow() {
				return true
			}
		}
		t.dropAll(n)
	}
}

// stands reports whether every test that was passed would be with the preemptor's share as
// it is now.
func (t *fairTwin) stands(victims []plainVictim) bool {
	for _, v := range victims {
		if c := 0; v.tested {
			if c = t.p.share(v.mine).compare(v.limit); c > 0 || (v.less && c == 0) {
				return false
			}
		}
	}
	return true
}

func (t *fairTwin) fair() (victims []Victim) {
	t.p.extra, t.p.at = t.Requests.Quota, t.Node
	t.collect()
	candidates := t.left
	found := false
	for after := range int64(2) {
		t.retries, t.left = nil, slices.DeleteFunc(slices.Clone(candidates), func(c keyed) bool { return t.spares(c.Workload) != after })
		found = found || t.roundOne() || (len(t.Fair.Strategies) > 1 && t.roundTwo())
	}
	if !found {
		return nil
	}
	got := t.victims
	for i := len(got) - 2; i >= 0; i-- {
		t.p.putBack(got[i].Victim)
		without := slices.Concat(got[:i], got[i+1:])
		if t.fitsNow() && t.stands(without) {
			got = without
		} else {
			t.p.remove(got[i].Victim)
		}
	}
	for _, v := range got {
		victims = append(victims, v.Victim)
	}
	return victims
}

// drawFair draws a search among equals: by shares.
func drawFair(t *rapid.T) (*world, *Search) {
	w, s := drawSearch(t)
	both := []Strategy{LessThanOrEqualToFinalShare, LessThanInitialShare}
	s.Fair = &Fair{
		Strategies:    pick(t, "strategies", both, both, both[:1], both[1:]),
		WithinNominal: pick(t, "within nominal", false, false, true),
	}
	return w, s
}

// TestFairTwin: the same victims, in the same order and for the same reasons.
func TestFairTwin(t *testing.T) {
	found, kept, second, reasons := 0, 0, 0, map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		w, s := drawFair(rt)
		before := w.usage()
		got, _ := s.Targets()
		if diff := cmp.Diff(before, w.usage()); diff != "" {
			rt.Fatalf("looking changed the forest:\n%s", diff)
		}
		tw := &fairTwin{twin: twin{s, w.plainOf(s), nil}}
		if diff := cmp.Diff(inOrder(tw.fair()), inOrder(got)); diff != "" {
			rt.Fatalf("victims (-twin +search):\n%s", diff)
		}
		if len(got) == 0 {
			return
		}
		found++
		if len(got) < len(tw.victims) {
			second++
		}
		if w.couldStay(s, got) {
			kept++
		}
		for _, v := range got {
			reasons[v.Reason]++
		}
	})
	t.Logf("victims in %d worlds: %v; fewer in %d after filling back, one too many for fairness in %d", found, reasons, second, kept)
	if found < 50 || second < 50 || kept < 1 || reasons[InClusterQueue] < 50 || reasons[InCohortReclamation] < 20 || reasons[InCohortFairSharing] < 50 {
		t.Error("the worlds are not what they should be")
	}
}

// couldStay reports whether the preemptor would fit with one of the victims but the last.
func (w *world) couldStay(s *Search, victims []Victim) bool {
	p := w.plainOf(s)
	for _, v := range victims {
		p.remove(v)
	}
	for _, v := range victims[:len(victims)-1] {
		p.putBack(v)
		if p.fits(s.Node, s.Requests.Quota) {
			return true
		}
		p.remove(v)
	}
	return false
}

// TestFairProperties: victims are allowed by policy, and their going makes the preemptor
// fit; with only its own queue to ask, none but the last could stay.
func TestFairProperties(t *testing.T) {
	found := 0
	rapid.Check(t, func(rt *rapid.T) {
		w, s := drawFair(rt)
		victims := targets(s)
		if len(victims) == 0 {
			return
		}
		found++
		w.checkFairVictims(rt, s, victims)
		w.checkFairVictims(rt, s, s.Spare(victims, 5))
	})
	if found < 50 {
		t.Errorf("victims were found %d times only: the worlds are not what they should be", found)
	}
}

func (w *world) checkFairVictims(t *rapid.T, s *Search, victims []Victim) {
	p := w.plainOf(s)
	for _, v := range victims {
		s.checkFair(t, v)
		if slices.Contains(p.members[v.Node], v.Workload) {
			p.remove(v)
			continue
		}
		t.Fatalf("%s is a victim twice, or gone", v.Workload.UID)
	}
	if !p.fits(s.Node, s.Requests.Quota) {
		t.Fatalf("the preemptor does not fit without %v", describe(victims))
	}
	if s.Policy.Reclaim == Never && w.couldStay(s, victims) {
		t.Fatalf("one of %v could have stayed", describe(victims))
	}
}

func (s *Search) checkFair(t *rapid.T, v Victim) {
	if (v.Node == s.Node) != (v.Reason == InClusterQueue) {
		t.Fatalf("%s goes for %s", v.Workload.UID, v.Reason)
	}
	if v.Reason == InCohortReclamation && !s.Fair.WithinNominal {
		t.Fatalf("%s goes without a test of shares", v.Workload.UID)
	}
	if !(&twin{Search: s}).passes(v.Workload, v.Node) {
		t.Fatalf("%s may not be preempted", v.Workload.UID)
	}
}
