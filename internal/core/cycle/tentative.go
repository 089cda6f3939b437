package cycle

import (
	"slices"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// An admission is tentative until the run of its tree ends: until no head of the tree has
// anything new to try. One head of each queue is evaluated in a cycle, so a head that borrows
// may come before the second workload of a queue that can reclaim the quota. Its admission is
// retracted then: it returns to its place in line, the quota is free at once, and the preemptor
// needs no eviction. No workload starts in vain, and the order of the heads is that of spec 10
// §4.5 wherever nothing is retracted. spec: design §4.

const (
	// maxRetractions bounds how often a workload loses a tentative admission in one run. After
	// that its admission stands, and no other workload of the run preempts it: policies that
	// let two workloads preempt each other would never end.
	maxRetractions = 3
	// holdWindow bounds how long a run that its budget interrupts keeps admissions tentative, in
	// nanoseconds.
	holdWindow = workload.Instant(250e6)
)

// retractable reports whether the victim has not started: it needs no eviction.
func retractable(v preempt.Victim) bool { return v.Workload.Tentative && !v.Workload.Evicting }

// needsEvictions reports whether any target of the head has started.
func (e *entry) needsEvictions() bool {
	return slices.ContainsFunc(e.targets, func(v preempt.Victim) bool { return !retractable(v) })
}

// outOfReach reports whether a workload is no candidate for preemption in this cycle.
func outOfReach(wl *workload.Workload) bool {
	return wl.Gone || (wl.Tentative && wl.Retractions >= maxRetractions)
}

// setTentative marks the admission of a workload as tentative.
func (w *World) setTentative(wl *workload.Workload) {
	wl.Tentative = true
	w.tentative = append(w.tentative, wl)
}

// retract retracts the tentative admissions among the targets of a head, which are out of the
// forest, and removes them from its targets. They return to their lines when the cycle ends, and
// with each one the slice that was admitted to replace it: that was charged only the difference.
func (c *round) retract(e *entry) {
	if !slices.ContainsFunc(e.targets, retractable) {
		return
	}
	c.withoutForecasts(func() { c.withSlices(e) }) // a forecast may have taken out the same slice
	var rest []preempt.Victim
	for _, v := range e.targets {
		if !retractable(v) {
			rest = append(rest, v)
			continue
		}
		c.victims = slices.DeleteFunc(c.victims, func(o removedVictim) bool { return o.Workload == v.Workload })
		c.retracted = append(c.retracted, v)
		c.w.SetReady(v.Workload, true) // it blocks no other admission
		if !c.dropAdmission(v.Workload) {
			c.w.revoked = append(c.w.revoked, v.Workload)
		}
	}
	e.targets = rest
}

// withSlices takes out, and adds to the targets of a head, the slices with a tentative admission
// that are to replace those to be retracted. spec: 20 §4.11.
func (c *round) withSlices(e *entry) {
	for _, by := range c.w.tentative {
		v := preempt.Victim{Workload: by}
		if !by.MayReplace || !by.Reserved || by.Gone || !retractable(v) {
			continue
		}
		replaced := c.w.ReplacedSlice(by).Workload
		if slices.ContainsFunc(e.targets, func(o preempt.Victim) bool { return o.Workload == replaced && retractable(o) }) {
			v.Node = c.w.Queues[by.Queue].Node
			c.takeOut([]preempt.Victim{v}, e.q)
			e.targets = append(slices.Clip(e.targets), v)
		}
	}
}

// isRetracted reports whether the admission of a workload is retracted when the cycle ends.
func (c *round) isRetracted(wl *workload.Workload) bool {
	return slices.ContainsFunc(c.retracted, func(v preempt.Victim) bool { return v.Workload == wl })
}

// dropAdmission removes the decision that admitted a workload, and reports whether it was made
// in this step.
func (c *round) dropAdmission(wl *workload.Workload) bool {
	drop := func(decisions *[]Decision) bool {
		i := slices.IndexFunc(*decisions, func(d Decision) bool { return d.Workload == wl && d.admits() })
		if i >= 0 {
			*decisions = slices.Delete(*decisions, i, i+1)
		}
		return i >= 0
	}
	dropped := drop(&c.decisions)
	for i := len(c.w.treeCycles) - 1; i >= 0 && !dropped; i-- {
		dropped = drop(&c.w.treeCycles[i].decisions)
	}
	return dropped
}

// startAfterRetraction is the turn of a head whose targets were all retracted: it is admitted,
// unless it waits for victims of other preemptors as well.
func (c *round) startAfterRetraction(e *entry) {
	started := false
	c.withoutForecasts(func() {
		if started = c.fits(e.q, e.got.Usage, e.replaces) && c.fitsForReal(e, e.got.Usage); started {
			for i := range e.got.PodSets {
				for j := range e.got.PodSets[i].Resources {
					e.got.PodSets[i].Resources[j].Mode = flavor.Fit
				}
			}
			c.admit(e)
		}
	})
	if !started {
		c.hold(e, nil)
		c.wait(e, trace.WaitingForPreemptedWorkloads, waitsForOthersVictims)
	}
}

// requeueRetracted returns the workloads of retracted admissions to their lines, at the end of a
// cycle.
func (c *round) requeueRetracted() {
	c.w.gained -= len(c.retracted)
	for _, v := range c.retracted {
		c.w.Ledger.Charge(v.Node, v.Workload.Usage)
		v.Workload.Gone = false
		c.w.Release(v.Workload)
		v.Workload.Reservation = workload.Reservation{Retractions: v.Workload.Retractions + 1}
		c.w.assumed(c.w.Queues[v.Workload.Queue], v.Workload, false)
		c.w.Enqueue(v.Workload)
		if v.Workload.Variant {
			c.w.Unbar(v.Workload)
		}
	}
	clear(c.retracted)
	c.retracted = c.retracted[:0]
}

// SettleAdmissions makes admissions final after a Step. With more, those stay Tentative whose tree
// has more to do and a queue with a preemption policy, unless its run has been interrupted for
// holdWindow: the decisions about them should not be carried out yet.
func (w *World) SettleAdmissions(now workload.Instant, more bool) {
	for _, t := range w.touched {
		if t.runSince == 0 || t.runSince > now { // the clock was set back
			t.runSince = now
		}
		t.tentative = now-t.runSince < holdWindow && slices.ContainsFunc(t.queues, func(q *Queue) bool { return q.Preemption.Allows() })
	}
	w.tentative = slices.DeleteFunc(w.tentative, func(wl *workload.Workload) bool {
		if q := w.Queues[wl.Queue]; more && q != nil && q.tree.touched && q.tree.tentative {
			return false
		}
		wl.Tentative, wl.Retractions = false, 0
		return true
	})
}
