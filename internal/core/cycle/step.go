package cycle

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Decision is what the shell has to carry out, or to write down, about a workload.
type Decision struct {
	Workload *workload.Workload
	Queue    string
	// Admitted is what it gets, when the verdict is trace.Admitted.
	Admitted *flavor.Assignment
	// Evict are the victims to be told to go now; those told before are left out.
	Evict []preempt.Victim
	Look  *trace.Look
}

// Result is the outcome of a step.
type Result struct {
	Decisions []Decision
	Cycles    int
	More      bool // the budget ended the step, not a lack of progress
}

// Step runs cycles until no head has anything new to try, at most budget of them.
// Admitted workloads are charged at once, as if their admission were written
// already; Release undoes that.
func (w *World) Step(now workload.Instant, budget int) Result {
	var r Result
	for {
		queues := w.ready()
		if len(queues) == 0 {
			return r
		}
		if r.Cycles == budget {
			for _, q := range queues {
				w.touch(w.rootOf(q))
			}
			r.More = true
			return r
		}
		r.Cycles++
		c := round{w: w, now: now}
		c.run(queues)
		r.Decisions = append(r.Decisions, c.decisions...)
	}
}

// entry is one head in one cycle.
type entry struct {
	q       *Queue
	wl      *workload.Workload
	got     flavor.Assignment
	targets []preempt.Victim
	look    *trace.Look
	barred  trace.Reason // why it is not looked at, with look.Note

	// What its queue held before this cycle.
	hadClaim *claim
	hadStand *entry
}

// round is the state of one cycle. While it runs, victims chosen in it are out of
// the forest, and what is booked for their preemptors is in.
type round struct {
	w         *World
	now       workload.Instant
	decisions []Decision
	victims   []preempt.Victim
	booked    []booking
	skipped   []*Queue
	passing   bool // something was kept from others in this cycle only
}

type booking struct {
	q     *Queue
	usage resource.Vector
}

func (c *round) run(queues []*Queue) {
	entries := make([]*entry, len(queues))
	for i, q := range queues {
		q.looked = q.Pending.Head()
		q.lookedVersion = c.w.trees[c.w.rootOf(q)].version
		entries[i] = c.w.nominate(q, q.looked)
		entries[i].hadClaim, entries[i].hadStand = q.claim, q.stand
		q.stand = nil
	}
	entries = append(entries, c.bookClaims(queues)...)
	slices.SortFunc(entries, compare)
	for _, e := range entries {
		if e.q.stand == e {
			c.reserve(e)
			continue
		}
		c.process(e)
		c.compareHolds(e)
	}
	for _, b := range c.booked {
		c.w.Quota.Release(b.q.Node, b.usage)
	}
	for _, v := range c.victims {
		c.w.Quota.Charge(v.Node, v.Workload.Usage)
	}
	for _, q := range c.skipped {
		if c.passing {
			q.looked = nil
		}
	}
	for _, q := range queues {
		c.w.touch(c.w.rootOf(q)) // the line may have a new head
	}
}

// compareHolds has everyone in the tree looked at again when what the queue keeps
// from others beyond this cycle is not what it was before.
func (c *round) compareHolds(e *entry) {
	if e.q.claim.same(e.hadClaim) && e.q.stand.standsLike(e.hadStand) {
		return
	}
	c.disturb(e)
}

// disturb notes a change of e's own doing: e need not be looked at again for it.
func (c *round) disturb(e *entry) {
	t := c.w.trees[c.w.rootOf(e.q)]
	current := e.q.lookedVersion == t.version
	c.w.changed(e.q)
	if current {
		e.q.lookedVersion = t.version
	}
}

func (c *claim) same(o *claim) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.heir == o.heir && slices.Equal(c.usage, o.usage) && slices.Equal(c.victims, o.victims)
}

func (e *entry) standsLike(o *entry) bool {
	if e == nil || o == nil {
		return e == o
	}
	return e.wl == o.wl && e.got.Level == o.got.Level && slices.Equal(e.got.Usage, o.got.Usage)
}

// compare is the order of the heads: who borrows less, then as in one queue.
// spec: 10 §4.5 step 4.
func compare(a, b *entry) int {
	return cmp.Or(
		cmp.Compare(a.got.Level, b.got.Level),
		cmp.Compare(b.wl.Priority, a.wl.Priority),
		cmp.Compare(a.wl.Since, b.wl.Since),
		strings.Compare(a.q.Name, b.q.Name),
		strings.Compare(a.wl.UID, b.wl.UID),
	)
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
				c.takeOut(o.claim.victims)
				c.book(o, o.claim.usage)
			}
			if o.stand != nil {
				standing = append(standing, o.stand)
			}
		}
	}
	return standing
}

// takeOut removes victims from the forest for the rest of the cycle.
func (c *round) takeOut(victims []preempt.Victim) {
	for _, v := range victims {
		if v.Workload.Reserved && !c.out(v) {
			c.w.Quota.Release(v.Node, v.Workload.Usage)
			c.victims = append(c.victims, v)
		}
	}
}

func (c *round) out(v preempt.Victim) bool {
	return slices.ContainsFunc(c.victims, func(o preempt.Victim) bool { return o.Workload == v.Workload })
}

func (c *round) book(q *Queue, usage resource.Vector) {
	c.w.Quota.Charge(q.Node, usage)
	c.booked = append(c.booked, booking{q, usage})
}

// dropClaim gives up what was held for the queue's heir when its own queue has its
// turn: the head is the heir, or goes before it. The heir's victims stay out of the
// forest until the cycle ends, since others may count on that.
func (c *round) dropClaim(q *Queue) {
	if q.claim == nil {
		return
	}
	i := slices.IndexFunc(c.booked, func(b booking) bool { return b.q == q })
	c.w.Quota.Release(q.Node, c.booked[i].usage)
	c.booked = slices.Delete(c.booked, i, i+1)
	q.claim = nil
}

// process decides about one head. spec: 10 §4.5 step 5.
func (c *round) process(e *entry) {
	if e.barred != "" {
		if e.q.Heir() == e.wl {
			c.dropClaim(e.q)
		}
		e.q.Pending.SetAside(e.wl)
		c.wait(e, e.barred)
		return
	}
	c.dropClaim(e.q)
	switch {
	case e.got.Mode == flavor.NoFit:
		c.park(e)
		c.wait(e, e.got.Reason)
	case e.got.Mode == flavor.Fit:
		c.admit(e)
	case len(e.targets) == 0:
		c.reserve(e)
		c.park(e)
		c.wait(e, trace.WaitingForQuota)
	default:
		c.preempt(e)
	}
}

// park sets the head aside where others may pass it; in a strict queue it stays and
// blocks.
func (c *round) park(e *entry) {
	wants := c.w.wants(e.q, e.wl)
	e.look.WakesOn = c.w.names(wants)
	if !e.q.Strict {
		e.q.Pending.Park(e.wl, wants)
	}
}

func (c *round) wait(e *entry, reason trace.Reason) {
	e.look.Verdict, e.look.Reason = trace.Waits, reason
	c.decide(e, Decision{})
}

func (c *round) decide(e *entry, d Decision) {
	d.Workload, d.Queue, d.Look = e.wl, e.q.Name, e.look
	c.decisions = append(c.decisions, d)
}

// skip leaves the head where it is: others came first. It is looked at again as
// soon as what they took or keep is another amount.
func (c *round) skip(e *entry, note string) {
	e.look.Note = note
	c.skipped = append(c.skipped, e.q)
	c.wait(e, trace.WaitingForQuota)
}

func (c *round) admit(e *entry) {
	if !c.w.Quota.Fits(e.q.Node, e.got.Usage) || !c.fitsForReal(e) {
		c.skip(e, "quota was given to another workload first")
		return
	}
	e.q.Pending.Remove(e.wl)
	e.wl.Usage, e.wl.ReservedAt, e.wl.Evicting = e.got.Usage, c.now, false
	c.w.Reserve(e.wl)
	e.look.Verdict = trace.Admitted
	c.decide(e, Decision{Admitted: &e.got})
}

// fitsForReal tells whether the head fits while the victims of this cycle are still
// there: what is only promised must not be given away twice.
func (c *round) fitsForReal(e *entry) bool {
	if len(c.victims) == 0 {
		return true
	}
	mark := c.w.Quota.Mark()
	defer c.w.Quota.Rollback(mark)
	for _, b := range c.booked {
		c.w.Quota.Release(b.q.Node, b.usage)
	}
	for _, v := range c.victims {
		c.w.Quota.Charge(v.Node, v.Workload.Usage)
	}
	return c.w.Quota.Fits(e.q.Node, e.got.Usage)
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
	f := c.w.Quota
	var usage resource.Vector
	for _, u := range e.got.Usage {
		amount := u.Amount
		if limit := f.BorrowLimit(e.q.Node, u.FR); e.got.Level == 0 {
			amount = min(amount, max(0, f.Nominal(e.q.Node, u.FR).Sub(f.Usage(e.q.Node, u.FR))))
		} else if limit >= 0 {
			amount = min(amount, f.Nominal(e.q.Node, u.FR).Add(limit).Sub(f.Usage(e.q.Node, u.FR)))
		}
		if amount > 0 {
			usage = usage.Plus(u.FR, amount)
		}
	}
	c.book(e.q, usage)
}

// preempt tells the victims to go and holds what they give back for the head.
func (c *round) preempt(e *entry) {
	if slices.ContainsFunc(e.targets, func(v preempt.Victim) bool { return c.out(v) && !c.inherits(e, v) }) {
		c.skip(e, "another workload preempts the same workloads")
		return
	}
	before := len(c.victims)
	c.takeOut(e.targets)
	if !c.w.Quota.Fits(e.q.Node, e.got.Usage) {
		for _, v := range c.victims[before:] {
			c.w.Quota.Charge(v.Node, v.Workload.Usage)
		}
		c.victims = c.victims[:before]
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
	if len(evict) > 0 {
		c.disturb(e)
	}
	e.look.Verdict, e.look.Reason = trace.Preempts, trace.WaitingForPreemptedWorkloads
	c.decide(e, Decision{Evict: evict})
}

// inherits tells whether v is out of the forest for e's own sake: it was told to go
// in an earlier cycle.
func (c *round) inherits(e *entry, v preempt.Victim) bool {
	return v.Workload.Evicting && !slices.ContainsFunc(c.decisions, func(d Decision) bool {
		return slices.ContainsFunc(d.Evict, func(o preempt.Victim) bool { return o.Workload == v.Workload })
	}) && !c.claimedByOther(e, v)
}

func (c *round) claimedByOther(e *entry, v preempt.Victim) bool {
	for _, o := range c.w.trees[c.w.rootOf(e.q)].queues {
		if o.claim != nil && o.claim.heir != e.wl &&
			slices.ContainsFunc(o.claim.victims, func(t preempt.Victim) bool { return t.Workload == v.Workload }) {
			return true
		}
	}
	return false
}
