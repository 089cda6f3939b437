// Package cycle runs scheduling: a world in, decisions and their trace out.
//
// A step is as many cycles as there is progress to make. One cycle looks at the head
// of every queue that has something new to try: it nominates flavors for all of
// them against the same world, sorts them, and then charges, books or refuses them
// one by one. The outcome equals running those cycles one at a time. spec: 10 §4.5.
package cycle

import (
	"slices"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// World is everything a decision depends on. It is changed only by its methods and
// by Step; the package state owns one and feeds it.
type World struct {
	Table  *resource.Table
	Quota  *quota.Forest
	Queues []*Queue // by Workload.Queue; nil where one was removed

	// IgnoreUndeclared: resources that a queue does not cover need no quota there.
	IgnoreUndeclared bool
	// NamespaceLabels returns the labels of a workload's namespace, false if there
	// is no such namespace.
	NamespaceLabels func(*workload.Workload) (map[string]string, bool)

	byNode  map[quota.Node]*Queue
	trees   map[quota.Node]*tree // by root
	touched []quota.Node         // roots of trees with something new
	changes uint64
}

// tree is what the queues of one cohort tree have in common.
type tree struct {
	queues  []*Queue
	version uint64 // the last change that can alter an answer, by World.changes
	touched bool
}

// Queue is a ClusterQueue as the engine sees it.
type Queue struct {
	Name  string
	Index int32
	Node  quota.Node

	// Closed is why nothing is admitted here, as a clause; "" is open.
	Closed     string
	Strict     bool // the head blocks whoever is behind it
	Namespaces []workload.Term
	Groups     []flavor.Group
	Policy     flavor.Fungibility
	Preemption preempt.Policy

	Pending  order.Pending
	reserved []*workload.Workload
	claim    *claim
	stand    *entry // the head of a strict queue that keeps quota from others: see reserve

	looked        *workload.Workload // the head at the last look
	lookedVersion uint64
}

// NewWorld returns a world without queues.
func NewWorld() *World {
	return &World{
		Table: resource.NewTable(), Quota: quota.NewForest(),
		NamespaceLabels: func(*workload.Workload) (map[string]string, bool) { return nil, true },
		byNode:          map[quota.Node]*Queue{}, trees: map[quota.Node]*tree{},
	}
}

// AddQueue gives q its index and lets workloads into it.
func (w *World) AddQueue(q *Queue) {
	q.Index = int32(len(w.Queues))
	w.Queues = append(w.Queues, q)
	w.byNode[q.Node] = q
}

// RemoveQueue takes a queue out, releases what was reserved in it and returns who
// was in its line.
func (w *World) RemoveQueue(q *Queue) []*workload.Workload {
	line := q.Pending.All()
	for _, wl := range slices.Clone(q.reserved) {
		w.Release(wl)
	}
	w.Queues[q.Index] = nil
	delete(w.byNode, q.Node)
	return line
}

// Edited tells the world that queues, cohorts or flavors changed: everything is
// recomputed, and everyone in the trees concerned is looked at again: those of the
// nodes, and those that won or lost a queue. With no nodes named, in all of them.
// Coalescing bursts of edits is the caller's. spec: 10 §4.4.
func (w *World) Edited(nodes ...quota.Node) {
	for fr := range w.Table.Len() {
		w.Quota.Reach(resource.FR(fr))
	}
	w.Quota.Settle()
	old := w.trees
	w.trees, w.touched = map[quota.Node]*tree{}, nil
	w.changes++
	for _, q := range w.Queues {
		if q == nil {
			continue
		}
		root := w.rootOf(q)
		t := w.trees[root]
		if t == nil {
			t = &tree{version: w.changes}
			w.trees[root] = t
		}
		t.queues = append(t.queues, q)
	}
	named := map[quota.Node]bool{}
	for _, n := range nodes {
		if n != quota.None {
			named[n], named[w.Quota.Root(n)] = true, true
		}
	}
	for root, t := range w.trees { //berth:unordered each tree is treated on its own, and ready sorts
		if before := old[root]; before != nil && len(nodes) > 0 && !named[root] && slices.Equal(before.queues, t.queues) {
			t.version = before.version
			if before.touched {
				w.touch(root)
			}
			continue
		}
		w.touch(root)
		for _, q := range t.queues {
			q.Pending.WakeAll()
			w.checkClaim(q)
		}
	}
}

// checkClaim gives up a claim that rests on a victim in a tree that the queue no
// longer belongs to: its going frees nothing here, and others there count on it.
func (w *World) checkClaim(q *Queue) {
	if q.claim == nil {
		return
	}
	for _, v := range q.claim.victims {
		if from := w.byNode[v.Node]; from == nil || w.rootOf(from) != w.rootOf(q) {
			q.claim = nil
			return
		}
	}
}

// rootOf is the root of the queue's tree; a queue below a cycle is a tree of its own.
func (w *World) rootOf(q *Queue) quota.Node {
	if root := w.Quota.Root(q.Node); root != quota.None {
		return root
	}
	return q.Node
}

func (w *World) touch(root quota.Node) {
	if t := w.trees[root]; t != nil && !t.touched {
		t.touched = true
		w.touched = append(w.touched, root)
	}
}

// changed notes that an answer in q's tree may be another one now.
func (w *World) changed(q *Queue) {
	root := w.rootOf(q)
	w.changes++
	w.trees[root].version = w.changes
	w.touch(root)
}

// Enqueue puts a workload at its place in the line of its queue.
func (w *World) Enqueue(wl *workload.Workload) {
	q := w.Queues[wl.Queue]
	q.Pending.Add(wl, q.Strict)
	w.touch(w.rootOf(q))
}

// Dequeue takes a workload out of its line.
func (w *World) Dequeue(wl *workload.Workload) {
	q := w.Queues[wl.Queue]
	if q.Pending.Remove(wl) {
		w.touch(w.rootOf(q))
	}
	if q.claim != nil && q.claim.heir == wl {
		q.claim = nil
		w.changed(q)
	}
	if q.stand != nil && q.stand.wl == wl {
		q.stand = nil
		w.changed(q)
	}
}

// Reserve charges a workload that holds Usage in its queue: one that Step admitted,
// or one that somebody else did. spec: 10 §4.9.
func (w *World) Reserve(wl *workload.Workload) {
	q := w.Queues[wl.Queue]
	for _, e := range wl.Usage {
		w.Quota.Reach(e.FR)
	}
	w.Quota.Charge(q.Node, wl.Usage)
	wl.Reserved, wl.Slot = true, len(q.reserved)
	q.reserved = append(q.reserved, wl)
	w.changed(q)
}

// Release gives back what a workload holds and wakes those that can be helped by it.
func (w *World) Release(wl *workload.Workload) {
	q := w.Queues[wl.Queue]
	if !wl.Reserved {
		return
	}
	last := len(q.reserved) - 1
	q.reserved[wl.Slot] = q.reserved[last]
	q.reserved[wl.Slot].Slot = wl.Slot
	q.reserved[last] = nil
	q.reserved = q.reserved[:last]
	if w.Quota.Saturated(q.Node, wl.Usage) {
		var all resource.Vector
		for _, o := range q.reserved {
			for _, e := range o.Usage {
				all = all.Plus(e.FR, e.Amount)
			}
		}
		w.Quota.Recount(q.Node, all)
	} else {
		w.Quota.Release(q.Node, wl.Usage)
	}
	wl.Reserved = false
	w.changed(q)
	w.wake(q, wl.Usage)
}

// wake makes those active, in the whole tree, that want some of what was released.
func (w *World) wake(q *Queue, released resource.Vector) {
	frs := make([]resource.FR, len(released))
	for i, e := range released {
		frs[i] = e.FR
	}
	for _, o := range w.trees[w.rootOf(q)].queues {
		o.Pending.Wake(frs)
	}
}

// EvictionFailed takes back that a workload was told to go.
func (w *World) EvictionFailed(wl *workload.Workload) {
	wl.Evicting = false
	w.changed(w.Queues[wl.Queue])
}

// Reserved returns the workloads that hold quota of q, in no order that means
// anything. Not to be modified.
func (q *Queue) Reserved() []*workload.Workload { return q.reserved }

// Heir returns the workload for which quota is held here, or nil.
func (q *Queue) Heir() *workload.Workload {
	if q.claim == nil {
		return nil
	}
	return q.claim.heir
}

// Claim returns what is held for the heir, and the victims that are to leave for it.
func (q *Queue) Claim() (resource.Vector, []preempt.Victim) {
	if q.claim == nil {
		return nil, nil
	}
	return q.claim.usage, q.claim.victims
}

// open tells whether workloads of q can be admitted at all.
func (w *World) open(q *Queue) bool {
	return q.Closed == "" && w.Quota.Root(q.Node) != quota.None
}

// holders is who could be preempted in a queue: nobody where it is closed.
// spec: 10 §4.3.5.
func (w *World) holders(n quota.Node) []*workload.Workload {
	q := w.byNode[n]
	if q == nil || !w.open(q) {
		return nil
	}
	return q.reserved
}

// ready returns, in order of their index, the queues whose head was not yet looked
// at in the present state of its tree.
func (w *World) ready() []*Queue {
	var queues []*Queue
	for _, root := range w.touched {
		t := w.trees[root]
		t.touched = false
		for _, q := range t.queues {
			head := q.Pending.Head()
			if head == nil || !w.open(q) || (q.looked == head && q.lookedVersion == t.version) {
				continue
			}
			queues = append(queues, q)
		}
	}
	w.touched = w.touched[:0]
	slices.SortFunc(queues, func(a, b *Queue) int { return int(a.Index) - int(b.Index) })
	return queues
}
