// Package cycle runs scheduling: a world in, decisions and their trace out.
//
// A step is as many cycles as there is progress to make. One cycle evaluates the head of every
// queue that has something new to try: it nominates flavors for all of them against the same
// world, sorts them, and then charges, books or refuses them one by one. The outcome equals
// that of the cycles run one at a time. spec: 10 §4.5.
package cycle

import (
	"slices"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Replaced is the slice of a job that another one is to replace. spec: 20 §4.11.
type Replaced struct {
	*workload.Workload                // nil if there is none
	Pins               []workload.Pin // its flavors, which bind the other one
	// Waits: another slice of the job has a reservation and is not admitted yet.
	Waits bool
	// Placed returns where its pods of a pod set are placed, nil for nowhere.
	Placed func(podSet string) *trace.Placement
}

// World is the input of every decision. It is changed only by its methods and by Step; the
// package state owns one and feeds it.
type World struct {
	Options
	Table          *resource.Table
	*ledger.Ledger          // what is charged; Release of a World is about a workload, and calls that of the Ledger
	Queues         []*Queue // by Workload.Queue; nil where one was removed

	// NamespaceLabels returns the labels of a workload's namespace, false if there is no such
	// namespace.
	NamespaceLabels func(*workload.Workload) (map[string]string, bool)
	// ReplacedSlice returns the slice that a workload is to replace. It is called for workloads with MayReplace only.
	ReplacedSlice func(*workload.Workload) Replaced
	// Barred returns why a workload waits for other variants of its job, "" if it need not. It is called for workloads with Variant only.
	Barred func(*workload.Workload) string
	// Unbar evaluates the variants again that a workload with Variant barred until its admission was retracted.
	Unbar func(*workload.Workload)
	// Migrating returns the variants of the job of a workload that have to leave before it gets quota. It is called for workloads with
	// Variant only.
	Migrating func(*workload.Workload) []preempt.Victim
	// Assumed is called of each admission in a UsageBased queue, and when one is retracted. It returns the standing of the LocalQueue line
	// from then on, false if it stays as it is. spec: 20 §4.4.
	Assumed func(wl *workload.Workload, admitted bool) (order.Standing, bool)
	// StandingOf returns the standing of the LocalQueue of a workload with a reservation in a UsageBased queue.
	StandingOf func(*workload.Workload) order.Standing
	// Places places pods on nodes; nil in a world without topologies.
	Places Placer

	byNode []*Queue // by quota.Node
	trees  []*tree  // by the quota.Node of the root
	edited []quota.Node
	stale  bool // there are edits to apply

	touched  []*tree  // with something new to try
	due      []*tree  // edited, and not evaluated since
	holders  []*Queue // a superset of the queues with nominations that can expire
	starters []*Queue // a superset of the queues with reserved starts whose time is to come
	patterns order.Patterns
	watchers [][]*Queue // by −1−FR of a measure: a superset of the queues with wake conditions on it, by index
	raising  raising
	// sweptMeasures is how many measures there were after the last sweep.
	sweptMeasures int

	unready  int     // number of workloads with a reservation that are not ready
	changes  uint64  // grows with every change that can alter a decision
	cycles   uint64  // until the last step that left nothing to do, see World.cycle
	ran      []*tree // the trees with cycles since then
	next     string  // the name of the tree with which the next step begins
	stepping bool    // within a step
	work     int     // units of work of the step
	heads    int     // heads of the step

	resting []*tree  // see mostVain
	endless []string // the names of trees that began to rest in the step
	gained  int      // see progress, of the present cycle

	tentative []*workload.Workload // a superset of those admitted in runs that have not ended
	revoked   []*workload.Workload // see Result.Retracted

	scratch
}

// Queue is a ClusterQueue in the engine.
type Queue struct {
	Name  string
	Index int32
	Node  quota.Node

	// Closed is why nothing is admitted here, as a clause; "" is open.
	Closed     string
	Strict     bool // the head blocks the workloads behind it
	UsageBased bool // the order is that of the standings of its LocalQueue lines first
	// Backfill: its first blocked workloads get reserved starts, and others may start before them if they do not move those.
	Backfill   Backfill
	Namespaces []workload.Term
	Groups     []flavor.Group
	Policy     flavor.Fungibility
	Preemption preempt.Policy
	// Shares: its workloads may need capacity that queues of other trees use as well: of another
	// dimension than quota.
	Shares bool
	// DelayAll, or DelayFlavors for some flavors, delays the placement of pods: see Delayed.
	DelayAll     bool
	DelayFlavors []string

	Pending         order.Pending
	holders         preempt.Holders
	tree            *tree
	awake           bool // it is in tree.awake
	now             figures
	nomination      *nomination
	headReservation *headReservation
	start           *start   // of its first blocked workload
	further         []*start // of the next ones, in order; see planFurther

	late      *workload.Workload // the head of an inadmissible class that the next cycle may activate, or nil
	lateLevel int                // how far up the cohorts that will borrow

	round            uint64             // the last cycle in which its head was evaluated
	evaluated        *workload.Workload // the head at the last evaluation
	evaluatedVersion uint64
}

// NewWorld returns a world without queues.
func NewWorld(o Options) *World {
	t := resource.NewTable()
	w := &World{
		Options: o, Table: t, Ledger: ledger.New(t),
		NamespaceLabels: func(*workload.Workload) (map[string]string, bool) { return nil, true },
		ReplacedSlice:   func(*workload.Workload) Replaced { return Replaced{} },
		Barred:          func(*workload.Workload) string { return "" },
		Unbar:           func(*workload.Workload) {},
		Migrating:       func(*workload.Workload) []preempt.Victim { return nil },
		Assumed:         func(*workload.Workload, bool) (order.Standing, bool) { return 0, false },
		StandingOf:      func(*workload.Workload) order.Standing { return 0 },
	}
	w.scratch.bind(w)
	return w
}

// AddQueue gives q its index and makes it usable. Call Edited afterwards.
func (w *World) AddQueue(q *Queue) {
	q.Index, q.now = int32(len(w.Queues)), figures{w, q}
	q.Pending.Share(&w.patterns)
	w.Queues = append(w.Queues, q)
	for int(q.Node) >= len(w.byNode) {
		w.byNode = append(w.byNode, nil)
	}
	w.byNode[q.Node] = q
}

// RemoveQueue removes a queue, releases its reservations and returns the workloads of its
// line. Its node can be removed afterwards.
func (w *World) RemoveQueue(q *Queue) []*workload.Workload {
	w.applyEdits()
	line := q.Pending.All()
	for _, wl := range slices.Collect(q.holders.All()) {
		w.Release(wl)
	}
	w.setHeld(q, nil, nil)
	if q.start != nil {
		w.setStart(q, nil)
	}
	w.Queues[q.Index], w.byNode[q.Node] = nil, nil
	q.tree.remove(q)
	w.changed(q)
	return line
}

// figures are the amounts that the line of a queue reads.
type figures struct {
	w *World
	q *Queue
}

// Available is how much of fr a workload of the queue can get.
func (f *figures) Available(fr resource.FR) resource.Amount {
	return f.w.Ledger.Available(f.q.Node, fr)
}

// AtMost is a bound of a measure.
func (f *figures) AtMost(fr resource.FR) resource.Amount { return f.w.Ledger.AtMost(fr) }

// Winnable reports whether preemption might make least of fr available to a workload. Of a measure
// it might in any case: no bound is known.
func (f *figures) Winnable(wl *workload.Workload, fr resource.FR, least resource.Amount) bool {
	if fr < 0 {
		return true
	}
	s := &f.w.victims
	s.Node, s.Policy, s.Preemptor, s.Replaces = f.q.Node, f.q.Preemption, wl, f.w.replaced(wl).Workload
	return s.Could(fr, least)
}

// Enqueue adds a workload to the line of its queue.
func (w *World) Enqueue(wl *workload.Workload) {
	w.applyEdits()
	q := w.Queues[wl.Queue]
	q.Pending.Add(wl, q.Strict || wl.MayReplace)
	if q.start != nil && (q.Strict || q.plansFor(wl)) {
		w.planAgain(q) // in a strict queue it may be admitted before the head
	}
	w.activate(q)
}

// Dequeue removes a workload from its line.
func (w *World) Dequeue(wl *workload.Workload) {
	w.applyEdits()
	q := w.Queues[wl.Queue]
	if q.Pending.Remove(wl) {
		w.activate(q)
	}
	nomination, headReservation := q.nomination, q.headReservation
	if nomination != nil && nomination.preemptor == wl {
		nomination = nil
	}
	if headReservation != nil && headReservation.wl == wl {
		headReservation = nil
	}
	if q.start != nil && q.start.wl == wl {
		w.setStart(q, nil)
	}
	if q.dropFurther(wl) {
		w.planAgain(q)
	}
	if nomination != q.nomination || headReservation != q.headReservation {
		w.setHeld(q, nomination, headReservation)
		w.changed(q)
	}
}

// Reserve charges the Usage of a workload to its queue: one that Step admitted, or one that
// was admitted elsewhere. spec: 10 §4.9.
func (w *World) Reserve(wl *workload.Workload) {
	w.applyEdits()
	q := w.Queues[wl.Queue]
	wl.Reserved = true
	w.countUnready(wl, 1)
	q.holders.Add(wl)
	w.Ledger.Charge(q.Node, wl.Usage)
	q.tree.ends.add(wl)
	w.changed(q)
	w.wakeStarts(q.tree)
	if wl.Usage.Shares() {
		w.changedSharing() // heads elsewhere that lost a place to it are evaluated again
	}
}

// Release releases the usage of a workload, and evaluates the wake conditions on it.
func (w *World) Release(wl *workload.Workload) {
	if !wl.Reserved {
		return
	}
	w.applyEdits()
	q := w.Queues[wl.Queue]
	q.holders.Remove(wl)
	q.tree.ends.drop(wl)
	w.countUnready(wl, -1)
	wl.Reserved = false
	w.Ledger.Return(q.Node, wl.Usage, q.usages)
	w.changed(q)
	w.wakeStarts(q.tree)
	w.wake(q, wl.Usage)
	w.wakeSharing(wl.Usage)
}

// wake evaluates the wake conditions on quota in the whole tree after a release of one of its queues.
func (w *World) wake(from *Queue, released ledger.Usage) {
	t := from.tree
	t.thresholds.File()
	for _, e := range released.Quota {
		least := w.wakeOn(from, e.FR)
		if before := t.thresholds.Least(e.FR); w.Quota.Most(from.Node, e.FR) < before {
			t.thresholds.SetLeast(e.FR, min(least, before))
			continue
		}
		for _, q := range t.queues {
			if q != from {
				least = min(least, w.wakeOn(q, e.FR))
			}
		}
		t.thresholds.SetLeast(e.FR, least)
	}
}

// wakeOn evaluates the wake conditions of a queue on fr, and returns their lowest threshold: Unlimited if the queue's own borrowing limit is in the
// way, since then no release of another queue can meet them.
func (w *World) wakeOn(q *Queue, fr resource.FR) (least resource.Amount) {
	if q.Pending.Inadmissible() == 0 {
		return resource.Unlimited
	}
	if q.Pending.Release(fr, &q.now) {
		w.activate(q)
	} else if at, limited := w.Quota.Bottleneck(q.Node, fr); limited && at == q.Node {
		return resource.Unlimited
	}
	return q.Pending.Least(fr)
}

// Written sets the time at which the admission of a workload was written.
func (w *World) Written(wl *workload.Workload, at workload.Instant) {
	wl.Tentative = false                     // it is not to be retracted any more
	if wl.ReservedAt == at || !wl.Reserved { // a slice that was replaced already
		wl.ReservedAt = at
		return
	}
	q := w.Queues[wl.Queue]
	q.holders.Remove(wl)
	q.tree.ends.drop(wl)
	wl.ReservedAt = at
	q.holders.Add(wl)
	q.tree.ends.add(wl)
}

// Wakes returns how many classes releases have activated, and how many of them in vain, in all queues there are.
func (w *World) Wakes() (sum order.Wakes) {
	for _, q := range w.Queues {
		if q != nil {
			one := q.Pending.Wakes()
			sum.All, sum.Vain = sum.All+one.All, sum.Vain+one.Vain
		}
	}
	return sum
}

// ApplyEdits updates all figures after edits.
func (w *World) ApplyEdits() { w.applyEdits() }

// EvaluateAgain has a pending workload evaluated that waits for others of its job, or is the head of its queue: being barred, it would no
// longer block those behind it. It reports whether the workload is one of the two.
func (w *World) EvaluateAgain(wl *workload.Workload) bool {
	w.applyEdits()
	q := w.Queues[wl.Queue]
	switch {
	case q.Pending.IsAlone(wl):
		w.Dequeue(wl)
		w.Enqueue(wl)
	case q.Pending.Head() == wl:
		q.evaluated = nil
		w.activate(q)
	default:
		return false
	}
	return true
}

// SetEvicting sets whether a workload with a reservation is being evicted. A slice that was to
// replace it then has to wait until it has left, and no longer blocks the workloads behind it:
// if it is the head, it is evaluated again. spec: 20 §4.11.
func (w *World) SetEvicting(wl *workload.Workload, evicting bool) {
	if !wl.Reserved {
		wl.Evicting = evicting
		return
	}
	w.applyEdits()
	q, was := w.Queues[wl.Queue], wl.Evicting
	q.holders.SetEvicting(wl, evicting)
	if head := q.Pending.Head(); evicting && !was && head != nil && head.MayReplace {
		if w.ReplacedSlice(head).Workload == wl {
			w.EvaluateAgain(head)
		}
	}
}

// SetReady sets whether all pods of a workload with a reservation are ready.
func (w *World) SetReady(wl *workload.Workload, ready bool) {
	if wl.Ready == ready {
		return
	}
	w.countUnready(wl, -1)
	wl.Ready = ready
	w.countUnready(wl, 1)
}

// countUnready counts a workload with a reservation that is not ready. Once there is none,
// admissions are possible again.
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

// EvictionFailed takes back the eviction of a workload.
func (w *World) EvictionFailed(wl *workload.Workload) {
	w.applyEdits()
	w.SetEvicting(wl, false)
	w.changed(w.Queues[wl.Queue])
}

// Holders returns the workloads with a reservation in q, in the order of their preemption.
func (q *Queue) Holders() *preempt.Holders { return &q.holders }

// usages yields what the workloads with a reservation in q hold.
func (q *Queue) usages(yield func(ledger.Usage) bool) {
	for wl := range q.holders.All() {
		if !yield(wl.Usage) {
			return
		}
	}
}

// Preemptor returns the workload for which quota is held here, or nil.
func (q *Queue) Preemptor() *workload.Workload {
	if q.nomination == nil {
		return nil
	}
	return q.nomination.preemptor
}

// Nomination returns the quota held for the preemptor, its remaining and past victims, and the
// slice that it replaces, if any.
func (q *Queue) Nomination() (usage ledger.Usage, victims []preempt.Victim, replaces *workload.Workload) {
	if q.nomination == nil {
		return ledger.Usage{}, nil, nil
	}
	return q.nomination.usage, q.nomination.victims, q.nomination.replaces
}

// open reports whether workloads of q can be admitted at all.
func (w *World) open(q *Queue) bool {
	return q.Closed == "" && w.Quota.Root(q.Node) != quota.None
}

// preemptible returns the candidates for preemption of a queue, also of a closed one: it uses what others own.
// spec: 10 §6 #15.
func (w *World) preemptible(n quota.Node) *preempt.Holders {
	q := w.byNode[n]
	if q == nil {
		return nil
	}
	return &q.holders
}
