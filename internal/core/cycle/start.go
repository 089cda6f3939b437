package cycle

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// A queue with Backfill reserves a start for its first blocked workload: the first end of running workloads at which it fits. Others are
// admitted meanwhile if it still fits then, or if they end before. The ledger without the workloads that have ended by a time is all that
// is known of that time: there is no other account of the future. See docs/adr/0012.

// Backfill is how many blocked workloads of a queue get reserved starts, by the names that users give it.
type Backfill string

// The kinds of Backfill.
const (
	NoBackfill   Backfill = ""
	Easy         Backfill = "easy"         // the first one
	Conservative Backfill = "conservative" // the first maxStarts
)

// start is the reserved start of a blocked workload.
type start struct {
	q       *Queue
	wl      *workload.Workload
	at      workload.Instant // 0: it needs the end of a workload without a bound, and nothing is reserved
	usage   ledger.Usage
	level   int  // how far up the cohorts it borrows
	ends    int  // how many workloads end up to it
	overdue bool // its time has passed, and some of them still hold their quota
}

// ending is a workload with a reservation and a bound, and its end.
type ending struct {
	at workload.Instant
	wl *workload.Workload
}

func compareEndings(a, b ending) int {
	return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.wl.UID, b.wl.UID))
}

// endings are the endings in one tree with a queue that reserves starts, in order. They are collected when they are asked for first.
type endings struct {
	list  []ending
	known bool
}

// add adds a workload that has got a reservation.
func (s *endings) add(wl *workload.Workload) {
	if s == nil || !s.known || wl.End() == 0 {
		return
	}
	e := ending{wl.End(), wl}
	i, _ := slices.BinarySearchFunc(s.list, e, compareEndings)
	s.list = slices.Insert(s.list, i, e)
}

// drop removes a workload that loses its reservation or changes its end.
func (s *endings) drop(wl *workload.Workload) {
	if s == nil || !s.known {
		return
	}
	if i, found := slices.BinarySearchFunc(s.list, ending{wl.End(), wl}, compareEndings); found {
		s.list = slices.Delete(s.list, i, i+1)
	}
}

// together returns the trees whose workloads share capacity with the workloads of a tree, itself included.
func (w *World) together(t *tree) []*tree {
	if !t.shares {
		return []*tree{t}
	}
	var all []*tree
	for _, o := range w.trees {
		if o != nil && o.shares {
			all = append(all, o)
		}
	}
	return all
}

// endings returns the endings in some trees, in order. The slice is valid until one of them changes.
func (w *World) endings(trees []*tree) []ending {
	if len(trees) == 1 && trees[0].ends != nil {
		return trees[0].ends.collect(trees[0])
	}
	var all []ending
	for _, t := range trees {
		s := t.ends
		if s == nil {
			s = &endings{}
		}
		all = append(all, s.collect(t)...)
	}
	slices.SortFunc(all, compareEndings)
	return all
}

// endings are the endings in some trees, in order, with the ends of preemptors whose victims are leaving, as if they had started at their nomination.
// Without these a start that a preemptor with a bound did not move would be lost to its nomination, and the nomination to what the blocked head
// reserves instead: each would take quota from the other in turn.
func (c *round) endings(trees []*tree) []ending {
	ends := c.w.endings(trees)
	for i := range c.booked {
		b := &c.booked[i]
		if n := b.q.nomination; n != nil && !b.waits && n.preemptor.Bound > 0 && slices.Contains(trees, b.q.tree) {
			runs := &workload.Workload{UID: n.preemptor.UID, Queue: b.q.Index, Reservation: workload.Reservation{Usage: b.usage}}
			x := ending{n.since + n.preemptor.Bound, runs}
			at, _ := slices.BinarySearchFunc(ends, x, compareEndings)
			ends = slices.Insert(slices.Clip(ends), at, x) // a copy
		}
	}
	return ends
}

func (s *endings) collect(t *tree) []ending {
	if s.known {
		return s.list
	}
	s.list, s.known = s.list[:0], true
	for _, q := range t.queues {
		for wl := range q.holders.All() {
			if end := wl.End(); end != 0 {
				s.list = append(s.list, ending{end, wl})
			}
		}
	}
	slices.SortFunc(s.list, compareEndings)
	return s.list
}

// SetBound sets the upper bound of the run of a workload.
func (w *World) SetBound(wl *workload.Workload, bound workload.Instant) {
	if wl.Bound == bound || !wl.Reserved {
		wl.Bound = bound
		return
	}
	w.applyEdits()
	t := w.Queues[wl.Queue].tree
	t.ends.drop(wl)
	wl.Bound = bound
	t.ends.add(wl)
	if t.ends != nil {
		w.changed(w.Queues[wl.Queue])
		w.wakeStarts(t)
	}
	if wl.Usage.Shares() {
		w.changedSharing()
	}
}

// setStart replaces the reserved start of a queue, nil for none. It activates the workloads that the start held up, and the ones whose own
// start depends on it. Once its workload has started or left, the next blocked one of the queue may get a start.
func (w *World) setStart(q *Queue, s *start) {
	had := q.start
	q.start = s
	if s != nil && s.at != 0 && !s.overdue && !slices.Contains(w.starters, q) {
		w.starters = append(w.starters, q)
	}
	if s == nil && had != nil {
		q.Pending.WakeAll()
		w.activate(q)
	}
	w.changed(q)
	trees := []*tree{q.tree}
	if (s != nil && s.usage.Shares()) || (had != nil && had.usage.Shares()) {
		trees = w.together(q.tree)
		w.changedSharing()
	}
	for _, t := range trees {
		w.wakeHeldBack(t.queues...)
		for _, o := range t.queues {
			if o != q && o.start != nil {
				w.wakeStart(o)
			}
		}
	}
}

// wakeHeldBack evaluates the classes of queues again that wait for a start. Their conditions are about what is free after the cycle at work.
func (w *World) wakeHeldBack(queues ...*Queue) {
	mark := w.Ledger.Mark()
	defer w.Ledger.Rollback(mark)
	w.round.endBookings()
	for _, q := range queues {
		if q.Pending.Inadmissible() == 0 {
			continue
		}
		for i := range q.Groups {
			for j := range q.Groups[i].Offers {
				for _, fr := range q.Groups[i].Offers[j].FRs {
					if q.Pending.Release(fr, &q.now) {
						w.activate(q)
					}
				}
			}
		}
	}
}

// wakeStarts evaluates the workloads with a reserved start in a tree again, after a change that may move it.
func (w *World) wakeStarts(t *tree) {
	if t.ends == nil {
		return
	}
	for _, q := range t.queues {
		if q.start != nil {
			w.wakeStart(q)
		}
	}
}

func (w *World) wakeStart(q *Queue) {
	if wl := q.start.wl; q.Pending.Evaluated(wl.Class) != nil {
		q.Pending.Wake(wl)
		w.activate(q)
	}
}

// expireStarts evaluates the workloads again whose starts have passed, and returns the next start, 0 for none.
func (w *World) expireStarts(now workload.Instant) (next workload.Instant) {
	w.starters = slices.DeleteFunc(w.starters, func(q *Queue) bool {
		s := q.start
		if s == nil || s.at == 0 || s.overdue {
			return true
		}
		if now < s.at {
			next = earlier(next, s.at)
			return false
		}
		s.overdue = true
		w.changed(q)
		w.wakeStart(q)
		return true
	})
	return next
}

// firm reports whether the start of a queue is kept from other queues as well: its workload stays within the quota of its queue, which
// cannot take that back from any borrower at the time.
func (q *Queue) firm() bool {
	return q.start != nil && q.start.at != 0 && q.start.level == 0 && !q.Preemption.ReclaimsAlways()
}

// binds reports whether a workload of a queue must not move the start of q.
func (q *Queue) binds(from *Queue, wl *workload.Workload, usage ledger.Usage) bool {
	switch s := q.start; {
	case s == nil || s.at == 0 || s.wl == wl:
		return false
	case q == from:
		return s.before(wl)
	case q.tree != from.tree && !(s.usage.Shares() && usage.Shares()):
		return false
	}
	return q.firm()
}

// before reports whether the start is of a workload before another one of its queue.
func (s *start) before(wl *workload.Workload) bool { return order.Compare(s.wl, wl) < 0 }

func compareStarts(a, b *Queue) int {
	return cmp.Or(cmp.Compare(a.start.at, b.start.at), strings.Compare(a.Name, b.Name))
}

// heldBy returns the first start that a head that fits would move, nil for none; ahead reports that it is admitted before workloads that
// have a start.
func (c *round) heldBy(e *entry) (by *start, ahead bool) {
	trees, starts := c.binding(e)
	further := e.q.furtherBefore(e.wl)
	if len(starts)+len(further) == 0 || (e.hadNomination != nil && e.hadNomination.preemptor == e.wl) { // its victims have left for it
		return nil, false
	}
	if end := c.now + e.wl.Bound; e.wl.Bound > 0 {
		starts = slices.DeleteFunc(starts, func(q *Queue) bool { return q.start.at >= end })
	}
	if q := c.firstMoved(trees, starts, e); q != nil {
		return q.start, true
	}
	return c.movesFurther(trees, further, e), true
}

// heldInAll is heldBy after a search for other flavors, if it would move a start in the first ones.
func (c *round) heldInAll(e *entry) (by *start, ahead bool) {
	by, ahead = c.heldBy(e)
	if by != nil && c.nominateBeside(e, by) {
		return c.heldBy(e)
	}
	return by, ahead
}

// binding returns the queues whose starts a head must not move, in order, and the trees that they are of.
func (c *round) binding(e *entry) (trees []*tree, starts []*Queue) {
	if e.q.tree.ends == nil && !e.q.tree.shares {
		return nil, nil
	}
	trees = c.w.together(e.q.tree)
	for _, t := range trees {
		for _, q := range t.queues {
			if q.binds(e.q, e.wl, e.got.Usage) {
				starts = append(starts, q)
			}
		}
	}
	slices.SortFunc(starts, compareStarts)
	return trees, starts
}

// nominateBeside looks for other flavors for a head that fits and would move a start: those with room beside that one and all that has a
// start now. It reports whether there are any.
func (c *round) nominateBeside(e *entry, by *start) bool {
	if !slices.ContainsFunc(e.q.Groups, func(g flavor.Group) bool { return len(g.Offers) > 1 }) {
		return false
	}
	w := c.w
	_, starts := c.binding(e)
	w.prepare(e)
	w.flavors.NoPreemption = &noPreemption
	mark := w.Ledger.Mark()
	for _, q := range starts {
		w.Ledger.Charge(q.Node, q.start.usage)
	}
	if by.q.start != by {
		w.Ledger.Charge(by.q.Node, by.usage)
	}
	w.withoutReplaced(e, func() { w.flavors.Assign(e.podSets, &w.later) })
	w.Ledger.Rollback(mark)
	if w.later.Mode != flavor.Fit || len(w.later.Placed) > 0 || !c.fitsForReal(e, w.later.Usage) {
		return false
	}
	e.got, w.later = w.later, e.got
	return true
}

// firstMoved returns the first of some starts, in order, that does not fit at its time beside the starts before it and a head; nil for
// none. Without a head it is about the starts alone.
func (c *round) firstMoved(trees []*tree, starts []*Queue, e *entry) *Queue {
	if len(starts) == 0 {
		return nil
	}
	l := c.w.Ledger
	mark := l.Mark()
	defer l.Rollback(mark)
	c.releaseReservations()
	var replaced *workload.Workload
	if e != nil {
		replaced = c.charge(e)
	}
	ends := c.endings(trees)
	for _, q := range starts {
		for len(ends) > 0 && ends[0].at <= q.start.at {
			if ends[0].wl != replaced {
				c.w.end(ends[0].wl)
			}
			ends = ends[1:]
		}
		if !l.Fits(q.Node, q.start.usage) {
			return q
		}
		l.Charge(q.Node, q.start.usage)
	}
	return nil
}

// charge charges a head, within a speculation, instead of the slice that it replaces, which it returns.
func (c *round) charge(e *entry) (replaced *workload.Workload) {
	if r := e.replaces; r != nil && r.Reserved && !r.Gone {
		replaced = r
		c.w.Ledger.Release(e.q.Node, r.Usage)
	}
	c.w.Ledger.Charge(e.q.Node, e.got.Usage)
	return replaced
}

// end releases the usage of a workload, within a speculation.
func (w *World) end(wl *workload.Workload) {
	if !wl.Gone {
		w.Ledger.Release(w.Queues[wl.Queue].Node, wl.Usage)
	}
}

// releaseReservations releases what waiting heads keep from others in this cycle, within a speculation: it is no usage at a later time.
func (c *round) releaseReservations() {
	for _, b := range c.booked {
		if b.waits {
			c.w.Ledger.Release(b.q.Node, b.usage)
		}
	}
}

// fitsWhenDue reports whether a head whose start has come fits but for what waiting heads keep in this cycle.
func (c *round) fitsWhenDue(e *entry) bool {
	if s := e.q.start; s == nil || s.wl != e.wl || s.at == 0 || s.at > c.now || len(c.victims) > 0 {
		return false
	}
	mark := c.w.Ledger.Mark()
	defer c.w.Ledger.Rollback(mark)
	c.releaseReservations()
	return c.fits(e.q, e.got.Usage, e.replaces)
}

// findStart reserves a start for a head that is blocked for want of quota or places, if it is the first one of its queue, and reports
// whether the start keeps from other queues what the head would have to reserve else.
func (c *round) findStart(e *entry) (firm bool) {
	q, had := e.q, e.q.start
	if q.Backfill == NoBackfill || e.wl.MayReplace || e.wl.Variant || (had != nil && had.before(e.wl)) {
		return false
	}
	e.keepsStart = true
	if had != nil && had.wl != e.wl {
		q.start = nil
		c.wait(c.w.entry(q, had.wl), trace.WaitingForQuota, "a more urgent workload of ClusterQueue "+q.Name+" is the next to start")
	}
	found := c.earliestStart(e)
	if had == nil || had.wl != e.wl || !c.keepsEarlier(had, found, e) {
		current := q.evaluatedVersion == q.tree.version
		c.w.setStart(q, found)
		if current {
			q.evaluatedVersion = q.tree.version // its own change requires no new evaluation
		}
	}
	return q.firm()
}

// keepsEarlier reports whether the start of a head stays as it was: it is no later than the one found now, and still holds.
func (c *round) keepsEarlier(had, found *start, e *entry) bool {
	switch {
	case had.at == found.at && had.usage.Equal(found.usage) && had.level == found.level:
		return true
	case had.at == 0 || (found.at == had.at && found.level < had.level) || (found.at != 0 && found.at < had.at && (found.level == 0 || had.level > 0)):
		return false // a start within the own quota is not given up for an earlier one that borrows: others may take that
	}
	trees := c.w.together(e.q.tree)
	starts := append(c.firmStarts(trees, e.q), e.q)
	slices.SortFunc(starts, compareStarts)
	return c.firstMoved(trees, starts[:slices.Index(starts, e.q)+1], nil) == nil
}

// firmStarts returns the queues whose starts are kept from other queues, but for one.
func (c *round) firmStarts(trees []*tree, but *Queue) (out []*Queue) {
	for _, t := range trees {
		for _, q := range t.queues {
			if q != but && q.firm() {
				out = append(out, q)
			}
		}
	}
	return out
}

// chargeFirm charges the starts that are kept from other queues, except the start of one queue, within a speculation.
func (c *round) chargeFirm(trees []*tree, but *Queue) {
	for _, q := range c.firmStarts(trees, but) {
		c.w.Ledger.Charge(q.Node, q.start.usage)
	}
}

// earliestStart finds the first end at which a head fits beside the starts of other queues.
func (c *round) earliestStart(e *entry) *start {
	w, s := c.w, &start{q: e.q, wl: e.wl}
	trees := w.together(e.q.tree)
	ends := c.endings(trees)
	mark := w.Ledger.Mark()
	defer w.Ledger.Rollback(mark)
	c.releaseReservations()
	c.chargeFirm(trees, e.q)
	podSets := w.aimLater(e)
	probe := func(from, to int, do func() bool) bool { // in the ledger without these ends as well
		mark := w.Ledger.Mark()
		defer w.Ledger.Rollback(mark)
		for _, x := range ends[from:to] {
			w.end(x.wl)
		}
		return do()
	}
	fits := func() bool { return w.fitsLater(e, podSets, s) }
	if !probe(0, len(ends), fits) {
		return s
	}
	if len(ends) > 0 && !probe(0, 0, fits) { // else another head of this cycle took the quota, and it is evaluated again
		s.ends = least(0, len(ends), probe, fits)
		s.at = ends[s.ends-1].at
		all := s.ends // at that time
		for all < len(ends) && ends[all].at == s.at {
			all++
		}
		if probe(0, all, fits) {
			s.ends = all
		} else { // other places may be found then, and others lacking; those found before are free
			probe(0, s.ends, fits)
		}
		s.overdue = s.at <= c.now
	} else {
		*s = start{q: e.q, wl: e.wl}
	}
	return s
}

// least returns the least number of changes after which something fits that does not fit after the first from of them, and does after the first
// to; probe makes changes, does something and takes them back. The ledger is as after from changes.
func least(from, to int, probe func(from, to int, do func() bool) bool, fits func() bool) (n int) {
	middle := (from + to) / 2
	switch {
	case to-from == 1:
		return to
	case probe(from, middle, fits):
		return least(from, middle, probe, fits)
	}
	probe(from, middle, func() bool { n = least(middle, to, probe, fits); return true })
	return n
}

// aimLater sets the search for flavors to a head at a later time, and returns its pod sets then.
func (w *World) aimLater(e *entry) []workload.PodSet {
	w.aimSearch(e)
	w.flavors.NoPreemption = &noPreemption
	return w.leastPodSets(e)
}

// fitsLater reports whether a head fits in the ledger as a speculation has it, without preemption, and sets the usage of the start.
func (w *World) fitsLater(e *entry, podSets []workload.PodSet, s *start) bool {
	a := &w.later
	w.flavors.Assign(podSets, a)
	if a.Mode != flavor.Fit {
		return false
	}
	usage := a.Usage
	if len(a.Placed) > 0 && !e.q.Delayed(a.Placed) {
		var placed bool
		if usage, _, placed = w.Places.Place(podSets, a.Placed, a.Usage, false); !placed {
			return false
		}
	}
	s.usage, s.level = usage.Clone(), a.Level
	return true
}

// leastPodSets returns the pod sets of a head with the fewest pods that it may be admitted with.
func (w *World) leastPodSets(e *entry) []workload.PodSet {
	podSets := e.wl.PodSets
	if !w.PartialAdmission || !slices.ContainsFunc(podSets, func(ps workload.PodSet) bool { return ps.MinCount > 0 }) {
		return podSets
	}
	podSets = slices.Clone(podSets)
	for i := range podSets {
		podSets[i] = podSets[i].Scaled(podSets[i].Least())
	}
	return podSets
}

// startOf returns the start of a workload for its record, nil for none.
func (q *Queue) startOf(wl *workload.Workload) *trace.Start {
	s := q.start
	if i := q.furtherAt(wl); i >= 0 && (s == nil || s.wl != wl) {
		s = q.further[i]
	}
	if s == nil || s.wl != wl || s.at == 0 {
		return nil
	}
	return &trace.Start{At: int64(s.at), Ends: s.ends, Overdue: s.overdue}
}
