package cycle

import (
	"slices"

	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// claim is quota held for a workload whose victims are still leaving, so that what
// they give back goes to nobody else. It lasts until the heir starts or gives up, or
// for Options.ClaimTimeout: then the heir waits on, but others are free to take what it
// waits for. spec: 10 §6 #4.
type claim struct {
	heir    *workload.Workload
	usage   resource.Vector
	before  *workload.Workload // the slice whose place the heir takes
	victims []preempt.Victim   // none, if it waits for victims of others
	level   int                // how far up the cohorts it borrows
	since   workload.Instant
	expired bool
}

// stand is what the head of a strict queue that waits for quota keeps from others.
type stand struct {
	wl     *workload.Workload
	level  int
	usage  resource.Vector
	before *workload.Workload
}

// leaver is a victim that is out of the forest for the heir of a queue.
type leaver struct {
	preempt.Victim
	heirOf *Queue
}

// booking is quota that is kept from others, in the forest until the cycle ends.
type booking struct {
	q      *Queue
	usage  resource.Vector
	before *workload.Workload // no victim for others meanwhile, or nil
}

func (q *Queue) keeps() bool { return q.claim != nil || q.stand != nil }

// keep replaces what the queue keeps from others beyond a cycle.
func (w *World) keep(q *Queue, c *claim, s *stand) {
	before := q.keeps()
	q.claim, q.stand = c, s
	switch now := q.keeps(); {
	case now && !before:
		q.tree.keeps++
	case before && !now:
		q.tree.keeps--
	}
	if c != nil && !c.expired && w.ClaimTimeout > 0 && !slices.Contains(w.keepers, q) {
		w.keepers = append(w.keepers, q)
	}
}

// expireClaims ends the holding of quota for heirs that have waited too long, and
// returns when the next one will have, 0 for none.
func (w *World) expireClaims(now workload.Instant) (next workload.Instant) {
	w.keepers = slices.DeleteFunc(w.keepers, func(q *Queue) bool {
		if q.claim == nil || q.claim.expired {
			return true
		}
		if at := q.claim.since + w.ClaimTimeout; now < at {
			next = earlier(next, at)
			return false
		}
		q.claim.expired = true
		w.changed(q)
		return true
	})
	return next
}

// bookClaims holds, for every heir in the trees at hand, what its victims give back.
// It happens after nomination: others are nominated as if there were no claims, and
// then find the quota taken. It appends the heads that stand, and the heirs whose claim
// has expired: they were looked at before, nothing changed, and they have their turn to
// keep what they can from those behind them.
func (c *round) bookClaims(queues []*Queue) {
	for _, q := range queues {
		if q.tree.keeps == 0 || slices.Contains(c.trees, q.tree) {
			continue
		}
		c.trees = append(c.trees, q.tree)
		for _, o := range q.tree.queues {
			if o.claim != nil && !o.claim.expired {
				c.takeOut(o.claim.victims, o)
				c.book(o, o.claim.usage, o.claim.before)
			}
			if o.claim != nil && o.claim.expired && o.round != c.w.cycles {
				c.stands(o, o.claim.heir, o.claim.before, o.claim.level, o.claim.usage)
			}
			if o.stand != nil {
				c.stands(o, o.stand.wl, o.stand.before, o.stand.level, o.stand.usage)
			}
		}
	}
}

// stands gives a head that is not looked at its turn.
func (c *round) stands(q *Queue, wl, before *workload.Workload, level int, usage resource.Vector) {
	e := c.w.entry(q, wl)
	e.standing, e.before, e.got.Level = true, before, level
	e.got.Usage = append(e.got.Usage, usage...)
	c.entries = append(c.entries, e)
}

// keepOn is the turn of a head that stands.
func (c *round) keepOn(e *entry) {
	claim := e.q.claim
	if claim == nil || claim.heir != e.wl {
		c.reserve(e)
		return
	}
	c.takeOut(claim.victims, e.q)
	if !c.fits(e.q, claim.usage, claim.before) {
		c.putBack(e.q)
		return
	}
	c.book(e.q, claim.usage, claim.before)
}

// takeOut removes victims from the forest for the rest of the cycle, for the heir of q.
func (c *round) takeOut(victims []preempt.Victim, q *Queue) {
	for _, v := range victims {
		if v.Workload.Reserved && !v.Workload.Gone {
			c.w.Quota.Release(v.Node, v.Workload.Usage)
			v.Workload.Gone = true
			c.victims = append(c.victims, leaver{v, q})
		}
	}
}

// putBack undoes takeOut.
func (c *round) putBack(q *Queue) {
	c.victims = slices.DeleteFunc(c.victims, func(v leaver) bool {
		if v.heirOf == q {
			c.w.Quota.Charge(v.Node, v.Workload.Usage)
			v.Workload.Gone = false
		}
		return v.heirOf == q
	})
}

// book keeps usage from others, less what the slice holds whose place it is for.
func (c *round) book(q *Queue, usage resource.Vector, before *workload.Workload) {
	b := booking{q: q, usage: usage}
	if before != nil && before.Reserved && !before.Gone {
		b.usage = usage.Beyond(before.Usage)
		b.before, before.Gone = before, true
	}
	c.w.Quota.Charge(q.Node, b.usage)
	c.booked = append(c.booked, b)
}

func (c *round) unbook(b booking) {
	c.w.Quota.Release(b.q.Node, b.usage)
	if b.before != nil {
		b.before.Gone = false
	}
}

// undo makes the forest what it is without claims and reservations.
func (c *round) undo() {
	for _, b := range c.booked {
		c.unbook(b)
	}
	for _, v := range c.victims {
		c.w.Quota.Charge(v.Node, v.Workload.Usage)
		v.Workload.Gone = false
	}
	c.booked, c.victims = c.booked[:0], c.victims[:0]
}

// dropClaim gives up what is held for the queue's heir when its own queue has its
// turn: the head is the heir, or goes before it.
func (c *round) dropClaim(q *Queue) {
	if q.claim == nil {
		return
	}
	if i := slices.IndexFunc(c.booked, func(b booking) bool { return b.q == q }); i >= 0 {
		c.unbook(c.booked[i])
		c.booked = slices.Delete(c.booked, i, i+1)
	}
	c.putBack(q)
	c.w.keep(q, nil, q.stand)
}

// keepClaim takes back dropClaim, as far as the claim still makes sense: it may not
// stand in the way of others that came first.
func (c *round) keepClaim(e *entry) {
	if e.hadClaim == nil {
		return
	}
	if !e.hadClaim.expired {
		c.takeOut(e.hadClaim.victims, e.q)
		if !c.fits(e.q, e.hadClaim.usage, e.hadClaim.before) {
			c.putBack(e.q)
			return
		}
		c.book(e.q, e.hadClaim.usage, e.hadClaim.before)
	}
	c.w.keep(e.q, e.hadClaim, e.q.stand)
}

// fits reports whether usage can be charged to a queue beside what the slice before it
// holds, of which it needs no more than the difference.
func (c *round) fits(q *Queue, usage resource.Vector, before *workload.Workload) bool {
	if before != nil && before.Reserved && !before.Gone {
		usage = usage.Beyond(before.Usage)
	}
	return c.w.Quota.Fits(q.Node, usage)
}

// preempt tells the victims to go and holds what they give back for the head.
func (c *round) preempt(e *entry) {
	if slices.ContainsFunc(e.targets, func(v preempt.Victim) bool { return v.Workload.Gone }) {
		e.passedOver = true
		c.skip(e, "another workload preempts the same workloads")
		return
	}
	c.takeOut(e.targets, e.q)
	if !c.fits(e.q, e.got.Usage, e.before) {
		c.putBack(e.q)
		e.passedOver = true
		c.skip(e, "quota was given to another workload first")
		return
	}
	c.claim(e, e.targets)
	var evict []preempt.Victim
	look := c.look(e)
	look.Victims = make([]trace.Victim, 0, len(e.targets))
	for _, v := range e.targets {
		look.Victims = append(look.Victims, trace.Victim{
			Key: v.Workload.Key, UID: v.Workload.UID, Queue: c.w.byNode[v.Node].Name, Reason: v.Reason,
		})
		if !v.Workload.Evicting {
			c.w.SetEvicting(v.Workload, true)
			if evict == nil {
				evict = make([]preempt.Victim, 0, len(e.targets))
			}
			evict = append(evict, v)
		}
	}
	look.Verdict, look.Reason = trace.Preempts, trace.WaitingForPreemptedWorkloads
	c.decide(e, Decision{Evict: evict, Look: look})
}

// postpone has a head wait for victims of others, whose leaving is enough for it as well.
// spec: 10 §4.5 step 5b, 5g.
func (c *round) postpone(e *entry) {
	if !c.fits(e.q, e.got.Usage, e.before) {
		c.skip(e, "quota was given to another workload first")
		return
	}
	c.claim(e, nil)
	c.wait(e, trace.WaitingForPreemptedWorkloads, "it fits as soon as the workloads preempted for others have stopped")
}

// claim holds what the head needs from here on, and makes it stay the head.
func (c *round) claim(e *entry, victims []preempt.Victim) {
	fresh := &claim{heir: e.wl, usage: slices.Clone(e.got.Usage), before: e.before, victims: victims, level: e.got.Level, since: c.now}
	if had := e.hadClaim; had.same(fresh) {
		fresh.since, fresh.expired = had.since, had.expired
	}
	c.book(e.q, fresh.usage, e.before)
	c.w.keep(e.q, fresh, e.q.stand)
	if !e.q.Strict {
		e.q.Pending.Stick(e.wl)
	}
	e.wl.Scan = nil
}

// leaving returns the victims of the workload's claim that are still there, when
// their going is enough for usage: then no others need to be found.
func (w *World) leaving(q *Queue, wl *workload.Workload, usage resource.Vector) []preempt.Victim {
	if q.Heir() != wl || !slices.Equal(q.claim.usage, usage) {
		return nil
	}
	victims := q.claim.remaining()
	if len(victims) == 0 {
		return nil
	}
	mark := w.Quota.Mark()
	defer w.Quota.Rollback(mark)
	for _, v := range victims {
		w.Quota.Release(v.Node, v.Workload.Usage)
	}
	if !w.Quota.Fits(q.Node, usage) {
		return nil
	}
	return victims
}

// reserve keeps quota that the head waits for from later heads of this cycle, unless
// its queue can always get it back. The head of a strict queue stays where it is, so
// it does that in every later cycle too, as long as nothing changes. spec: 10 §4.5 5e.
func (c *round) reserve(e *entry) {
	if e.q.Preemption.ReclaimsAlways() && !(c.w.PreemptorFirst && e.q.Pending.Sticky() == e.wl) {
		return
	}
	if e.q.Strict && !e.standing {
		c.w.keep(e.q, e.q.claim, &stand{e.wl, e.got.Level, slices.Clone(e.got.Usage), e.before})
	}
	if !e.q.Strict {
		c.passing = true
	}
	var usage resource.Vector
	for _, u := range e.got.Usage {
		if e.before != nil && e.before.Reserved {
			u.Amount = u.Amount.Sub(e.before.Usage.Of(u.FR))
		}
		if amount := c.reservable(e, u); amount > 0 {
			usage = usage.Plus(u.FR, amount)
		}
	}
	c.book(e.q, usage, nil)
}

// reservable is what a head that waits for u may keep: its own quota or, if it
// borrows, all of it up to the borrowing limit.
func (c *round) reservable(e *entry, u resource.Entry) resource.Amount {
	f, n := c.w.Quota, e.q.Node
	own := f.Nominal(n, u.FR).Sub(f.Usage(n, u.FR))
	limit := f.BorrowLimit(n, u.FR)
	switch {
	case e.got.Level == 0:
		return min(u.Amount, own)
	case limit == quota.NoLimit:
		return u.Amount
	}
	return min(u.Amount, own.Add(limit))
}

// settle has everyone in the tree looked at again when the queue keeps less from
// others beyond this cycle than before, or something else.
func (c *round) settle(e *entry) {
	if (e.hadClaim == nil || e.hadClaim.same(e.q.claim)) && (e.hadStand == nil || e.hadStand.same(e.q.stand)) {
		return
	}
	current := e.q.lookedVersion == e.q.tree.version
	c.w.changed(e.q)
	if current {
		e.q.lookedVersion = e.q.tree.version // it need not be looked at again for its own doing
	}
}

func (c *claim) same(o *claim) bool {
	return c != nil && o != nil && c.heir == o.heir && slices.Equal(c.usage, o.usage) && slices.Equal(c.remaining(), o.remaining())
}

// remaining are the victims that hold their quota still.
func (c *claim) remaining() []preempt.Victim {
	var victims []preempt.Victim
	for _, v := range c.victims {
		if v.Workload.Reserved {
			victims = append(victims, v)
		}
	}
	return victims
}

func (s *stand) same(o *stand) bool {
	return o != nil && s.wl == o.wl && s.level == o.level && slices.Equal(s.usage, o.usage)
}
