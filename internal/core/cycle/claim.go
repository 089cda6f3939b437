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
// they give back goes to nobody else. It lasts until the heir starts or gives up.
// spec: 10 §6 #4.
type claim struct {
	heir    *workload.Workload
	usage   resource.Vector
	victims []preempt.Victim
}

// leaver is a victim that is out of the forest for the heir of a queue.
type leaver struct {
	preempt.Victim
	heirOf *Queue
}

// booking is quota that is kept from others, in the forest until the cycle ends.
type booking struct {
	q     *Queue
	usage resource.Vector
}

// bookClaims holds, for every heir in the trees at hand, what its victims give back.
// It happens after nomination: others are nominated as if there were no claims, and
// then find the quota taken. It returns the heads that stand: they were looked at
// before, nothing changed, and they have their turn to reserve.
func (c *round) bookClaims(queues []*Queue) (standing []*entry) {
	seen := map[*tree]bool{}
	for _, q := range queues {
		t := c.w.trees[c.w.rootOf(q)]
		if seen[t] {
			continue
		}
		seen[t] = true
		for _, o := range t.queues {
			if o.claim != nil {
				c.takeOut(o.claim.victims, o)
				c.book(o, o.claim.usage)
			}
			if o.stand != nil {
				standing = append(standing, o.stand)
			}
		}
	}
	return standing
}

// takeOut removes victims from the forest for the rest of the cycle, for the heir of q.
func (c *round) takeOut(victims []preempt.Victim, q *Queue) {
	for _, v := range victims {
		if v.Workload.Reserved && !c.out(v) {
			c.w.Quota.Release(v.Node, v.Workload.Usage)
			c.victims = append(c.victims, leaver{v, q})
		}
	}
}

func (c *round) out(v preempt.Victim) bool {
	return slices.ContainsFunc(c.victims, func(o leaver) bool { return o.Workload == v.Workload })
}

// putBack undoes takeOut.
func (c *round) putBack(q *Queue) {
	c.victims = slices.DeleteFunc(c.victims, func(v leaver) bool {
		if v.heirOf == q {
			c.w.Quota.Charge(v.Node, v.Workload.Usage)
		}
		return v.heirOf == q
	})
}

func (c *round) book(q *Queue, usage resource.Vector) {
	c.w.Quota.Charge(q.Node, usage)
	c.booked = append(c.booked, booking{q, usage})
}

// undo makes the forest what it is without claims and reservations.
func (c *round) undo() {
	for _, b := range c.booked {
		c.w.Quota.Release(b.q.Node, b.usage)
	}
	for _, v := range c.victims {
		c.w.Quota.Charge(v.Node, v.Workload.Usage)
	}
}

// dropClaim gives up what is held for the queue's heir when its own queue has its
// turn: the head is the heir, or goes before it.
func (c *round) dropClaim(q *Queue) {
	if q.claim == nil {
		return
	}
	i := slices.IndexFunc(c.booked, func(b booking) bool { return b.q == q })
	c.w.Quota.Release(q.Node, c.booked[i].usage)
	c.booked = slices.Delete(c.booked, i, i+1)
	c.putBack(q)
	q.claim = nil
}

// keepClaim takes back dropClaim, as far as the claim still makes sense: it may not
// stand in the way of others that came first.
func (c *round) keepClaim(e *entry) {
	if e.hadClaim == nil {
		return
	}
	c.takeOut(e.hadClaim.victims, e.q)
	if !c.w.Quota.Fits(e.q.Node, e.hadClaim.usage) {
		c.putBack(e.q)
		return
	}
	c.book(e.q, e.hadClaim.usage)
	e.q.claim = e.hadClaim
}

// preempt tells the victims to go and holds what they give back for the head.
func (c *round) preempt(e *entry) {
	if slices.ContainsFunc(e.targets, c.out) {
		c.skip(e, "another workload preempts the same workloads")
		return
	}
	c.takeOut(e.targets, e.q)
	if !c.w.Quota.Fits(e.q.Node, e.got.Usage) {
		c.putBack(e.q)
		c.skip(e, "quota was given to another workload first")
		return
	}
	c.book(e.q, e.got.Usage)
	e.q.claim = &claim{heir: e.wl, usage: e.got.Usage, victims: e.targets}
	if !e.q.Strict {
		e.q.Pending.Stick(e.wl)
	}
	var evict []preempt.Victim
	for _, v := range e.targets {
		e.look.Victims = append(e.look.Victims, trace.Victim{
			Key: v.Workload.Key, UID: v.Workload.UID, Queue: c.w.byNode[v.Node].Name, Reason: v.Reason,
		})
		if !v.Workload.Evicting {
			v.Workload.Evicting = true
			evict = append(evict, v)
		}
	}
	e.look.Verdict, e.look.Reason = trace.Preempts, trace.WaitingForPreemptedWorkloads
	c.decide(e, Decision{Evict: evict})
}

// leaving returns the victims of the workload's claim that are still there, when
// their going is enough for usage: then no others need to be found.
func (w *World) leaving(q *Queue, wl *workload.Workload, usage resource.Vector) []preempt.Victim {
	if q.Heir() != wl || !slices.Equal(q.claim.usage, usage) {
		return nil
	}
	victims := q.claim.remaining()
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
	if e.q.Preemption.Reclaim == preempt.Any {
		return
	}
	if e.q.Strict {
		e.q.stand = e
	} else {
		c.passing = true
	}
	var usage resource.Vector
	for _, u := range e.got.Usage {
		if amount := c.reservable(e, u); amount > 0 {
			usage = usage.Plus(u.FR, amount)
		}
	}
	c.book(e.q, usage)
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
	if (e.hadClaim == nil || e.hadClaim.same(e.q.claim)) && (e.hadStand == nil || e.hadStand.standsLike(e.q.stand)) {
		return
	}
	t := c.w.trees[c.w.rootOf(e.q)]
	current := e.q.lookedVersion == t.version
	c.w.changed(e.q)
	if current {
		e.q.lookedVersion = t.version // it need not be looked at again for its own doing
	}
}

func (c *claim) same(o *claim) bool {
	return o != nil && c.heir == o.heir && slices.Equal(c.usage, o.usage) && slices.Equal(c.remaining(), o.remaining())
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

func (e *entry) standsLike(o *entry) bool {
	return o != nil && e.wl == o.wl && e.got.Level == o.got.Level && slices.Equal(e.got.Usage, o.got.Usage)
}
