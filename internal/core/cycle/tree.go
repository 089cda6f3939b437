package cycle

import (
	"cmp"
	"slices"

	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// tree is the queues of one cohort tree. A queue below a cycle of cohorts is a tree of its own.
type tree struct {
	name    string   // the first of the names of its queues
	queues  []*Queue // by index
	awake   []*Queue // a superset of the queues with active workloads
	version uint64   // of the last change that can alter a decision, by World.changes
	touched bool     // it is in World.touched
	ran     int      // cycles since the last step that left nothing to do
	holding int      // how many of its queues hold quota: nominations and head reservations
	shares  bool     // some of its queues share capacity with other trees
	ends    *endings // nil if none of its queues reserves starts

	thresholds *order.Thresholds // of all its queues

	// A run is the cycles until no head has anything new to try.
	runSince  workload.Instant // the end of the first step that interrupted it; 0 is none
	tentative bool             // its admissions stay tentative after the step

	progress   progress
	restsUntil workload.Instant // 0 for a tree that does not rest

	// After an edit all workloads are evaluated again, at most once in an edit window.
	edited bool
	wokeAt workload.Instant
	woke   bool
}

// remove removes a queue from the tree, if it is in it.
func (t *tree) remove(q *Queue) {
	i := slices.Index(t.queues, q)
	if i < 0 {
		return
	}
	t.consistOf(slices.Delete(slices.Clone(t.queues), i, i+1))
	t.awake = slices.DeleteFunc(t.awake, func(o *Queue) bool { return o == q })
	if q.holdsQuota() {
		t.holding--
	}
}

// consistOf replaces the queues of the tree.
func (t *tree) consistOf(queues []*Queue) {
	t.queues, t.name, t.ends, t.thresholds = queues, "", nil, &order.Thresholds{}
	t.findSharing()
	for i, q := range queues {
		q.Pending.Join(t.thresholds, &q.now)
		if i == 0 || q.Name < t.name {
			t.name = q.Name
		}
	}
}

// findSharing recomputes whether the tree shares capacity, and whether it reserves starts.
func (t *tree) findSharing() {
	t.shares = slices.ContainsFunc(t.queues, func(q *Queue) bool { return q.Shares })
	switch starts := slices.ContainsFunc(t.queues, func(q *Queue) bool { return q.Backfill != NoBackfill }); {
	case !starts:
		t.ends = nil
	case t.ends == nil:
		t.ends = &endings{}
	}
	for _, q := range t.queues {
		if q.Backfill == NoBackfill {
			q.start = nil
		}
		if q.Backfill != Conservative {
			q.further = nil
		}
	}
}

// Edited notes that queues, cohorts or flavors changed. A coming Step evaluates again all
// workloads of the trees of the nodes and of the trees that won or lost a queue: the next one
// or, after another edit of the same tree, the first one after the edit window. spec: 10 §4.4.
func (w *World) Edited(nodes ...quota.Node) {
	w.edited = append(w.edited, nodes...)
	w.stale = true
}

// applyEdits updates the trees after edits.
func (w *World) applyEdits() {
	if !w.stale {
		return
	}
	w.stale = false
	if n := w.Table.Len(); n > 0 {
		w.Quota.Reach(resource.FR(n - 1))
	}
	for _, root := range w.Quota.Recompute() {
		w.rebuild(root)
	}
	for _, n := range w.edited {
		if root := w.treeRoot(n); root != quota.None && int(root) < len(w.trees) && w.trees[root] != nil {
			w.markEdited(w.trees[root])
		}
	}
	w.edited = w.edited[:0]
}

// treeRoot is the root of the node's tree; a node below a cycle is a tree of its own.
func (w *World) treeRoot(n quota.Node) quota.Node {
	if n == quota.None {
		return quota.None
	}
	if root := w.Quota.Root(n); root != quota.None {
		return root
	}
	return n
}

// rebuild collects the queues of one tree.
func (w *World) rebuild(root quota.Node) {
	for int(root) >= len(w.trees) {
		w.trees = append(w.trees, nil)
	}
	var queues []*Queue
	if w.treeRoot(root) == root {
		queues = w.collectQueues(root, nil)
	}
	t := w.trees[root]
	if len(queues) == 0 {
		if t != nil {
			*t = tree{ran: t.ran}
			w.trees[root] = nil
		}
		return
	}
	if t == nil {
		t = &tree{}
		w.trees[root] = t
	}
	slices.SortFunc(queues, func(a, b *Queue) int { return int(a.Index) - int(b.Index) })
	if !slices.Equal(t.queues, queues) {
		w.changes++
		t.version = w.changes
	}
	for _, q := range queues {
		if q.tree != nil && q.tree != t {
			if t.ran == 0 && q.tree.ran > 0 {
				w.ran = append(w.ran, t)
			}
			t.ran = max(t.ran, q.tree.ran)
			q.tree.remove(q)
		}
	}
	t.consistOf(queues)
	t.awake, t.holding = nil, 0
	for _, q := range queues {
		q.tree, q.awake = t, false
		if q.holdsQuota() {
			t.holding++
		}
	}
	for _, q := range queues {
		w.activate(q)
	}
	w.markEdited(t)
}

func (w *World) collectQueues(n quota.Node, to []*Queue) []*Queue {
	if int(n) < len(w.byNode) && w.byNode[n] != nil {
		to = append(to, w.byNode[n])
	}
	if w.Quota.Root(n) == quota.None {
		return to
	}
	for _, kid := range w.Quota.Kids(n) {
		to = w.collectQueues(kid, to)
	}
	return to
}

func (w *World) markEdited(t *tree) {
	t.findSharing()
	if !t.edited {
		t.edited = true
		w.due = append(w.due, t)
	}
}

// wakeEdited activates all workloads of the edited trees whose window has passed, and returns
// the end of the next window, 0 for none.
func (w *World) wakeEdited(now workload.Instant) (next workload.Instant) {
	w.due = slices.DeleteFunc(w.due, func(t *tree) bool {
		if len(t.queues) == 0 {
			t.edited = false
			return true
		}
		t.wokeAt = min(t.wokeAt, now) // the clock may have been set back
		if at := t.wokeAt + w.EditWindow; t.woke && now < at {
			next = earlier(next, at)
			return false
		}
		t.edited, t.woke, t.wokeAt = false, true, now
		w.changes++
		t.version = w.changes
		for _, q := range t.queues {
			if !w.open(q) {
				q.start, q.further = nil, nil
			}
			q.Pending.WakeAll()
			w.activate(q)
		}
		return true
	})
	return next
}

// earlier of two instants, 0 being none.
func earlier(a, b workload.Instant) workload.Instant {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// checkNominations is checkNomination for all queues of edited trees. It belongs to the beginning of a step: a queue may have left its
// tree and come back since the last one, and a question in between must not change the outcome.
func (w *World) checkNominations() {
	for _, t := range w.due {
		for _, q := range t.queues {
			w.checkNomination(q)
		}
	}
}

// checkNomination drops a nomination with a victim in a tree that the queue no longer belongs
// to: its eviction frees nothing here, and preemptors there count on it. Of victims that have left nothing is remembered.
func (w *World) checkNomination(q *Queue) {
	if q.nomination == nil {
		return
	}
	for _, v := range q.nomination.remaining() {
		if from := w.byNode[v.Node]; from == nil || w.treeRoot(v.Node) != w.treeRoot(q.Node) {
			w.setHeld(q, nil, q.headReservation)
			return
		}
	}
}

// activate notes that the queue may have active workloads.
func (w *World) activate(q *Queue) {
	if !q.awake {
		q.awake = true
		q.tree.awake = append(q.tree.awake, q)
	}
	w.touch(q.tree)
}

func (w *World) touch(t *tree) {
	if !t.touched && t.restsUntil == 0 {
		t.touched, t.progress = true, progress{}
		w.touched = append(w.touched, t)
	}
}

// changed notes that decisions in q's tree may change.
func (w *World) changed(q *Queue) {
	w.changes++
	q.tree.version = w.changes
	w.touch(q.tree)
}

// ready returns, by index, the queues of trees whose head was not evaluated in the present
// state of its tree.
func (w *World) ready(trees []*tree) []*Queue {
	queues := w.queues[:0]
	mayBeLate := w.mayBeLate(trees)
	for _, t := range trees {
		awake := t.awake[:0]
		for _, q := range t.awake {
			open := w.open(q)
			q.late = nil
			if wl, wants := q.Pending.Next(&q.now); wl != nil && !(mayBeLate && open && w.setLate(q, wl, wants)) {
				q.Pending.Wake(wl)
			}
			head := cmp.Or(q.late, q.Pending.Head())
			if head == nil {
				q.awake = false
				continue
			}
			awake = append(awake, q)
			if open && (q.evaluated != head || q.evaluatedVersion != t.version) {
				queues = append(queues, q)
			}
		}
		t.awake = awake
	}
	slices.SortFunc(queues, func(a, b *Queue) int { return int(a.Index) - int(b.Index) })
	w.queues = queues
	return queues
}
