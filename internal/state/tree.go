package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Tree is a ClusterQueue and its cohort tree in a Model, with the quota and the usage of the flavors and resources of that ClusterQueue.
// It is a copy: it costs in proportion to the queues of the tree, and nothing of the State. It is not safe for concurrent use.
type Tree struct {
	Levels []level // the ClusterQueue, and the Cohorts above it up to the root

	ledger *ledger.Ledger
	table  *resource.Table
	queue  *queueView
	node   quota.Node                // of queue
	queues map[quota.Node]*queueView // all of the tree
}

// level is a ClusterQueue or a Cohort above it.
type level struct {
	Name   string
	Cohort bool
	Cells  []levelCell // in the order of the ClusterQueue's groups
}

// levelCell is one flavor and resource at a level. Borrow and Lend are quota.NoLimit without a limit.
type levelCell struct {
	Flavor, Resource      string
	Nominal, Borrow, Lend resource.Amount // its own
	// Quota is the quota of the subtree that is visible to this level, and Used the usage that reaches it: amounts that a child guarantees to
	// itself are in neither. Borrowable can still be taken from the levels above.
	Quota, Used, Borrowable resource.Amount
}

// Tree returns the tree of a ClusterQueue; nil for one that does not exist or whose cohorts form a cycle.
func (m *Model) Tree(queue string) *Tree {
	q := m.queue(queue)
	if q == nil || q.Cohort != "" && q.root == "" {
		return nil
	}
	table := resource.NewTable()
	t := &Tree{table: table, ledger: ledger.New(table), queue: q, queues: map[quota.Node]*queueView{}}
	for _, c := range cellsOf(q.Queue) {
		table.FR(c.Flavor, c.Resource)
	}
	cohorts := t.addCohorts(m)
	for other := range m.queues.all() {
		if other != q && (q.root == "" || other.root != q.root) {
			continue
		}
		n := t.ledger.Quota.Add(other.Name, false)
		if parent, has := cohorts[other.Cohort]; has {
			t.ledger.Quota.SetParent(n, parent)
		}
		t.ledger.Quota.SetQuota(n, t.cells(other.Groups))
		t.queues[n] = other
		if other == q {
			t.node = n
		}
	}
	t.ledger.Quota.Recompute()
	for n, other := range t.queues { //berth:unordered sums
		t.ledger.Charge(n, ledger.Usage{Quota: t.reserved(other)})
	}
	t.Levels = t.levels()
	return t
}

// addCohorts adds the Cohorts, and returns them by name.
func (t *Tree) addCohorts(m *Model) map[string]quota.Node {
	cohorts := map[string]quota.Node{}
	if t.queue.root == "" {
		return cohorts
	}
	for c := range m.cohorts.all() {
		if c.root == t.queue.root {
			cohorts[c.name] = t.ledger.Quota.Add(c.name, true)
		}
	}
	for c := range m.cohorts.all() {
		n, within := cohorts[c.name]
		if !within {
			continue
		}
		if parent, has := cohorts[c.parent]; has {
			t.ledger.Quota.SetParent(n, parent)
		}
		if c.def != nil {
			t.ledger.Quota.SetQuota(n, t.cells(c.def.Groups))
		}
	}
	return cohorts
}

// cells are the quotas of the flavors and resources of the tree.
func (t *Tree) cells(groups []Group) (cells []quota.Cell) {
	for _, g := range groups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				if fr, counts := t.fr(f.Flavor, r.Resource); counts {
					cells = append(cells, quota.Cell{FR: fr, Nominal: r.Nominal, Borrow: r.Borrow, Lend: r.Lend})
				}
			}
		}
	}
	return cells
}

// fr is the number of a flavor and resource; false for one that the ClusterQueue does not have.
func (t *Tree) fr(flavor, name string) (resource.FR, bool) {
	at := slices.Index(t.table.Pairs(), resource.Pair{Flavor: flavor, Resource: name})
	return resource.FR(at), at >= 0
}

// reserved is the usage of all reservations of a queue.
func (t *Tree) reserved(q *queueView) (v resource.Vector) {
	if q.sums == nil {
		return nil
	}
	for i := range q.sums.held {
		h := &q.sums.held[i]
		if fr, counts := t.fr(h.Flavor, h.Resource); counts {
			v = v.Add(fr, h.reserved.amount())
		}
	}
	return v
}

func (t *Tree) levels() (levels []level) {
	f := t.ledger.Quota
	for n := t.node; n != quota.None; n = f.Parent(n) {
		at := level{Name: f.Name(n), Cohort: f.IsCohort(n)}
		for _, c := range cellsOf(t.queue.Queue) {
			fr := t.table.FR(c.Flavor, c.Resource)
			cell := levelCell{
				Flavor: c.Flavor, Resource: c.Resource, Nominal: f.Nominal(n, fr), Borrow: f.BorrowLimit(n, fr), Lend: f.LendLimit(n, fr),
				Quota: f.Subtree(n, fr), Used: f.Usage(n, fr),
			}
			cell.Borrowable = max(0, t.ledger.Available(n, fr).Sub(max(0, cell.Quota.Sub(cell.Used))))
			at.Cells = append(at.Cells, cell)
		}
		levels = append(levels, at)
	}
	return levels
}

// maxHolders bounds the workloads among which Tree.Ends searches.
const maxHolders = 5000

// Ends returns the workloads that have to end until the ClusterQueue has amounts of its flavors and resources, if they end in the order of
// ends, which returns 0 for an end that is unknown: that is the last. Workloads whose end does not help are left out. It is not enough if
// amounts are missing when all have ended, and not known where more than maxHolders workloads could help.
func (t *Tree) Ends(amounts []Held, ends func(PendingWorkload) workload.Instant) (first []PendingWorkload, enough, known bool) {
	var need resource.Vector
	for _, h := range amounts {
		fr, counts := t.fr(h.Flavor, h.Resource)
		if !counts {
			return nil, false, true
		}
		need = need.Add(fr, h.Amount)
	}
	all, known := t.holders(need, ends)
	if !known {
		return nil, false, false
	}
	defer t.ledger.Rollback(t.ledger.Mark())
	short := func() (by resource.Amount) {
		for _, n := range need {
			by = by.Add(max(0, n.Amount.Sub(t.ledger.Available(t.node, n.FR))))
		}
		return by
	}
	missing := short()
	for _, h := range all {
		if missing == 0 {
			break
		}
		t.ledger.Release(h.at, ledger.Usage{Quota: h.usage})
		if now := short(); now < missing {
			first, missing = append(first, PendingWorkload{h.entry}), now
		}
	}
	return first, missing == 0, true
}

// holder is a workload with a reservation in the tree.
type holder struct {
	*entry
	at    quota.Node
	usage resource.Vector
	end   workload.Instant
}

// holders returns the workloads of the tree that hold something of these amounts, in the order of their ends; false for too many.
func (t *Tree) holders(need resource.Vector, ends func(PendingWorkload) workload.Instant) (all []holder, known bool) {
	for n, q := range t.queues { //berth:unordered sorted below
		if q.sums == nil {
			continue
		}
		frs := map[resource.FR]resource.FR{} // of the tree, by their numbers in the State
		for i := range q.sums.held {
			h := &q.sums.held[i]
			if fr, counts := t.fr(h.Flavor, h.Resource); counts && slices.ContainsFunc(need, func(e resource.Entry) bool { return e.FR == fr }) {
				frs[h.fr] = fr
			}
		}
		if len(frs) == 0 {
			continue
		}
		for e := range q.held.all() {
			h := holder{entry: e, at: n}
			for _, u := range e.held.usage {
				if fr, counts := frs[u.FR]; counts {
					h.usage = h.usage.Add(fr, u.Amount)
				}
			}
			if len(h.usage) == 0 {
				continue
			}
			if len(all) == maxHolders {
				return nil, false
			}
			h.end = ends(PendingWorkload{e})
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b holder) int {
		if (a.end == 0) != (b.end == 0) {
			return cmp.Compare(b.end, a.end)
		}
		return cmp.Or(cmp.Compare(a.end, b.end), order.Compare(a.wl, b.wl), strings.Compare(a.wl.UID, b.wl.UID))
	})
	return all, true
}
