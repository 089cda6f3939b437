package cycle

import (
	"slices"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// tree is what the queues of one cohort tree have in common. A queue below a cycle of
// cohorts is a tree of its own.
type tree struct {
	name    string   // the first of the names of its queues
	queues  []*Queue // by index
	awake   []*Queue // those with somebody to look at, and some without
	version uint64   // the last change that can alter an answer, by World.changes
	touched bool     // it is in World.touched
	keeps   int      // how many of its queues keep quota from others: claims and stands

	// Edits: everyone is to be looked at again, not before an edit window has passed
	// since the last time.
	edited bool
	wokeAt workload.Instant
	woke   bool
}

// remove takes a queue out of the tree, if it is in it.
func (t *tree) remove(q *Queue) {
	i := slices.Index(t.queues, q)
	if i < 0 {
		return
	}
	t.consistOf(slices.Delete(slices.Clone(t.queues), i, i+1))
	t.awake = slices.DeleteFunc(t.awake, func(o *Queue) bool { return o == q })
	if q.keeps() {
		t.keeps--
	}
}

// consistOf replaces the queues of the tree.
func (t *tree) consistOf(queues []*Queue) {
	t.queues, t.name = queues, ""
	for i, q := range queues {
		if i == 0 || q.Name < t.name {
			t.name = q.Name
		}
	}
}

// Edited tells the world that queues, cohorts or flavors changed. The figures are right
// from here on; everyone in the trees concerned is looked at again by a coming Step, at
// once or, after another edit of the same tree, once the edit window has passed. The
// trees are those of the nodes and those that won or lost a queue. spec: 10 §4.4.
func (w *World) Edited(nodes ...quota.Node) {
	w.edited = append(w.edited, nodes...)
	w.stale = true
}

// settle brings the trees up to date with the edits.
func (w *World) settle() {
	if !w.stale {
		return
	}
	w.stale = false
	if n := w.Table.Len(); n > 0 {
		w.Quota.Reach(resource.FR(n - 1))
	}
	for _, root := range w.Quota.Settle() {
		w.rebuild(root)
	}
	for _, n := range w.edited {
		if root := w.treeRoot(n); root != quota.None && int(root) < len(w.trees) && w.trees[root] != nil {
			w.relook(w.trees[root])
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

// rebuild finds the queues of one tree again.
func (w *World) rebuild(root quota.Node) {
	for int(root) >= len(w.trees) {
		w.trees = append(w.trees, nil)
	}
	var queues []*Queue
	if w.treeRoot(root) == root {
		queues = w.gather(root, nil)
	}
	t := w.trees[root]
	if len(queues) == 0 {
		if t != nil {
			*t = tree{}
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
			q.tree.remove(q)
		}
	}
	t.consistOf(queues)
	t.awake, t.keeps = nil, 0
	for _, q := range queues {
		q.tree, q.awake = t, false
		if q.keeps() {
			t.keeps++
		}
	}
	for _, q := range queues {
		w.rouse(q)
	}
	w.relook(t)
}

func (w *World) gather(n quota.Node, to []*Queue) []*Queue {
	if int(n) < len(w.byNode) && w.byNode[n] != nil {
		to = append(to, w.byNode[n])
	}
	if w.Quota.Root(n) == quota.None {
		return to
	}
	for _, kid := range w.Quota.Kids(n) {
		to = w.gather(kid, to)
	}
	return to
}

func (w *World) relook(t *tree) {
	if !t.edited {
		t.edited = true
		w.due = append(w.due, t)
	}
}

// wakeEdited has everyone looked at again in the edited trees whose window has passed,
// and returns when the next one has, 0 for none.
func (w *World) wakeEdited(now workload.Instant) (next workload.Instant) {
	w.due = slices.DeleteFunc(w.due, func(t *tree) bool {
		if len(t.queues) == 0 {
			t.edited = false
			return true
		}
		if at := t.wokeAt + w.EditWindow; t.woke && now < at {
			next = earlier(next, at)
			return false
		}
		t.edited, t.woke, t.wokeAt = false, true, now
		w.changes++
		t.version = w.changes
		for _, q := range t.queues {
			q.Pending.WakeAll()
			w.rouse(q)
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

// checkClaims is checkClaim for all queues of edited trees. It is for the beginning of a step: a queue may have left its
// tree and come back since the last one, and whether somebody asked for figures in between must not matter.
func (w *World) checkClaims() {
	for _, t := range w.due {
		for _, q := range t.queues {
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
		if from := w.byNode[v.Node]; from == nil || w.treeRoot(v.Node) != w.treeRoot(q.Node) {
			w.keep(q, nil, q.stand)
			return
		}
	}
}

// rouse notes that somebody in the queue may have to be looked at.
func (w *World) rouse(q *Queue) {
	if !q.awake {
		q.awake = true
		q.tree.awake = append(q.tree.awake, q)
	}
	w.touch(q.tree)
}

func (w *World) touch(t *tree) {
	if !t.touched {
		t.touched = true
		w.touched = append(w.touched, t)
	}
}

// changed notes that an answer in q's tree may be another one now.
func (w *World) changed(q *Queue) {
	w.changes++
	q.tree.version = w.changes
	w.touch(q.tree)
}

// ready returns, in order of their index, the queues of trees whose head was not yet
// looked at in the present state of its tree.
func (w *World) ready(trees []*tree) []*Queue {
	queues := w.queues[:0]
	for _, t := range trees {
		awake := t.awake[:0]
		for _, q := range t.awake {
			q.Pending.WakeNext(&q.now)
			head := q.Pending.Head()
			if head == nil {
				q.awake = false
				continue
			}
			awake = append(awake, q)
			if w.open(q) && (q.looked != head || q.lookedVersion != t.version) {
				queues = append(queues, q)
			}
		}
		t.awake = awake
	}
	slices.SortFunc(queues, func(a, b *Queue) int { return int(a.Index) - int(b.Index) })
	w.queues = queues
	return queues
}
