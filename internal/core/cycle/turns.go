package cycle

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/workload"
)

// Work is counted in evaluations. An evaluation that visits many candidates for preemption counts as several.
const candidatesPerUnit = 64

// Step runs cycles until no head has anything new to try, or the work exceeds the budget: only a cycle that has begun goes on.
// Admitted workloads are charged at once, as if their admission were written already; Release undoes that.
//
// Trees are independent, and share the budget: each runs its part of what is left before the next one begins, which keeps its data
// in the processor's cache, and a step begins with the tree at which the last one ended. So the decisions about a tree are the same
// whatever the budget is. They are ordered by cycle, and within one cycle by tree. Trees that share capacity depend on each other, and
// with BlockAdmission all do: these run together.
//
// A later step may retract the admissions of this one, until SettleAdmissions. spec: design §4.
func (w *World) Step(now workload.Instant, budget int) Result {
	w.applyEdits()
	w.stepping = true
	defer func() { w.stepping = false }()
	w.work, w.heads = 0, 0
	w.raiseGrown(budget - budget/2)
	w.checkNominations()
	var r Result
	w.expireNominations(now)
	w.expireStarts(now)
	w.endRests(now)
	r.Next = w.wakeEdited(now)
	w.round.now, w.treeCycles = now, w.treeCycles[:0]
	w.touchSharing()
	slices.SortFunc(w.touched, func(a, b *tree) int { return strings.Compare(a.name, b.name) })
	switch {
	case !w.BlockAdmission:
		w.runInTurn(budget)
	case !w.isRaising():
		w.run(&w.touched, budget)
	}
	w.touched = slices.DeleteFunc(w.touched, func(t *tree) bool { return !t.touched })
	more := w.endRaising()
	r.Work, r.Heads, r.More = w.work, w.heads, more || len(w.touched) > 0
	if !r.More {
		w.endCycles()
		w.sweepMeasures()
	}
	r.Next = earlier(earlier(r.Next, w.expireNominations(now)), earlier(w.expireStarts(now), w.endRests(now)))
	w.inOrder(&r)
	r.Retracted, w.revoked = w.revoked, nil
	r.Endless, w.endless = w.endless, nil
	return r
}

// runInTurn runs the touched trees one after another until none has anything to try, or the budget is spent. A tree that touches others makes them
// run after all trees that were touched before.
func (w *World) runInTurn(budget int) {
	touched := w.touched
	if w.isRaising() {
		touched = w.stillTouched()
	}
	first, _ := slices.BinarySearchFunc(touched, w.next, func(t *tree, name string) int { return strings.Compare(t.name, name) })
	for ; len(touched) > 0; touched = w.stillTouched() {
		shared := false // these have run
		for i := range touched {
			t := touched[(first+i)%len(touched)]
			if !t.touched || (t.shares && shared) {
				continue
			}
			if w.work >= budget {
				w.next = t.name
				return
			}
			group := []*tree{t}
			if t.shares {
				w.touchSharing()
				group, shared = w.sharing(), true
			}
			w.run(&group, w.work+max(1, (budget-w.work)/len(touched)))
		}
		first = 0
	}
	w.next = ""
}

// stillTouched returns the touched trees that may run now.
func (w *World) stillTouched() (trees []*tree) {
	for _, t := range w.touched {
		if t.touched && !(t.shares && w.isRaising()) {
			trees = append(trees, t)
		}
	}
	return trees
}

// run runs cycles of trees, together, until none has anything to try, or the work of the step reaches an amount. The trees with
// something to try stay touched.
func (w *World) run(trees *[]*tree, until int) {
	for {
		queues := w.ready(*trees)
		if len(queues) == 0 || w.work >= until {
			for _, t := range *trees {
				if t.touched = len(queues) > 0; !t.touched {
					t.runSince = 0
				}
			}
			return
		}
		for _, t := range *trees {
			if t.ran++; t.ran == 1 {
				w.ran = append(w.ran, t)
			}
		}
		visited := w.victims.Visited
		w.treeCycles = append(w.treeCycles, treeCycle{(*trees)[0].ran, w.round.run(queues)})
		w.heads += len(queues)
		work := w.round.work(len(queues)) + w.round.followers + (w.victims.Visited-visited)/candidatesPerUnit
		w.work += work
		if (*trees)[0].shares || w.BlockAdmission {
			w.raising.owed -= work
		}
		if w.countCycle(*trees) {
			w.rest(*trees)
			return
		}
	}
}

// cycle is the number of the last cycle of a tree. Cycles of trees count as if the trees had run side by side, also when a budget
// has divided them into several steps.
func (w *World) cycle(t *tree) uint64 { return w.cycles + uint64(t.ran) }

// endCycles counts the cycles since the last step that left nothing to do.
func (w *World) endCycles() {
	most := 0
	for _, t := range w.ran {
		most, t.ran = max(most, t.ran), 0
	}
	clear(w.ran)
	w.cycles, w.ran = w.cycles+uint64(most), w.ran[:0]
}

// treeCycle is the decisions of one cycle of a tree.
type treeCycle struct {
	cycle     int
	decisions []Decision
}

// inOrder adds the decisions to the result, by cycle, and counts the cycles.
func (w *World) inOrder(r *Result) {
	slices.SortStableFunc(w.treeCycles, func(a, b treeCycle) int { return cmp.Compare(a.cycle, b.cycle) })
	n, last, admitted := 0, 0, 0 // the last cycle, and the last one that admitted
	for _, t := range w.treeCycles {
		n += len(t.decisions)
		if t.cycle != last {
			last = t.cycle
			r.Cycles++
		}
		if t.cycle != admitted && slices.ContainsFunc(t.decisions, Decision.admits) {
			admitted = t.cycle
			r.Admitting++
		}
	}
	r.Decisions = make([]Decision, 0, n)
	for _, t := range w.treeCycles {
		r.Decisions = append(r.Decisions, t.decisions...)
	}
	clear(w.treeCycles)
}
