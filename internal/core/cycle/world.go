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
	Options
	Table  *resource.Table
	Quota  *quota.Forest
	Queues []*Queue // by Workload.Queue; nil where one was removed

	// NamespaceLabels returns the labels of a workload's namespace, false if there
	// is no such namespace.
	NamespaceLabels func(*workload.Workload) (map[string]string, bool)
	// Predecessor returns the slice whose place a workload is to take, and the flavors
	// that bind it, or nil. It has to wait while another slice of the job has quota and is
	// not admitted yet. Only workloads with Successor set are asked about.
	Predecessor func(*workload.Workload) (before *workload.Workload, pins []workload.Pin, waits bool)

	byNode []*Queue // by quota.Node
	trees  []*tree  // by the quota.Node of the root
	edited []quota.Node
	stale  bool // edits are not settled yet

	touched  []*tree // with something new to look at
	due      []*tree // to be looked at again because of edits
	keepers  []*Queue
	patterns order.Patterns

	unready int    // how many hold quota and are not ready
	changes uint64 // grows with everything that can alter an answer
	cycles  uint64

	scratch
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

	Pending order.Pending
	holders preempt.Holders
	tree    *tree
	awake   bool // it is in tree.awake
	now     figures
	claim   *claim
	stand   *stand

	round         uint64             // the last cycle in which its head was looked at
	looked        *workload.Workload // the head at the last look
	lookedVersion uint64
}

// NewWorld returns a world without queues.
func NewWorld(o Options) *World {
	t := resource.NewTable()
	w := &World{
		Options: o, Table: t, Quota: quota.NewForest(t),
		NamespaceLabels: func(*workload.Workload) (map[string]string, bool) { return nil, true },
		Predecessor:     func(*workload.Workload) (*workload.Workload, []workload.Pin, bool) { return nil, nil, false },
	}
	w.scratch.bind(w)
	return w
}

// AddQueue gives q its index and lets workloads into it. Edited has to follow.
func (w *World) AddQueue(q *Queue) {
	q.Index, q.now = int32(len(w.Queues)), figures{w, q}
	q.Pending.Share(&w.patterns)
	w.Queues = append(w.Queues, q)
	for int(q.Node) >= len(w.byNode) {
		w.byNode = append(w.byNode, nil)
	}
	w.byNode[q.Node] = q
}

// RemoveQueue takes a queue out, releases what was reserved in it and returns who
// was in its line. Its node can be removed then.
func (w *World) RemoveQueue(q *Queue) []*workload.Workload {
	w.settle()
	line := q.Pending.All()
	for _, wl := range slices.Collect(q.holders.All()) {
		w.Release(wl)
	}
	w.keep(q, nil, nil)
	w.Queues[q.Index], w.byNode[q.Node] = nil, nil
	q.tree.remove(q)
	w.changed(q)
	return line
}

// figures are what the line of a queue asks about the queue.
type figures struct {
	w *World
	q *Queue
}

// Available is what a workload of the queue can have of fr.
func (f *figures) Available(fr resource.FR) resource.Amount { return f.w.Quota.Available(f.q.Node, fr) }

// Winnable reports whether a workload of the queue might have least of fr by preemption.
func (f *figures) Winnable(wl *workload.Workload, fr resource.FR, least resource.Amount) bool {
	s := &f.w.victims
	s.Node, s.Policy, s.Preemptor = f.q.Node, f.q.Preemption, wl
	return s.Could(fr, least)
}

// Enqueue puts a workload at its place in the line of its queue.
func (w *World) Enqueue(wl *workload.Workload) {
	w.settle()
	q := w.Queues[wl.Queue]
	q.Pending.Add(wl, q.Strict || wl.Successor)
	w.rouse(q)
}

// Dequeue takes a workload out of its line.
func (w *World) Dequeue(wl *workload.Workload) {
	w.settle()
	q := w.Queues[wl.Queue]
	if q.Pending.Remove(wl) {
		w.rouse(q)
	}
	claim, stand := q.claim, q.stand
	if claim != nil && claim.heir == wl {
		claim = nil
	}
	if stand != nil && stand.wl == wl {
		stand = nil
	}
	if claim != q.claim || stand != q.stand {
		w.keep(q, claim, stand)
		w.changed(q)
	}
}

// Reserve charges a workload that holds Usage in its queue: one that Step admitted,
// or one that somebody else did. spec: 10 §4.9.
func (w *World) Reserve(wl *workload.Workload) {
	w.settle()
	q := w.Queues[wl.Queue]
	wl.Reserved = true
	w.countUnready(wl, 1)
	q.holders.Add(wl)
	w.charge(q, wl, true)
	w.changed(q)
}

// Release gives back what a workload holds and wakes those that can be helped by it.
func (w *World) Release(wl *workload.Workload) {
	if !wl.Reserved {
		return
	}
	w.settle()
	q := w.Queues[wl.Queue]
	q.holders.Remove(wl)
	w.countUnready(wl, -1)
	wl.Reserved = false
	w.charge(q, wl, false)
	w.Quota.Bump(q.Node)
	w.changed(q)
	w.wake(q.tree, wl.Usage)
}

// charge counts what a workload holds, or no longer. Usage past counting is counted anew
// when some of it goes.
func (w *World) charge(q *Queue, wl *workload.Workload, more bool) {
	switch {
	case more:
		for _, e := range wl.Usage {
			w.Quota.Reach(e.FR)
		}
		w.Quota.Charge(q.Node, wl.Usage)
	case !w.Quota.Saturated(q.Node, wl.Usage):
		w.Quota.Release(q.Node, wl.Usage)
	default:
		var all resource.Vector
		for o := range q.holders.All() {
			if o != wl {
				for _, e := range o.Usage {
					all = all.Plus(e.FR, e.Amount)
				}
			}
		}
		w.Quota.Recount(q.Node, all)
	}
}

// wake notes in the whole tree what was released, where it may be enough for somebody.
func (w *World) wake(t *tree, released resource.Vector) {
	for _, q := range t.queues {
		if q.Pending.Parked() == 0 {
			continue
		}
		for _, e := range released {
			if q.Pending.Release(e.FR, &q.now) {
				w.rouse(q)
			}
		}
	}
}

// Written says at which time the admission of a workload was written down.
func (w *World) Written(wl *workload.Workload, at workload.Instant) {
	if wl.ReservedAt == at || !wl.Reserved { // a slice whose place is taken already
		wl.ReservedAt = at
		return
	}
	q := w.Queues[wl.Queue]
	q.holders.Remove(wl)
	wl.ReservedAt = at
	q.holders.Add(wl)
}

// Settle brings every figure up to date with the edits.
func (w *World) Settle() { w.settle() }

// SetEvicting reports whether a workload with a reservation is on its way out. A slice that was
// to take its place then has to wait until it has left, and is no longer in the way of those
// behind it: if one is head it is looked at again. spec: 20 §4.11.
func (w *World) SetEvicting(wl *workload.Workload, evicting bool) {
	if !wl.Reserved {
		wl.Evicting = evicting
		return
	}
	w.settle()
	q, was := w.Queues[wl.Queue], wl.Evicting
	q.holders.SetEvicting(wl, evicting)
	if head := q.Pending.Head(); evicting && !was && head != nil && head.Successor {
		if before, _, _ := w.Predecessor(head); before == wl {
			q.looked = nil
			w.rouse(q)
		}
	}
}

// SetReady reports whether all pods of a workload with a reservation are ready.
func (w *World) SetReady(wl *workload.Workload, ready bool) {
	if wl.Ready == ready {
		return
	}
	w.countUnready(wl, -1)
	wl.Ready = ready
	w.countUnready(wl, 1)
}

// countUnready counts a workload if it holds quota and is not ready. Once nobody is left
// everyone may be admitted again.
func (w *World) countUnready(wl *workload.Workload, by int) {
	if !wl.Reserved || wl.Ready {
		return
	}
	w.unready += by
	if w.unready > 0 || !w.BlockAdmission {
		return
	}
	for _, t := range w.trees {
		if t != nil && len(t.awake) > 0 {
			w.changes++
			t.version = w.changes
			w.touch(t)
		}
	}
}

// EvictionFailed takes back that a workload was told to go.
func (w *World) EvictionFailed(wl *workload.Workload) {
	w.settle()
	w.SetEvicting(wl, false)
	w.changed(w.Queues[wl.Queue])
}

// Holders returns the workloads that hold quota of q, who would have to go first first.
func (q *Queue) Holders() *preempt.Holders { return &q.holders }

// Heir returns the workload for which quota is held here, or nil.
func (q *Queue) Heir() *workload.Workload {
	if q.claim == nil {
		return nil
	}
	return q.claim.heir
}

// Claim returns what is held for the heir, the victims that are to leave for it, and the
// slice whose place it takes, if any.
func (q *Queue) Claim() (usage resource.Vector, victims []preempt.Victim, before *workload.Workload) {
	if q.claim == nil {
		return nil, nil, nil
	}
	return q.claim.usage, q.claim.victims, q.claim.before
}

// open reports whether workloads of q can be admitted at all.
func (w *World) open(q *Queue) bool {
	return q.Closed == "" && w.Quota.Root(q.Node) != quota.None
}

// preemptible is who could be preempted in a queue: nobody where it is closed.
// spec: 10 §4.3.5.
func (w *World) preemptible(n quota.Node) *preempt.Holders {
	q := w.byNode[n]
	if q == nil || !w.open(q) {
		return nil
	}
	return &q.holders
}
