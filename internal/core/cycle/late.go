package cycle

import (
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/workload"
)

// A release may help in every queue of a tree, and most often one head takes all of it. So a cycle does not activate the classes whose wake
// conditions hold before the turn of their heads comes: the place of such a late head among the others follows from its wants. A late
// head that lacks something when its turn comes is lost: its class stays inadmissible, as an evaluation would leave it. The others are
// nominated as if the cycle had admitted no workload before. So a cycle without late heads decides the same, and refuses the lost ones in
// addition.

// firstLate is how many late heads a cycle evaluates at a time at first. It doubles.
const firstLate = 1

// foreseenPerUnit is how many late heads are one unit of work without their evaluation.
const foreseenPerUnit = 8

// mayBeLate reports whether heads of trees may be late: levels, priorities and times alone decide about the order of heads, and no quota is
// held in the tree.
func (w *World) mayBeLate(trees []*tree) bool {
	return w.LateHeads && w.Fair == nil && !w.BlockAdmission && len(trees) == 1 && trees[0].holding == 0 && !trees[0].shares && trees[0].ends == nil
}

// setLate makes wl, the head of an inadmissible class whose wants are met, the late head of its queue, and reports whether it may be one:
// its evaluation finds that it fits without preemption, at a level that is known before.
func (w *World) setLate(q *Queue, wl *workload.Workload, wants []workload.Want) bool {
	if q.Strict || len(q.Groups) != 1 || q.Pending.Prioritized() != nil || wl.MayReplace || wl.Variant || wl.Scan != nil {
		return false
	}
	for i := range wl.PodSets {
		if ps := &wl.PodSets[i]; ps.MinCount > 0 || ps.Topology != nil {
			return false
		}
	}
	s := &w.flavors
	s.Node, s.Policy = q.Node, q.Policy
	s.Policy.Off = w.FungibilityOff
	level, fits := s.Foresee(wants)
	if !fits {
		return false
	}
	if misfit, _, _ := w.findMisfit(q, wl); misfit != "" { // an evaluation takes it out of its class, and another one is its head
		return false
	}
	q.late, q.lateLevel = wl, level
	return true
}

// nominateEarly nominates the heads that are not late, and all heads if one of those may reserve quota in its turn, or free some.
func (c *round) nominateEarly() {
	c.admitted, c.batch, c.evaluated = c.admitted[:0], firstLate, 0
	late, plain := false, true
	for _, e := range c.entries {
		if e.late {
			late = true
			continue
		}
		c.evaluated++
		c.w.nominate(e)
		plain = plain && !c.mayHold(e)
	}
	if !late || plain {
		return
	}
	for _, e := range c.entries {
		if e.late {
			c.nominateLate(e)
		}
	}
}

// mayHold reports whether a nominated head may do more in its turn than to take what is free: it needs preemption, or it is a variant whose
// job migrates, for which another one is evicted.
func (c *round) mayHold(e *entry) bool {
	switch e.got.Mode {
	case flavor.NoFit:
		return false
	case flavor.Fit:
		return e.wl.Variant && len(c.w.Migrating(e.wl)) > 0
	default:
		return true
	}
}

// nominateLate activates the class of a late head, and nominates that.
func (c *round) nominateLate(e *entry) {
	e.late = false
	e.q.Pending.Wake(e.wl)
	c.evaluated++
	c.w.nominate(e)
}

// handleInOrder gives all heads their turns.
func (c *round) handleInOrder() {
	for i, e := range c.entries {
		if e.late {
			c.nominateNext(c.entries[i:])
		}
		if !e.lost {
			c.handleHead(e)
		}
	}
}

// nominateNext nominates a batch of late heads, the next ones among the heads whose turn has not come. A late head before
// them that lacks something is lost.
func (c *round) nominateNext(rest []*entry) {
	next := c.next[:0]
	for _, e := range rest {
		if !e.late {
			continue
		}
		if len(c.admitted) > 0 && e.q.Pending.Lacks(e.wl, &e.q.now) {
			e.late, e.lost = false, true
			continue
		}
		if next = append(next, e); len(next) == c.batch {
			break
		}
	}
	c.batch *= 2
	mark := c.w.Ledger.Mark()
	for _, wl := range c.admitted {
		c.w.Ledger.Release(c.w.Queues[wl.Queue].Node, wl.Usage)
	}
	for _, e := range next {
		c.nominateLate(e)
	}
	c.w.Ledger.Rollback(mark)
	clear(next)
	c.next = next[:0]
}

// work is the units of work of the evaluations of a cycle of some queues.
func (c *round) work(queues int) int {
	return c.evaluated + (queues-min(queues, c.evaluated))/foreseenPerUnit
}
