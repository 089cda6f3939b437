package cycle

import (
	"slices"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Quota belongs to one cohort tree. Capacity of other dimensions is shared: a node serves queues of
// several trees. So the trees with queues that Share run their cycles together, a release in one of
// them wakes workloads of the others, and a cycle keeps what the preemptors of all of them hold.

// setInadmissible makes the class of a workload inadmissible until wants may be met.
func (w *World) setInadmissible(q *Queue, wl *workload.Workload, wants []workload.Want) {
	q.Pending.SetInadmissible(wl, wants)
	w.watchMeasures(q, wants)
}

// watchMeasures notes the measures among the wants of a queue's inadmissible class.
func (w *World) watchMeasures(q *Queue, wants []workload.Want) {
	for i := range wants {
		if wants[i].FR < 0 {
			w.watchMeasure(q, wants[i].FR)
		}
	}
}

func (w *World) watchMeasure(q *Queue, fr resource.FR) {
	at := int(-1 - fr)
	for len(w.watchers) <= at {
		w.watchers = append(w.watchers, nil)
	}
	place, known := slices.BinarySearchFunc(w.watchers[at], q, func(a, b *Queue) int { return int(a.Index) - int(b.Index) })
	if !known {
		w.watchers[at] = slices.Insert(w.watchers[at], place, q)
	}
}

// raise evaluates the wake conditions on a measure that may have grown, in all trees.
func (w *World) raise(fr resource.FR) {
	at := int(-1 - fr)
	if at >= len(w.watchers) {
		return
	}
	w.watchers[at] = slices.DeleteFunc(w.watchers[at], func(q *Queue) bool {
		if w.Queues[q.Index] == nil || q.Pending.Inadmissible() == 0 {
			return true
		}
		if q.Pending.Release(fr, &q.now) {
			w.activate(q)
		}
		return false
	})
}

// fewMeasures is the number of measures up to which none is forgotten.
const fewMeasures = 256

// sweepMeasures forgets the measures that no workload waits for, once there are twice as many as
// there were after the last time.
func (w *World) sweepMeasures() {
	if w.Ledger.KnownMeasures() <= max(fewMeasures, 2*w.sweptMeasures) {
		return
	}
	live := map[resource.FR]bool{}
	for _, q := range w.Queues {
		if q != nil {
			q.Pending.Measures(func(fr resource.FR) { live[fr] = true })
		}
	}
	w.Ledger.ForgetMeasures(func(fr resource.FR) bool { return live[fr] })
	for at := range w.watchers {
		if !live[resource.FR(-1-at)] {
			w.watchers[at] = nil
		}
	}
	w.sweptMeasures = w.Ledger.KnownMeasures()
}

// raising is the evaluation of all wake conditions on capacity that was released or has changed, once for all changes. A measure may cost
// as much as a placement, so this is work of the steps. The trees that share capacity wait until it is complete: so the decisions about
// them are the same whatever the budget is. Others go on.
type raising struct {
	grown []ledger.Key // the dimensions that have changed since it began
	of    []ledger.Key // the dimensions at work; none if it is complete
	next  resource.FR  // the measure with which it goes on
	work  int          // its units of work so far
	owed  int          // the units that the trees that share capacity may use before it begins again
}

// measuresPerUnit is how many measures are one unit of work: the evaluation of a workload whose shape is not known looks at all nodes as often.
const measuresPerUnit = 4

// raiseGrown goes on with the evaluation of wake conditions until it is complete, or the work of the step reaches an amount.
func (w *World) raiseGrown(until int) {
	r := &w.raising
	if len(r.of) == 0 && r.owed <= 0 {
		r.of, r.grown, r.next, r.work = r.grown, r.of, -1, 0
	}
	for n := 0; len(r.of) > 0; r.next-- {
		id, ok := w.Ledger.MeasureAt(r.next)
		switch {
		case !ok:
			r.of, r.owed = r.of[:0], r.work
			return
		case !slices.Contains(r.of, id.Of):
			continue
		case n%measuresPerUnit > 0:
		case w.work >= until:
			return
		default:
			w.work++
			r.work++
		}
		n++
		w.raise(r.next)
	}
}

// isRaising reports whether the trees that share capacity have to wait.
func (w *World) isRaising() bool { return len(w.raising.of) > 0 }

// endRaising lets the next evaluation begin if the trees that share capacity have nothing to try, and reports whether there is one to make.
func (w *World) endRaising() (more bool) {
	r := &w.raising
	if !slices.ContainsFunc(w.touched, func(t *tree) bool { return t.touched && t.shares }) {
		r.owed = 0
	}
	return len(r.of)+len(r.grown) > 0
}

// wakeSharing has the wake conditions of all trees evaluated after a release of shared capacity: at once within a step, whose cycles go on
// with it.
func (w *World) wakeSharing(released ledger.Usage) {
	if !released.Shares() {
		return
	}
	if w.stepping {
		for fr := range w.Ledger.Raised(released) {
			w.raise(fr)
		}
	} else {
		for of := range released.Dimensions() {
			w.grow(of)
		}
	}
	w.changedSharing()
}

func (w *World) grow(of ledger.Key) {
	if !slices.Contains(w.raising.grown, of) {
		w.raising.grown = append(w.raising.grown, of)
	}
}

// CapacityChanged notes that the capacity of a dimension has changed from outside: its nodes, or the
// workloads on them that no queue admits. The next steps evaluate all wake conditions on it.
func (w *World) CapacityChanged(of ledger.Key) {
	w.applyEdits()
	w.grow(of)
	w.changedSharing()
}

// changedSharing notes that decisions in the trees that share capacity may change.
func (w *World) changedSharing() {
	for _, t := range w.trees {
		if t != nil && t.shares {
			w.changes++
			t.version = w.changes
			w.touch(t)
			w.wakeStarts(t)
		}
	}
}

// touchSharing touches all trees that share capacity if one of them is touched: they run together.
func (w *World) touchSharing() {
	if slices.ContainsFunc(w.touched, func(t *tree) bool { return t.shares }) {
		for _, t := range w.trees {
			if t != nil && t.shares {
				w.touch(t)
			}
		}
	}
}

// sharing returns the touched trees that share capacity.
func (w *World) sharing() (trees []*tree) {
	for _, t := range w.touched {
		if t.shares {
			trees = append(trees, t)
		}
	}
	return trees
}
