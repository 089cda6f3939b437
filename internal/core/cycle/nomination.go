package cycle

import (
	"slices"
	"time"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// nomination is quota held for a preemptor whose victims are still leaving. It lasts until
// the preemptor starts or leaves the line, or for Options.ClaimTimeout: after that the
// preemptor still waits, but other workloads may take the quota. spec: 10 §6 #4.
type nomination struct {
	preemptor *workload.Workload
	usage     ledger.Usage
	replaces  *workload.Workload // the slice that the preemptor replaces
	victims   []preempt.Victim   // none if it waits for victims of others
	places    []*trace.Placement // of usage, by pod set; nil for none
	level     int                // how far up the cohorts it borrows
	since     workload.Instant
	expired   bool
}

// headReservation is the quota that the pending head of a strict queue keeps from others.
type headReservation struct {
	wl       *workload.Workload
	level    int
	usage    ledger.Usage
	replaces *workload.Workload
}

// removedVictim is a victim whose usage is out of the forest for the preemptor of a queue.
type removedVictim struct {
	preempt.Victim
	preemptorOf *Queue
}

// booking is quota that is kept from others, in the forest until the cycle ends.
type booking struct {
	q        *Queue
	usage    ledger.Usage
	replaces *workload.Workload // no candidate for preemption meanwhile, or nil
	waits    bool               // for a head that waits for quota, see reserve
}

func (q *Queue) holdsQuota() bool { return q.nomination != nil || q.headReservation != nil }

// setHeld replaces the quota that the queue holds beyond a cycle.
func (w *World) setHeld(q *Queue, c *nomination, s *headReservation) {
	had := q.holdsQuota()
	q.nomination, q.headReservation = c, s
	switch now := q.holdsQuota(); {
	case now && !had:
		q.tree.holding++
	case had && !now:
		q.tree.holding--
	}
	if c != nil && !c.expired && w.ClaimTimeout > 0 && !slices.Contains(w.holders, q) {
		w.holders = append(w.holders, q)
	}
}

// expireNominations expires the nominations that are older than Options.ClaimTimeout, and
// returns when the next one will be, 0 for none.
func (w *World) expireNominations(now workload.Instant) (next workload.Instant) {
	w.holders = slices.DeleteFunc(w.holders, func(q *Queue) bool {
		if q.nomination == nil || q.nomination.expired {
			return true
		}
		q.nomination.since = min(q.nomination.since, now) // the clock may have been set back
		if at := q.nomination.since + w.ClaimTimeout; now < at {
			next = earlier(next, at)
			return false
		}
		q.nomination.expired = true
		w.changed(q)
		return true
	})
	return next
}

// bookNominations books what is held for every preemptor in the trees of the cycle, and in all
// trees that share capacity if one of the cycle does. It follows the nominations of the cycle:
// these are made as if no quota were held, and then find it taken. It appends entries for head reservations and for expired nominations: these heads were
// evaluated before, nothing changed, and in their turn they keep quota from later ones.
func (c *round) bookNominations(queues []*Queue) {
	for _, q := range queues {
		if q.tree.holding > 0 && !slices.Contains(c.trees, q.tree) {
			c.trees = append(c.trees, q.tree)
		}
	}
	if slices.ContainsFunc(queues, func(q *Queue) bool { return q.tree.shares }) {
		for _, t := range c.w.touched {
			if t.shares && t.holding > 0 && !slices.Contains(c.trees, t) {
				c.trees = append(c.trees, t)
			}
		}
	}
	for _, t := range c.trees {
		for _, o := range t.queues {
			c.bookNomination(o)
		}
	}
}

// bookNomination books what is held for the preemptor of a queue, and adds the entries of its reservations.
func (c *round) bookNomination(o *Queue) {
	if o.nomination != nil && !o.nomination.expired {
		c.takeOut(o.nomination.victims, o)
		c.book(o, o.nomination.usage, o.nomination.replaces)
	}
	if o.nomination != nil && o.nomination.expired && o.round != c.w.cycle(o.tree) {
		c.addReserving(o, o.nomination.preemptor, o.nomination.replaces, o.nomination.level, o.nomination.usage)
	}
	if o.headReservation != nil {
		c.addReserving(o, o.headReservation.wl, o.headReservation.replaces, o.headReservation.level, o.headReservation.usage)
	}
}

// addReserving appends the entry of a head that is not evaluated in this cycle.
func (c *round) addReserving(q *Queue, wl, replaces *workload.Workload, level int, usage ledger.Usage) {
	e := c.w.entry(q, wl)
	e.reserving, e.replaces, e.got.Level = true, replaces, level
	e.got.Usage = usage.Copy(e.got.Usage)
	c.entries = append(c.entries, e)
}

// renewReservation is the turn of a head that was evaluated before.
func (c *round) renewReservation(e *entry) {
	nomination := e.q.nomination
	if nomination == nil || nomination.preemptor != e.wl {
		c.reserve(e)
		return
	}
	c.takeOut(nomination.victims, e.q)
	if !c.fits(e.q, nomination.usage, nomination.replaces) {
		c.putBack(e.q)
		return
	}
	c.book(e.q, nomination.usage, nomination.replaces)
}

// takeOut releases the usage of victims for the rest of the cycle, for the preemptor of q.
func (c *round) takeOut(victims []preempt.Victim, q *Queue) {
	for _, v := range victims {
		if v.Workload.Reserved && !v.Workload.Gone {
			c.w.Ledger.Release(v.Node, v.Workload.Usage)
			v.Workload.Gone = true
			c.victims = append(c.victims, removedVictim{v, q})
		}
	}
}

// putBack undoes takeOut.
func (c *round) putBack(q *Queue) {
	c.victims = slices.DeleteFunc(c.victims, func(v removedVictim) bool {
		if v.preemptorOf == q {
			c.w.Ledger.Charge(v.Node, v.Workload.Usage)
			v.Workload.Gone = false
		}
		return v.preemptorOf == q
	})
}

// book keeps usage from others, less the usage of the slice that is replaced.
func (c *round) book(q *Queue, usage ledger.Usage, replaces *workload.Workload) {
	b := booking{q: q, usage: usage}
	if replaces != nil && replaces.Reserved && !replaces.Gone {
		b.usage = usage.Beyond(replaces.Usage)
		b.replaces, replaces.Gone = replaces, true
	}
	c.w.Ledger.Charge(q.Node, b.usage)
	c.booked = append(c.booked, b)
}

func (c *round) unbook(b booking) {
	c.w.Ledger.Release(b.q.Node, b.usage)
	if b.replaces != nil {
		b.replaces.Gone = false
	}
}

// endBookings has the ledger as after the cycle, within a speculation: with the victims, and without the bookings.
func (c *round) endBookings() {
	for _, b := range c.booked {
		c.w.Ledger.Release(b.q.Node, b.usage)
	}
	for _, v := range c.victims {
		c.w.Ledger.Charge(v.Node, v.Workload.Usage)
	}
}

// undo removes nominations and reservations from the forest.
func (c *round) undo() {
	for _, b := range c.booked {
		c.unbook(b)
	}
	for _, v := range c.victims {
		c.w.Ledger.Charge(v.Node, v.Workload.Usage)
		v.Workload.Gone = false
	}
	c.booked, c.victims = c.booked[:0], c.victims[:0]
}

// dropNomination drops the nomination of a queue in the turn of its head, which is the
// preemptor or comes before it.
func (c *round) dropNomination(q *Queue) {
	if q.nomination == nil {
		return
	}
	if i := slices.IndexFunc(c.booked, func(b booking) bool { return b.q == q }); i >= 0 {
		c.unbook(c.booked[i])
		c.booked = slices.Delete(c.booked, i, i+1)
	}
	c.putBack(q)
	c.w.setHeld(q, nil, q.headReservation)
}

// restoreNomination undoes dropNomination, if the quota is still free.
func (c *round) restoreNomination(e *entry) {
	if e.hadNomination == nil {
		return
	}
	if !e.hadNomination.expired {
		c.takeOut(e.hadNomination.victims, e.q)
		if !c.fits(e.q, e.hadNomination.usage, e.hadNomination.replaces) {
			c.putBack(e.q)
			return
		}
		c.book(e.q, e.hadNomination.usage, e.hadNomination.replaces)
	}
	c.w.setHeld(e.q, e.hadNomination, e.q.headReservation)
}

// fits reports whether usage, less the usage of the slice that is replaced, can be charged to
// a queue.
func (c *round) fits(q *Queue, usage ledger.Usage, replaces *workload.Workload) bool {
	if replaces != nil && replaces.Reserved && !replaces.Gone {
		usage = usage.Beyond(replaces.Usage)
	}
	return c.w.Ledger.Fits(q.Node, usage)
}

// preempt evicts the victims and holds their quota for the head.
func (c *round) preempt(e *entry) {
	if slices.ContainsFunc(e.targets, func(v preempt.Victim) bool { return v.Workload.Gone }) {
		e.passedOver = true
		c.skip(e, skipped{trace.WaitingForQuota, "another workload preempts the same workloads"})
		return
	}
	c.takeOut(e.targets, e.q)
	fits := func(u ledger.Usage) bool { return c.fits(e.q, u, e.replaces) }
	if !fits(e.got.Usage) {
		why := lost(e, fits)
		c.putBack(e.q)
		e.passedOver = true
		c.skip(e, why)
		return
	}
	if by, _ := c.heldBy(e); by != nil {
		c.putBack(e.q)
		c.holdBack(e, by)
		return
	}
	if c.retract(e); len(e.targets) == 0 {
		c.startAfterRetraction(e)
		return
	}
	c.evict(e)
}

// migrate evicts the variants of the job of a head that fits, and holds its quota for it until they have left. spec: 10 §4.5 step 5m.
func (c *round) migrate(e *entry, leaving []preempt.Victim) {
	e.targets = leaving
	c.takeOut(leaving, e.q)
	c.evict(e)
}

// evict evicts the targets of a head, which are out of the forest, and nominates it.
func (c *round) evict(e *entry) {
	for i := range e.targets {
		if v := &e.targets[i]; v.Ran == 0 && v.Reason != preempt.Migration && v.Workload.Early(c.now) {
			v.Ran = max(1, c.now-v.Workload.ReservedAt)
		}
	}
	c.hold(e, e.targets)
	var evict []preempt.Victim
	record := c.record(e)
	record.Start = nil // it starts as soon as they have left
	record.Victims = make([]trace.Victim, 0, len(e.targets))
	for _, v := range e.targets {
		victim := trace.Victim{Key: v.Workload.Key, UID: v.Workload.UID, Queue: c.w.byNode[v.Node].Name, Reason: v.Reason}
		if v.Ran > 0 {
			victim.Ran, victim.MinRun = time.Duration(v.Ran), time.Duration(v.Workload.MinRun)
		}
		record.Victims = append(record.Victims, victim)
		if !v.Workload.Evicting {
			c.w.SetEvicting(v.Workload, true)
			if evict == nil {
				evict = make([]preempt.Victim, 0, len(e.targets))
			}
			evict, c.w.gained = append(evict, v), c.w.gained+1
		}
	}
	record.Verdict, record.Reason = trace.Preempts, trace.WaitingForPreemptedWorkloads
	c.decide(e, Decision{Evict: evict, Attempt: record})
}

const waitsForOthersVictims = "it fits as soon as the workloads preempted for others have stopped"

// postpone lets a head wait for victims of other preemptors, whose eviction is sufficient for
// it as well. spec: 10 §4.5 step 5b, 5g.
func (c *round) postpone(e *entry) {
	if fits := func(u ledger.Usage) bool { return c.fits(e.q, u, e.replaces) }; !fits(e.got.Usage) {
		c.skip(e, lost(e, fits))
		return
	}
	c.hold(e, nil)
	c.wait(e, trace.WaitingForPreemptedWorkloads, waitsForOthersVictims)
}

// hold nominates the head: it holds its quota and keeps it at the head.
func (c *round) hold(e *entry, victims []preempt.Victim) {
	fresh := &nomination{preemptor: e.wl, usage: e.got.Usage.Clone(), replaces: e.replaces, victims: victims, level: e.got.Level, since: c.now}
	for i := range e.got.PodSets {
		if e.got.PodSets[i].Placement != nil {
			fresh.places = e.places()
			break
		}
	}
	if had := e.hadNomination; had.same(fresh) {
		fresh.since, fresh.expired = had.since, had.expired
	}
	c.book(e.q, fresh.usage, e.replaces)
	c.w.setHeld(e.q, fresh, e.q.headReservation)
	if !e.q.Strict {
		e.q.Pending.Prioritize(e.wl)
	}
	e.wl.Scan = nil
}

// leaving returns the victims of the workload's nomination that have not left, if their
// eviction is sufficient for usage: then no others are needed.
func (w *World) leaving(q *Queue, wl *workload.Workload, usage ledger.Usage) []preempt.Victim {
	if q.Preemptor() != wl || !q.nomination.usage.Equal(usage) {
		return nil
	}
	victims := q.nomination.remaining()
	if len(victims) == 0 {
		return nil
	}
	mark := w.Ledger.Mark()
	defer w.Ledger.Rollback(mark)
	for _, v := range victims {
		w.Ledger.Release(v.Node, v.Workload.Usage)
	}
	if !w.Ledger.Fits(q.Node, usage) {
		return nil
	}
	return victims
}

// reserve keeps quota that the head waits for from later heads of this cycle, unless its
// queue can always reclaim it. The head of a strict queue stays in place, so its reservation
// lasts for later cycles until something changes. spec: 10 §4.5 5e.
func (c *round) reserve(e *entry) {
	if e.q.Preemption.ReclaimsAlways() && !(c.w.PreemptorFirst && e.q.Pending.Prioritized() == e.wl) {
		return
	}
	if e.q.Strict && !e.reserving {
		c.w.setHeld(e.q, e.q.nomination, &headReservation{e.wl, e.got.Level, e.got.Usage.Clone(), e.replaces})
	}
	if !e.q.Strict {
		c.passing = true
	}
	c.keepQuota(e.q, e.got.Level, e.got.Usage, e.replaces)
}

// keepQuota books what a waiting head of a queue, which borrows up to a level, keeps from later heads of this cycle.
func (c *round) keepQuota(q *Queue, level int, held ledger.Usage, replaces *workload.Workload) {
	var usage resource.Vector
	for _, u := range held.Quota {
		if replaces != nil && replaces.Reserved {
			u.Amount = u.Amount.Sub(replaces.Usage.Quota.Of(u.FR))
		}
		if amount := c.reservable(q, level, u); amount > 0 {
			usage = usage.Plus(u.FR, amount)
		}
	}
	if replaces != nil && replaces.Reserved {
		held = held.Beyond(replaces.Usage)
	}
	c.book(q, held.WithQuota(usage), nil)
	c.booked[len(c.booked)-1].waits = true
}

// reservable is how much of u a waiting head may keep: its own quota or, if it borrows, all
// up to the borrowing limit.
func (c *round) reservable(q *Queue, level int, u resource.Entry) resource.Amount {
	f, n := c.w.Quota, q.Node
	own := f.Nominal(n, u.FR).Sub(f.Usage(n, u.FR))
	limit := f.BorrowLimit(n, u.FR)
	switch {
	case level == 0:
		return min(u.Amount, own)
	case limit == quota.NoLimit:
		return u.Amount
	}
	return min(u.Amount, own.Add(limit))
}

// announceChange causes another evaluation of the tree if the queue no longer holds the quota
// beyond this cycle that it held before.
func (c *round) announceChange(e *entry) {
	if (e.hadNomination == nil || e.hadNomination.same(e.q.nomination)) && (e.hadHeadReservation == nil || e.hadHeadReservation.same(e.q.headReservation)) {
		return
	}
	current := e.q.evaluatedVersion == e.q.tree.version
	c.w.changed(e.q)
	if current {
		e.q.evaluatedVersion = e.q.tree.version // its own change requires no new evaluation
	}
}

func (c *nomination) same(o *nomination) bool {
	return c != nil && o != nil && c.preemptor == o.preemptor && c.usage.Equal(o.usage) && slices.Equal(c.remaining(), o.remaining())
}

// remaining are the victims that still hold their quota.
func (c *nomination) remaining() []preempt.Victim {
	var victims []preempt.Victim
	for _, v := range c.victims {
		if v.Workload.Reserved {
			victims = append(victims, v)
		}
	}
	return victims
}

func (s *headReservation) same(o *headReservation) bool {
	return o != nil && s.wl == o.wl && s.level == o.level && s.usage.Equal(o.usage)
}
