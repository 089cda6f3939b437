package flavor

import (
	"slices"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Places is the capacity of other dimensions than quota: whether pods have places on the nodes of
// flavors. It is asked about groups of pod sets in their order: one takes room from those after it.
// spec: 20 §4.7.
type Places interface {
	// Now reports whether all groups have places.
	Now(podSets []workload.PodSet, groups []PlaceGroup) bool
	// Ever reports whether they would have without the workloads that hold quota.
	Ever(podSets []workload.PodSet, groups []PlaceGroup) bool
	// Why is why Now does not, as a clause.
	Why(podSets []workload.PodSet, groups []PlaceGroup) string
	// Wants appends the measures that have to grow for a group to have places. Each want has the clause
	// and the offer of like, and is Winnable only if that is. It returns false if none would help.
	Wants(podSets []workload.PodSet, group PlaceGroup, like workload.Want, into []workload.Want) ([]workload.Want, bool)
}

// PlaceGroup is pod sets that are placed together on the nodes of a flavor, by their indexes.
type PlaceGroup struct {
	PodSets []int
	Flavor  *Flavor
}

// needsPlaces reports whether a pod set is placed: explicitly, or since the queue has no flavor
// without a topology. spec: 20 §4.5.
func (s *Search) needsPlaces(ps *workload.PodSet) bool {
	return s.Places != nil && ps.Count > 0 && (ps.Topology != nil || s.implied())
}

// implied reports whether all flavors of the queue have a topology, which may be missing.
func (s *Search) implied() bool {
	for i := range s.Groups {
		for j := range s.Groups[i].Offers {
			if !s.Groups[i].Offers[j].Flavor.HasTopology() {
				return false
			}
		}
	}
	return len(s.Groups) > 0
}

// placeGroup returns a group of pod sets with a flavor, false if it needs no places there.
func (s *Search) placeGroup(number int16, f *Flavor) (PlaceGroup, bool) {
	g := PlaceGroup{Flavor: f}
	if s.Places == nil || len(f.Levels) == 0 {
		return g, false
	}
	for i := range s.podSets {
		if s.numbers[i] == number && s.needsPlaces(&s.podSets[i]) {
			g.PodSets = append(g.PodSets, i)
		}
	}
	return g, len(g.PodSets) > 0
}

// misplaced returns why the pods of a pod set cannot be placed on the nodes of a flavor of a
// resource group, whatever is free there.
func (s *Search) misplaced(ps *workload.PodSet, group int, f *Flavor) detail {
	switch {
	case s.Places == nil:
	case f.lacksTopology():
		return detail{kind: missingTopology, flavor: f.Name, other: f.Topology}
	case ps.Count == 0:
	case ps.Topology == nil && len(f.Levels) > 0 && !s.implied():
		return detail{kind: placesOnly, flavor: f.Name}
	case ps.Topology != nil && !s.ownRequest(ps, group):
	case ps.Topology != nil && len(f.Levels) == 0:
		return detail{kind: noTopology, flavor: f.Name}
	case ps.Topology != nil:
		for _, level := range ps.Topology.Levels() {
			if !slices.Contains(f.Levels, level) {
				return detail{kind: noLevel, flavor: f.Name, key: level}
			}
		}
	}
	return detail{}
}

// ownRequest reports whether the pods themselves request a resource of a group, not only after
// transformations.
func (s *Search) ownRequest(ps *workload.PodSet, group int) bool {
	return slices.ContainsFunc(ps.PerPod, func(r workload.Request) bool { return slices.Contains(s.Groups[group].Resources, r.Resource) })
}

// pickedPlaces returns the flavor with a topology among the picks of the group at work, nil for
// none.
func (s *Search) pickedPlaces() *Flavor {
	for _, p := range s.picks {
		if len(p.flavor.Levels) > 0 {
			return p.flavor
		}
	}
	return nil
}

// tryPlaces adds the outcome of the placement on a flavor to its trial.
func (s *Search) tryPlaces(number int16, group int, o *Offer, t *trial) {
	s.trial, s.fullNodes = s.placed, false
	at, needs := s.placeGroup(number, o.Flavor)
	if !needs || t.mode == NoFit {
		return
	}
	s.trial = append(s.placed, at)
	delayed := s.Delayed(s.trial)
	now := delayed || s.Places.Now(s.podSets, s.trial)
	ever := now || s.Places.Ever(s.podSets, s.trial)
	switch {
	case !ever || (!now && !t.open && s.NoPreemption != nil):
		s.refusePlaces(at, nil)
		s.refuseTrial(group, t)
		return
	case delayed || s.NoPreemption != nil || (now && !t.open):
		return
	}
	s.fullNodes = !t.open
	s.contest(group, t)
}

// contest makes all requests for a resource group need preemption: the victims have to leave their places. spec: 20 §4.7.1.
func (s *Search) contest(group int, t *trial) {
	t.grade, t.open = grade{Fit, 0}, true
	for i := range s.asks {
		if a := &s.asks[i]; a.group == group {
			a.trial.mode = NoCandidates
			t.grade = s.Policy.worst(t.grade, s.hope(a.trial.fr, s.into.Usage.Quota.Of(a.trial.fr).Add(a.amount)))
		}
	}
}

// refuseTrial makes a flavor not fit for want of places.
func (s *Search) refuseTrial(group int, t *trial) {
	*t = trial{class: trace.TopologyPlacementFailed}
	for i := range s.asks {
		if a := &s.asks[i]; a.group == group && a.trial.mode == Fit {
			a.trial.mode = refusedElsewhere
		}
	}
}

// refusedElsewhere is the mode of an ask that has enough quota, on a flavor that is refused for
// another reason: it is no shortfall.
const refusedElsewhere = trace.Held

// refusePlaces adds the refusal of a flavor whose nodes have no places for a group.
// reach is that of a search for victims, nil without one.
func (s *Search) refusePlaces(at PlaceGroup, reach *trace.Reach) {
	s.into.Refusals = append(s.into.Refusals, trace.Refusal{
		PodSet: s.podSets[at.PodSets[0]].Name, Pair: &resource.Pair{Flavor: at.Flavor.Name}, Placement: true,
		Detail: s.Places.Why(s.podSets, s.trial), Reach: reach,
	})
}

// fitsPlaces reports whether a group has places on the nodes of a flavor, or needs none.
func (s *Search) fitsPlaces(number int16, f *Flavor) bool {
	at, needs := s.placeGroup(number, f)
	s.ahead = append(append(s.ahead[:0], s.placed...), at) // the flavor at work keeps its trial
	return !needs || s.Delayed(s.ahead) || s.Places.Now(s.podSets, s.ahead)
}

// endGroup notes the places of a group of pod sets that has its flavors. It reports false, with a
// refusal, if the group needs places and no flavor gives it one.
func (s *Search) endGroup(number int16) bool {
	f := s.pickedPlaces()
	if f != nil {
		if at, needs := s.placeGroup(number, f); needs {
			s.placed = append(s.placed, at)
		}
		return true
	}
	for i := range s.podSets {
		if s.numbers[i] == number && s.needsPlaces(&s.podSets[i]) {
			s.refuse(i, detail{kind: noPlaces})
			s.into.Reason = trace.NoMatchingFlavor
			return false
		}
	}
	return true
}

// wantPlaces appends the wants of a group on the nodes of a flavor, beside quota; false if the
// flavor can never have places for it.
func (s *Search) wantPlaces(number int16, o *Offer, clause uint8, offer int, into []workload.Want) ([]workload.Want, bool) {
	at, needs := s.placeGroup(number, o.Flavor)
	if !needs || s.Delayed([]PlaceGroup{at}) {
		return into, true
	}
	like := workload.Want{Clause: clause, Offer: uint16(offer), Winnable: s.NoPreemption == nil && s.Quota.Root(s.Node) != quota.None}
	return s.Places.Wants(s.podSets, at, like, into)
}
