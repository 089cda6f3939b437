package cycle

import (
	"slices"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Bounds of the lookahead in one cycle: followers of one queue, and forecasts of all queues beside one for each head.
const (
	maxFollowers = 32
	maxForecasts = 64
)

// forecast is what a follower would take, were its queue not waiting for the victims of its head. One queue has one head in a
// cycle, and a head whose victims are leaving stays the head. Without forecasts, a queue whose victims leave at once would
// preempt ahead of its share while another one waits, and workloads that were just started would be preempted for the other
// one's followers. Under fair sharing, followers therefore take part in the tournament of a cycle in which some head is about
// to preempt. Forecasts decide nothing: a head preempts only as far as it would with all of them carried out before.
type forecast struct {
	q        *Queue
	usage    ledger.Usage
	victims  []preempt.Victim
	replaces *workload.Workload // the slice that the follower replaces, unless it is nil
}

// lookahead is the state of the forecasts of one cycle.
type lookahead struct {
	on    bool // a head is about to preempt
	made  []forecast
	tried int
	limit int
}

// beginForecasts resets the lookahead, and adds the followers of preemptors that are not heads of this cycle.
func (c *round) beginForecasts() {
	c.ahead.on, c.ahead.made, c.ahead.tried = false, c.ahead.made[:0], 0
	c.ahead.limit = maxForecasts + len(c.entries)
	for _, e := range c.entries {
		e.evictsMore = len(e.targets) > 0 && !e.reserving && !e.onlyWaits()
		c.ahead.on = c.ahead.on || e.evictsMore
	}
	if !c.ahead.on {
		return
	}
	for _, t := range c.trees {
		for _, q := range t.queues {
			if q.nomination != nil && !q.nomination.expired && q.round != c.w.cycle(t) {
				c.follow(q, q.Pending.Behind(q.nomination.preemptor, maxFollowers, nil))
			}
		}
	}
}

// onlyWaits reports whether the head was promised all its targets before, and they are leaving.
func (e *entry) onlyWaits() bool {
	return e.hadNomination != nil && e.hadNomination.preemptor == e.wl &&
		!slices.ContainsFunc(e.targets, func(v preempt.Victim) bool { return !v.Workload.Evicting })
}

// followHead adds the follower of a head that was admitted, or waits for its victims.
func (c *round) followHead(e *entry) {
	switch q := e.q; {
	case !c.ahead.on || e.reserving || c.w.Quota.Parent(q.Node) == quota.None:
	case e.wl.Reserved || (q.nomination != nil && q.nomination.preemptor == e.wl && !q.nomination.expired):
		c.follow(q, q.Pending.Behind(e.wl, maxFollowers, nil))
	}
}

// follow adds the first of some followers that can be admitted, with or without victims.
func (c *round) follow(q *Queue, followers []*workload.Workload) {
	refused := int32(-1) // the class of the last one that cannot be admitted
	for i, wl := range followers {
		if wl.Class == refused {
			continue
		}
		if c.ahead.tried == c.ahead.limit {
			return
		}
		c.ahead.tried++
		e := c.w.entry(q, wl)
		c.w.nominate(e)
		if !e.admissible() {
			c.w.spare, refused = append(c.w.spare, e), wl.Class
			continue
		}
		e.behind, e.forecast = followers[i+1:], true
		c.entries = append(c.entries, e)
		c.contest(len(c.entries) - 1)
		return
	}
}

// admissible reports whether the nomination found a place, with or without victims.
func (e *entry) admissible() bool {
	return e.barred == "" && !e.wl.Gated && (e.got.Mode == flavor.Fit || len(e.targets) > 0)
}

// foresee is the turn of a follower.
func (c *round) foresee(e *entry) {
	c.w.nominate(e)
	if e.admissible() {
		f := forecast{q: e.q, usage: e.got.Usage.Clone(), victims: e.targets}
		if e.replaces != nil && e.replaces.Reserved && !e.replaces.Gone {
			f.replaces = e.replaces
		}
		c.ahead.made = append(c.ahead.made, f)
		c.apply(&c.ahead.made[len(c.ahead.made)-1])
	}
	c.follow(e.q, e.behind)
}

// apply books a forecast, less what the slice holds that its workload replaces.
func (c *round) apply(f *forecast) {
	f.victims = slices.DeleteFunc(f.victims, func(v preempt.Victim) bool { return !v.Workload.Reserved || v.Workload.Gone })
	for _, v := range f.victims {
		c.w.Ledger.Release(v.Node, v.Workload.Usage)
		v.Workload.Gone = true
	}
	if f.replaces != nil {
		f.usage, f.replaces = f.usage.Beyond(f.replaces.Usage), nil
	}
	c.w.Ledger.Charge(f.q.Node, f.usage)
}

// withoutForecasts runs do in a forest without the forecasts.
func (c *round) withoutForecasts(do func()) {
	made := c.removeForecasts()
	do()
	c.ahead.made = made
	for i := range made {
		c.apply(&made[i])
	}
}

// endForecasts takes all forecasts out of the forest.
func (c *round) endForecasts() {
	made := c.removeForecasts()
	clear(made)
	c.ahead.made = made[:0]
}

func (c *round) removeForecasts() (made []forecast) {
	made, c.ahead.made = c.ahead.made, nil
	for _, f := range slices.Backward(made) {
		c.w.Ledger.Release(f.q.Node, f.usage)
		for _, v := range f.victims {
			c.w.Ledger.Charge(v.Node, v.Workload.Usage)
			v.Workload.Gone = false
		}
	}
	return made
}

// turnAhead gives a head its turn among the forecasts. They bind it only where it has to preempt: quota that is free is not
// kept for them.
func (c *round) turnAhead(e *entry) {
	switch {
	case len(c.ahead.made) == 0:
		c.handleHead(e)
	case !e.evictsMore:
		c.withoutForecasts(func() { c.handleHead(e) })
	default:
		if c.w.renominate(e); len(e.targets) > 0 && c.sufficeNow(e) {
			e.postponed = false
			c.handleHead(e)
			return
		}
		e.postponed, e.passedOver = false, true
		c.withoutForecasts(func() {
			c.dropNomination(e.q)
			c.skip(e, skipped{trace.WaitingForQuota, "workloads of other queues are due first: they wait behind preemptors whose victims are leaving"})
			c.announceChange(e)
		})
	}
}

// sufficeNow reports whether the targets of a head suffice without the forecasts too: quota that the victims of those will leave is no quota yet.
func (c *round) sufficeNow(e *entry) (suffice bool) {
	c.withoutForecasts(func() {
		mark := c.w.Ledger.Mark()
		for _, v := range e.targets {
			if v.Workload.Reserved && !v.Workload.Gone {
				c.w.Ledger.Release(v.Node, v.Workload.Usage)
			}
		}
		suffice = c.fits(e.q, e.got.Usage, e.replaces)
		c.w.Ledger.Rollback(mark)
	})
	return suffice
}

// contest adds an entry to the tournament.
func (c *round) contest(i int) {
	e := c.entries[i]
	contestant := order.Contestant{Node: e.q.Node, Workload: e.wl, Name: e.q.Name, Usage: e.got.Usage, Prioritized: e.preempts(), Entry: i}
	if e.replaces != nil && e.replaces.Reserved {
		contestant.Frees = e.replaces.Usage
	}
	c.w.fair.Add(contestant)
}
