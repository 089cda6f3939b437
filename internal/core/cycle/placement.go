package cycle

import (
	"slices"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Placer finds places for pods on nodes: a dimension of capacity other than quota, as the search
// for flavors sees it. spec: 20 §4.7.
type Placer interface {
	flavor.Places
	// Place returns u with the places of all groups as its part of the dimension, and the placement
	// of each pod set: in what is free now or, with empty, on nodes without workloads that hold quota.
	// false is no room.
	Place(podSets []workload.PodSet, groups []flavor.PlaceGroup, u ledger.Usage, empty bool) (ledger.Usage, []*trace.Placement, bool)
}

// placed reports whether the nomination of a head needs places now.
func (w *World) placed(e *entry) bool { return len(e.got.Placed) > 0 && !e.q.Delayed(e.got.Placed) }

// Delayed reports whether pods get their places after the reservation of quota: with a check that
// makes or chooses the nodes. spec: 20 §4.7.4.
func (q *Queue) Delayed(groups []flavor.PlaceGroup) bool {
	return q.DelayAll || slices.ContainsFunc(groups, func(g flavor.PlaceGroup) bool { return slices.Contains(q.DelayFlavors, g.Flavor.Name) })
}

// place adds places to the nomination of a head that fits in quota, in what is free now. Without
// room, which the search has just found, it does not fit.
func (w *World) place(e *entry, podSets []workload.PodSet) {
	if !w.placed(e) {
		for _, g := range e.got.Placed {
			for _, i := range g.PodSets {
				e.got.PodSets[i].Delayed = true
			}
		}
		return
	}
	usage, placements, ok := w.Places.Place(podSets, e.got.Placed, e.got.Usage, false)
	if !ok {
		e.got.Mode, e.got.Reason = flavor.NoFit, trace.TopologyPlacementFailed
		return
	}
	e.setPlaces(usage, placements)
}

// setPlaces sets the places of a nomination.
func (e *entry) setPlaces(usage ledger.Usage, placements []*trace.Placement) {
	e.got.Usage = usage
	for i := range e.got.PodSets {
		e.got.PodSets[i].Placement = placements[i]
	}
}

// places returns the places of a nomination, by pod set.
func (e *entry) places() []*trace.Placement {
	out := make([]*trace.Placement, len(e.got.PodSets))
	for i := range out {
		out[i] = e.got.PodSets[i].Placement
	}
	return out
}

// placeWithout is place as if the victims of the head had left; without room it drops them.
func (w *World) placeWithout(e *entry, podSets []workload.PodSet) {
	if !w.placed(e) || len(e.targets) == 0 || e.got.Usage.Shares() {
		return
	}
	mark := w.Ledger.Mark()
	defer w.Ledger.Rollback(mark)
	for _, v := range e.targets {
		w.Ledger.Release(v.Node, v.Workload.Usage)
	}
	usage, placements, ok := w.Places.Place(podSets, e.got.Placed, e.got.Usage, false)
	if !ok {
		e.targets = nil
		return
	}
	e.setPlaces(usage, placements)
}

// placeEmpty adds the places that a head without victims keeps from later heads of the cycle: its
// places on nodes without any workload that holds quota. spec: 20 §4.7.2.
func (w *World) placeEmpty(e *entry) {
	if !w.placed(e) || e.got.Usage.Shares() {
		return
	}
	if usage, _, ok := w.Places.Place(w.podSetsOf(e), e.got.Placed, e.got.Usage, true); ok {
		e.got.Usage = usage
	}
}

// placeAgain looks for other places for a head whose places went to an earlier head of the cycle,
// with its flavors, beside all bookings and victims. spec: 20 §4.7.3.
func (c *round) placeAgain(e *entry) bool {
	if !c.w.PlaceAgain || !c.w.placed(e) {
		return false
	}
	var usage ledger.Usage
	var placements []*trace.Placement
	ok := false
	func() {
		mark := c.w.Ledger.Mark()
		defer c.w.Ledger.Rollback(mark)
		for _, v := range c.victims {
			c.w.Ledger.Charge(v.Node, v.Workload.Usage)
		}
		c.w.withoutReplaced(e, func() {
			usage, placements, ok = c.w.Places.Place(c.w.podSetsOf(e), e.got.Placed, ledger.Usage{Quota: e.got.Usage.Quota}, false)
		})
	}()
	if ok {
		e.setPlaces(usage, placements)
	}
	return ok && c.fits(e.q, usage, e.replaces) && c.fitsForReal(e, usage)
}

// podSetsOf returns the pod sets of a head with the counts of its nomination.
func (w *World) podSetsOf(e *entry) []workload.PodSet {
	podSets := slices.Clone(e.podSets)
	for i := range e.got.PodSets {
		podSets[i] = podSets[i].Scaled(e.got.PodSets[i].Count)
	}
	return podSets
}

// fitsWithPlaces is the test of a search for victims whether the head has places, nil if it needs
// none.
func (w *World) fitsWithPlaces(q *Queue, podSets []workload.PodSet, groups []flavor.PlaceGroup) func() bool {
	if len(groups) == 0 || w.Places == nil || q.Delayed(groups) {
		return nil
	}
	return func() bool { return w.Places.Now(podSets, groups) }
}

// promised returns the usage of the queue's nomination, if it is for this head and the same quota:
// its places are the ones that the leaving victims free.
func (w *World) promised(e *entry) ledger.Usage {
	if n := e.q.nomination; w.placed(e) && n != nil && n.preemptor == e.wl && slices.Equal(n.usage.Quota, e.got.Usage.Quota) {
		return n.usage
	}
	return e.got.Usage
}

// leavingWithPlaces is leaving for a head with its nomination.
func (w *World) leavingWithPlaces(e *entry) []preempt.Victim {
	usage := w.promised(e)
	victims := w.leaving(e.q, e.wl, usage)
	if victims != nil {
		e.got.Usage = usage.Copy(e.got.Usage)
		if places := e.q.nomination.places; len(places) == len(e.got.PodSets) {
			e.setPlaces(e.got.Usage, places)
		}
	}
	return victims
}
