package order

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Contestant is the head of a queue in the tournament of one cycle.
type Contestant struct {
	Node        quota.Node // of its queue
	Workload    *workload.Workload
	Name        string       // of its queue
	Usage       ledger.Usage // its charge if admitted
	Frees       ledger.Usage // released by its queue then: the usage of the slice that it replaces
	Prioritized bool         // its victims are leaving
	Entry       int          // the caller's index
}

// Rules are the criteria of a tournament besides shares and age.
type Rules struct {
	PrioritizedFirst  bool // a head whose victims are leaving comes before all others
	NonBorrowingFirst bool // a head within its own quota comes before a lower share
	ByPriority        bool // at equal shares, priority counts before age
}

// Tournament returns the heads of the queues one by one, in the order of fair sharing: each
// time it compares the shares that the children of a cohort would have with their head
// charged, from the queues up to the root. The caller may charge and release between two
// calls of Next, but not edit the forest. Reset begins a tournament in the memory of the
// last. spec: 20 §4.2.
type Tournament struct {
	ledger *ledger.Ledger
	rules  Rules

	entrants    []entrant
	projections []projection // of all entrants
	waiting     []int32      // indices of entrants; once sorted, entrants of a tree adjacent and the next tree last
	sorted      bool
	rising      []riser // the entrants left in this round
	best        []int32 // by node: the index in rising of its best so far, else −1
}

// entrant is a contestant and the index of the first projection of its path to the root.
type entrant struct {
	Contestant
	root    quota.Node // None for a queue without parent
	first   int32      // index of its first projection
	depth   int32      // nodes below the root; projections of the path
	version uint64     // of the forest of the projections, never if they are missing
}

// projection is the share of a node on a contestant's path, if it were charged.
type projection struct {
	node    quota.Node
	borrows bool // of one of the requested FRs
	share   quota.Share
}

// riser is an entrant that has won up to the node at depth.
type riser struct {
	at    int32 // its index in the tree
	depth int32 // of the node that it represents, 0 for the root
}

// never is a version that no forest has.
const never = math.MaxUint64

// Reset begins a tournament without contestants over a forest without pending edits.
func (t *Tournament) Reset(l *ledger.Ledger, rules Rules) {
	t.ledger, t.rules = l, rules
	clear(t.entrants)
	t.entrants, t.projections, t.waiting = t.entrants[:0], t.projections[:0], t.waiting[:0]
}

// Add lets c take part. Its vectors must not change before Next returns it.
func (t *Tournament) Add(c Contestant) {
	e := entrant{Contestant: c, root: t.ledger.Quota.Root(c.Node), first: int32(len(t.projections)), version: never}
	if e.root == c.Node {
		e.root = quota.None
	}
	for n := c.Node; e.root != quota.None && n != e.root; n = t.ledger.Quota.Parent(n) {
		t.projections = append(t.projections, projection{node: n})
		e.depth++
		for int(t.ledger.Quota.Parent(n)) >= len(t.best) {
			t.best = append(t.best, -1)
		}
	}
	t.waiting = append(t.waiting, int32(len(t.entrants)))
	t.entrants = append(t.entrants, e)
	t.sorted = false
}

// Next returns the winner, false if no contestant is left. Queues without parent or below a
// cycle come first, as they take nothing from others; then tree after tree by the name of the
// root.
func (t *Tournament) Next() (c Contestant, ok bool) {
	if len(t.waiting) == 0 {
		return Contestant{}, false
	}
	if !t.sorted {
		slices.SortFunc(t.waiting, t.compareTrees)
		t.sorted = true
	}
	last := len(t.waiting) - 1
	root, winner := t.entrants[t.waiting[last]].root, last
	if root != quota.None {
		from := last
		for from > 0 && t.entrants[t.waiting[from-1]].root == root {
			from--
		}
		winner = from + t.play(t.waiting[from:], root)
	}
	c = t.entrants[t.waiting[winner]].Contestant
	t.waiting[winner] = t.waiting[last]
	t.waiting = t.waiting[:last]
	return c, true
}

// compareTrees sorts the entrants in reverse order of their trees.
func (t *Tournament) compareTrees(i, j int32) int {
	a, b := &t.entrants[i], &t.entrants[j]
	switch {
	case a.root == b.root && a.root != quota.None:
		return cmp.Compare(j, i)
	case a.root == b.root:
		return cmp.Or(t.compare(b, a), cmp.Compare(j, i))
	case a.root == quota.None:
		return 1
	case b.root == quota.None:
		return -1
	}
	return cmp.Or(strings.Compare(t.ledger.Quota.Name(b.root), t.ledger.Quota.Name(a.root)), cmp.Compare(b.root, a.root))
}

// play returns the index of the winner among the entrants of one tree. Level by level from
// the deepest, the best of each cohort's children represents the cohort.
func (t *Tournament) play(tree []int32, root quota.Node) int {
	if len(tree) == 1 {
		return 0
	}
	t.project(tree)
	t.rising = t.rising[:0]
	deepest := int32(0)
	for i, id := range tree {
		depth := t.entrants[id].depth
		t.rising = append(t.rising, riser{int32(i), depth})
		deepest = max(deepest, depth)
	}
	for depth := deepest; depth > 0; depth-- {
		left := t.rising[:0] // never ahead of what is read
		for _, r := range t.rising {
			if r.depth < depth {
				left = append(left, r)
				continue
			}
			cohort := t.above(tree[r.at], depth, root)
			if best := t.best[cohort]; best < 0 {
				t.best[cohort] = int32(len(left))
				left = append(left, riser{r.at, depth - 1})
			} else if t.compareAt(tree[r.at], tree[left[best].at], depth) < 0 {
				left[best].at = r.at
			}
		}
		for _, r := range left {
			if r.depth == depth-1 && t.entrants[tree[r.at]].depth >= depth {
				t.best[t.above(tree[r.at], depth, root)] = -1
			}
		}
		t.rising = left
	}
	return int(t.rising[0].at)
}

// above returns the cohort over the node at that depth of an entrant's path.
func (t *Tournament) above(id, depth int32, root quota.Node) quota.Node {
	if depth == 1 {
		return root
	}
	return t.projection(id, depth-1).node
}

// projection returns that of the node at a depth of an entrant's path, 1 for a child of the
// root.
func (t *Tournament) projection(id, depth int32) *projection {
	e := &t.entrants[id]
	return &t.projections[e.first+e.depth-depth]
}

// project updates the projections of a tree's entrants.
func (t *Tournament) project(tree []int32) {
	l, f := t.ledger, t.ledger.Quota
	version := f.Version()
	for _, id := range tree {
		e := &t.entrants[id]
		if e.version == version {
			continue
		}
		mark := l.Mark()
		if !e.Frees.IsZero() {
			l.Release(e.Node, e.Frees)
		}
		l.Charge(e.Node, e.Usage)
		for i := e.first; i < e.first+e.depth; i++ {
			s := &t.projections[i]
			s.share, s.borrows = f.Share(s.node), t.rules.NonBorrowingFirst && borrows(f, s.node, e.Usage.Quota)
		}
		l.Rollback(mark)
	}
	version = f.Version() // the projection may have changed it
	for _, id := range tree {
		t.entrants[id].version = version
	}
}

// borrows reports whether n uses more than its own quota of an FR in v.
func borrows(f *quota.Forest, n quota.Node, v resource.Vector) bool {
	for _, e := range v {
		if f.Borrowing(n, e.FR, 0) {
			return true
		}
	}
	return false
}

// compareAt compares two contestants of one cohort by their nodes at that depth.
func (t *Tournament) compareAt(i, j, depth int32) int {
	a, b := &t.entrants[i], &t.entrants[j]
	x, y := t.projection(i, depth), t.projection(j, depth)
	switch {
	case t.rules.PrioritizedFirst && a.Prioritized != b.Prioritized:
		return ahead(a.Prioritized)
	case x.borrows != y.borrows:
		return ahead(y.borrows)
	}
	if by := x.share.Compare(y.share); by != 0 {
		return by
	}
	return t.compare(a, b)
}

// compare orders two contestants with equal shares.
func (t *Tournament) compare(a, b *entrant) int {
	v, w := a.Workload, b.Workload
	switch {
	case t.rules.PrioritizedFirst && a.Prioritized != b.Prioritized:
		return ahead(a.Prioritized)
	case t.rules.ByPriority && v.Priority != w.Priority:
		return ahead(v.Priority > w.Priority)
	case v.Since != w.Since:
		return ahead(v.Since < w.Since)
	case a.Name != b.Name:
		return ahead(a.Name < b.Name)
	}
	return strings.Compare(v.UID, w.UID)
}

// ahead is the result of a comparison that the first argument wins or loses.
func ahead(first bool) int {
	if first {
		return -1
	}
	return 1
}
