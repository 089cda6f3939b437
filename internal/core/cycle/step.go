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

// round is the state of one cycle. While it runs, the victims of every claim in the
// trees at hand are out of the forest, and what is booked for the heirs is in.
type round struct {
	w         *World
	now       workload.Instant
	decisions []Decision
	victims   []leaver
	booked    []booking
	skipped   []*Queue
	passing   bool // something was kept from others in this cycle only
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
		c.settle(e)
	}
	c.undo()
	for _, q := range c.skipped {
		if c.passing {
			q.looked = nil
		}
	}
	for _, q := range queues {
		c.w.touch(c.w.rootOf(q)) // the line may have a new head
	}
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
// blocks. When no flavor matches, or none is large enough, no release can help.
func (c *round) park(e *entry) {
	var wants []resource.FR
	if !e.hopeless() {
		wants = c.w.wants(e.q, e.wl)
	}
	e.look.WakesOn = c.w.names(wants)
	if !e.q.Strict {
		e.q.Pending.Park(e.wl, wants)
	}
}

// hopeless tells whether only an edit can help. Past the first pod set that cannot be
// told: what earlier ones take depends on what is free.
func (e *entry) hopeless() bool {
	return e.got.Mode == flavor.NoFit && len(e.got.PodSets) == 0 && e.got.Reason != trace.WaitingForQuota
}

func (c *round) wait(e *entry, reason trace.Reason) {
	e.look.Verdict, e.look.Reason = trace.Waits, reason
	c.decide(e, Decision{})
}

func (c *round) decide(e *entry, d Decision) {
	d.Workload, d.Queue, d.Look = e.wl, e.q.Name, e.look
	c.decisions = append(c.decisions, d)
}

// skip leaves the head where it is, with its claim: others came first. It is looked
// at again as soon as what they took or keep is another amount.
func (c *round) skip(e *entry, note string) {
	c.keepClaim(e)
	e.look.Note = note
	c.skipped = append(c.skipped, e.q)
	c.wait(e, trace.WaitingForQuota)
}

// admit charges the head, if what is free now is free for it: neither claimed for
// somebody, nor still held by somebody who was told to go.
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

// fitsForReal tells whether the head fits while all victims are still there.
func (c *round) fitsForReal(e *entry) bool {
	if len(c.victims) == 0 {
		return true
	}
	mark := c.w.Quota.Mark()
	defer c.w.Quota.Rollback(mark)
	c.undo()
	return c.w.Quota.Fits(e.q.Node, e.got.Usage)
}
