package state

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// A second pass places pods of workloads that hold quota already: those whose placement was delayed until their admission checks were
// ready, and those with a failed node. It preempts no workload, and is tried again with a growing pause. spec: 20 §4.7.4, §4.9.

// PodSetUpdate is what admission checks add to the pods of a pod set.
type PodSetUpdate struct {
	PodSet      string
	Selector    map[string]string     `json:",omitempty"`
	Tolerations []workload.Toleration `json:",omitempty"`
}

const (
	// firstPause is observable: a failed node stays in the status for it, and may recover or be joined by a second one.
	firstPause = workload.Instant(1e9)
	// longestPause bounds the pause between two rounds.
	longestPause = 30 * firstPause
)

// secondPass is a workload that waits for a second pass.
type secondPass struct {
	due    workload.Instant // 0 before the first step that knows of it
	failed int              // rounds since it waits
}

// pause is the time before the next round.
func (p *secondPass) pause() workload.Instant { return min(longestPause, firstPause<<min(p.failed, 8)) }

// secondPassMemory is a workload that waits for a second pass, in a Snapshot.
type secondPassMemory struct {
	UID    string
	Due    workload.Instant
	Failed int
}

// wantsSecondPass reports whether a record waits for a second pass.
func (s *State) wantsSecondPass(r *record) bool {
	if q := s.queues[r.def.Queue]; s.places == nil || r.wl == nil || !r.def.Reserved || r.def.Evicting || (q != nil && q.def.PlacedElsewhere) {
		return false
	}
	return r.def.PlaceNow || len(r.def.Unhealthy) > 0
}

// followSecondPass makes a record wait for a second pass, or not, as its definition says.
func (s *State) followSecondPass(r *record) {
	if s.places == nil {
		return
	}
	uid := r.uid()
	switch wants, waits := s.wantsSecondPass(r), s.second[uid] != nil; {
	case wants && !waits:
		if s.second == nil {
			s.second = map[string]*secondPass{}
		}
		s.second[uid] = &secondPass{}
	case waits && !wants:
		delete(s.second, uid)
	}
}

// followSecondPasses is followSecondPass for the records with quota of a queue.
func (s *State) followSecondPasses(queue string) {
	if s.places == nil {
		return
	}
	for _, r := range s.records { //berth:unordered each by itself
		if r.def.Reserved && r.def.Queue == queue {
			s.followSecondPass(r)
		}
	}
}

// runSecondPass tries the workloads that are due, and returns the decisions and when the next one is due, 0 for none.
func (s *State) runSecondPass(now workload.Instant) (decisions []cycle.Decision, next workload.Instant) {
	if len(s.second) == 0 { // sorting nothing allocates as well
		return nil, 0
	}
	for _, uid := range slices.SortedFunc(maps.Keys(s.second), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.second[a].due, s.second[b].due), strings.Compare(a, b))
	}) {
		p, r := s.second[uid], s.records[uid]
		if most := now + p.pause(); p.due == 0 || p.due > most { // the clock may have been set back
			p.due = most
		}
		switch {
		case r.assumed() || r.wl.Evicting: // its places are being written, or it leaves
			continue
		case now >= p.due:
			d := s.placeLater(r)
			if decisions = append(decisions, d); d.Placed != nil {
				continue
			}
			p.failed++
			p.due = now + p.pause()
		}
		if next == 0 || p.due < next {
			next = p.due
		}
	}
	return decisions, next
}

// placeLater is one round of a second pass for a workload.
func (s *State) placeLater(r *record) cycle.Decision {
	attempt := &trace.Attempt{
		Workload: r.wl.Key, UID: r.wl.UID, Queue: r.def.Queue, Priority: r.def.Priority, Verdict: trace.Waits,
		Reason: trace.TopologyPlacementFailed, Table: s.world.Table.Frozen(),
	}
	d := cycle.Decision{Workload: r.wl, Queue: r.def.Queue, Attempt: attempt, SecondPass: true, Failed: r.def.Unhealthy}
	podSets, placements, why := s.newPlaces(r)
	if why != "" {
		attempt.Note = why
		d.NodesFailed = s.options.FailFast && len(r.def.Unhealthy) > 0
		return d
	}
	held := &flavor.Holding{}
	var placed []PodSetPlacement
	for i, ps := range podSets {
		out := trace.PodSet{Name: ps.Name, Count: ps.Count, Placement: placements[i]}
		if placements[i] == nil {
			if at := slices.IndexFunc(r.def.Placed, func(p PodSetPlacement) bool { return p.PodSet == ps.Name }); at >= 0 {
				out.Placement = &r.def.Placed[at].Placement
			}
		}
		if out.Placement != nil {
			placed = append(placed, PodSetPlacement{ps.Name, *out.Placement})
		}
		held.PodSets = append(held.PodSets, out)
	}
	held.Usage = s.placedUsage(r.def.shape, s.amounts(r.def.Held), placed)
	attempt.Verdict, attempt.Reason, attempt.PodSets = trace.Placed, "", held.PodSets
	d.Placed = held
	r.assume(held)
	s.charge(r)
	s.touch(r)
	return d
}

// newPlaces returns the places that a workload is to get, by pod set; or why there are none.
func (s *State) newPlaces(r *record) (podSets []workload.PodSet, placements []*trace.Placement, why string) {
	podSets = slices.Clone(r.def.shape.podSets)
	for i := range podSets {
		if why = s.update(&podSets[i], r.def.Updates); why != "" {
			return podSets, nil, why
		}
		if granted, fewer := r.def.Granted[podSets[i].Name]; fewer {
			podSets[i].Count = min(granted, podSets[i].Count)
		}
	}
	groups := s.placeGroups(r, podSets)
	if len(r.def.Unhealthy) > 0 {
		return s.replaced(r, podSets, groups)
	}
	if before := s.replacedSlice(r); before != nil && before.in == r.in && before.wl.Reserved {
		mark := s.world.Mark()
		defer s.world.Rollback(mark)
		s.world.Ledger.Release(before.in.Node, before.wl.Usage)
		podSets = cycle.Keeping(podSets, before.placed)
	}
	_, placements, ok := s.places.Place(podSets, groups, ledger.Usage{}, false)
	if !ok {
		return podSets, nil, s.places.Why(podSets, groups)
	}
	return podSets, placements, ""
}

// replaced returns the placements of a workload without its failed nodes: nil for pod sets that were not placed.
func (s *State) replaced(r *record, podSets []workload.PodSet, groups []flavor.PlaceGroup) ([]workload.PodSet, []*trace.Placement, string) {
	earlier := make([]*trace.Placement, len(podSets))
	for i := range r.def.Placed {
		for at := range podSets {
			if podSets[at].Name == r.def.Placed[i].PodSet {
				earlier[at] = &r.def.Placed[i].Placement
			}
		}
	}
	placements, why := s.places.Replaced(podSets, groups, earlier, r.def.Unhealthy)
	return podSets, placements, why
}

// update applies the updates of admission checks to the pods of a pod set; it returns why they contradict it.
func (s *State) update(ps *workload.PodSet, updates []PodSetUpdate) string {
	for _, u := range updates {
		if u.PodSet != ps.Name {
			continue
		}
		var c workload.Constraints
		if ps.Constraints != nil {
			c = *ps.Constraints
		}
		selector := maps.Clone(c.Selector)
		for _, key := range slices.Sorted(maps.Keys(u.Selector)) {
			if has, ok := selector[key]; ok && has != u.Selector[key] {
				return "an admission check sets the node selector " + key + "=" + u.Selector[key] + ", and pod set " + ps.Name + " has " + has
			}
			if selector == nil {
				selector = map[string]string{}
			}
			selector[key] = u.Selector[key]
		}
		c.Selector, c.Tolerations = selector, slices.Concat(c.Tolerations, u.Tolerations)
		ps.Constraints = &c
	}
	return ""
}

// placeGroups returns the pod sets of a workload with quota that a second pass places, in groups, with their flavors.
func (s *State) placeGroups(r *record, podSets []workload.PodSet) (groups []flavor.PlaceGroup) {
	for i := range podSets {
		ps := &podSets[i]
		wants := slices.Contains(r.def.Delayed, ps.Name)
		if len(r.def.Unhealthy) > 0 {
			wants = slices.ContainsFunc(r.def.Placed, func(p PodSetPlacement) bool { return p.PodSet == ps.Name })
		}
		if !wants {
			continue
		}
		if ps.Group != "" {
			at := slices.IndexFunc(groups, func(g flavor.PlaceGroup) bool { return podSets[g.PodSets[0]].Group == ps.Group })
			if at >= 0 {
				groups[at].PodSets = append(groups[at].PodSets, i)
				continue
			}
		}
		groups = append(groups, flavor.PlaceGroup{PodSets: []int{i}, Flavor: s.placingFlavor(r, ps)})
	}
	return groups
}

// placingFlavor returns the flavor with a topology that a pod set, or else its group, holds quota of. Without one it is a flavor that has no
// tree, as after a deletion: its pods have no places then.
func (s *State) placingFlavor(r *record, ps *workload.PodSet) *flavor.Flavor {
	none := &flavor.Flavor{}
	for _, own := range []bool{true, false} {
		for _, h := range r.def.Held {
			at := slices.IndexFunc(r.def.shape.podSets, func(o workload.PodSet) bool { return o.Name == h.PodSet })
			if at < 0 {
				continue
			}
			if o := &r.def.shape.podSets[at]; (own && o.Name != ps.Name) || (!own && (ps.Group == "" || o.Group != ps.Group)) {
				continue
			}
			if f := s.flavors[h.Flavor]; f != nil && len(f.Levels) > 0 {
				return f
			}
			none.Name = cmp.Or(none.Name, h.Flavor)
		}
	}
	return none
}

// secondPasses returns the workloads that wait for a second pass, by UID.
func (s *State) secondPasses() (out []secondPassMemory) {
	for _, uid := range slices.Sorted(maps.Keys(s.second)) {
		out = append(out, secondPassMemory{uid, s.second[uid].due, s.second[uid].failed})
	}
	return out
}

// keepsPlaces reports whether an update of a workload whose new places are being written still is of the former ones.
func keepsPlaces(now, before *definition) bool {
	return now.Reserved && before.Reserved && !now.Evicting && now.Queue == before.Queue && samePlaced(now.Placed, before.Placed) &&
		slices.Equal(now.Delayed, before.Delayed) && slices.Equal(now.Unhealthy, before.Unhealthy) && slices.Equal(now.Held, before.Held) &&
		maps.Equal(now.Granted, before.Granted)
}
