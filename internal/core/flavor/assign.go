package flavor

import (
	"slices"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Search is the world of one queue's assignments, and their memory: one value serves any
// number of them, with its fields changed in between.
type Search struct {
	Table *resource.Table
	*ledger.Ledger
	Node   quota.Node
	Groups []Group
	Policy Fungibility
	Oracle Oracle
	// PreemptsWhileBorrowing: preemption is allowed although the request is past the queue's
	// own quota.
	PreemptsWhileBorrowing bool
	// NoPreemption, unless nil, is the reach of a queue whose policy allows no preemption, for
	// refusals. The Oracle is not called then, and Wants are more precise.
	NoPreemption *trace.Reach
	// NoReclaim: the policy allows no preemption in other queues, so that the Oracle never
	// returns Reclaim.
	NoReclaim bool
	// IgnoreUndeclared: resources that no group covers need no quota.
	IgnoreUndeclared bool

	// Resume is the Tried of the search before: each search resumes there. spec: 10 §4.6.5.
	Resume []workload.Tried
	// Only restricts the search to the flavors of an earlier assignment of the same workload,
	// and starts at the first flavor. spec: 10 §4.5 5b.
	Only *Holding
	// Pins are the flavors that a slice has to stay on. spec: 20 §4.11.
	Pins []workload.Pin
	// Places answers for the places of pods on nodes; nil where the queue has no flavor with a
	// topology.
	Places Places
	// Delayed reports whether the pods of some groups get their places later, so that free ones do
	// not matter now. spec: 20 §4.7.4.
	Delayed func([]PlaceGroup) bool

	// The state of the current assignment.
	podSets      []workload.PodSet
	into         *Assignment
	pods         ask     // the request of every pod where quota for pods is counted; its group is −1 if not
	numbers      []int16 // of the group of each pod set
	spans        []span  // of each pod set in into.flat
	asks         []ask   // of the current group of pod sets, in name order
	picks        []picked
	question     Question
	needs        []resource.FR // the FRs that the groups of pod sets before are short of, sorted
	contradicted bool          // the last search refused a flavor for the labels or the topology of a pick
	texts        map[detail]text
	nodes        []nodeText      // by node
	reach        *trace.Reach    // the last one of the Oracle; shared by refusals
	placed       []PlaceGroup    // of the groups of pod sets before
	trial        []PlaceGroup    // with that of the flavor tried last, if it has one
	ahead        []PlaceGroup    // likewise, with that of a flavor that may be tried later
	taken        resource.Vector // scratch memory of Foresee
	fullNodes    bool            // the flavor tried last has enough quota, and other workloads on its nodes
}

// ask is the request of a group of pod sets for one resource, and its assignment.
type ask struct {
	resource resource.ID
	amount   resource.Amount
	group    int   // index of the resource group, −1 if none covers it
	at       int   // index of the resource in the group
	trial    quote // by the flavor tried last
	got      quote // by the best flavor so far; NoFit before there is one
}

type quote struct {
	fr resource.FR
	grade
}

// picked is the flavor taken from a resource group.
type picked struct {
	group  int
	flavor *Flavor
}

// span is a part of into.flat.
type span struct {
	from, to int
	done     bool
}

// Assign finds flavors for all pod sets and writes the outcome into the memory of into. It
// stops at the first group of pod sets that gets none: the workload then is NoFit.
// spec: 10 §4.6.1.
func (s *Search) Assign(podSets []workload.PodSet, into *Assignment) {
	*into = Assignment{
		PodSets: into.PodSets[:0], Mode: Fit, Usage: into.Usage.Blank(), Refusals: into.Refusals[:0],
		Tried: into.Tried[:0], Placed: into.Placed[:0], flat: into.flat[:0],
	}
	s.into, s.needs, s.placed = into, s.needs[:0], s.placed[:0]
	s.trial, s.fullNodes = nil, false // a queue without topologies sets neither
	groups := s.prepare(podSets)
	for number := range groups {
		if !s.assignGroup(number) {
			into.Mode = NoFit
			break
		}
	}
	for i := range podSets {
		if at := s.spans[i]; at.done {
			into.PodSets = append(into.PodSets, trace.PodSet{Name: podSets[i].Name, Count: podSets[i].Count, Resources: into.flat[at.from:at.to:at.to]})
		}
	}
	into.Placed = append(into.Placed[:0], s.placed...)
	s.into, s.podSets = nil, nil
}

// prepare numbers the groups of pod sets, in order of first appearance, and returns their
// number.
func (s *Search) prepare(podSets []workload.PodSet) int16 {
	s.podSets = podSets
	s.pods = ask{group: -1}
	for i := range s.Groups {
		for at, id := range s.Groups[i].Resources {
			if s.Table.Name(id) == resource.Pods {
				s.pods = ask{resource: id, group: i, at: at}
			}
		}
	}
	s.numbers, s.spans = s.numbers[:0], s.spans[:0]
	groups := int16(0)
	for i := range podSets {
		number := groups
		for j := range i {
			if podSets[i].Group != "" && podSets[j].Group == podSets[i].Group {
				number = s.numbers[j]
				break
			}
		}
		if number == groups {
			groups++
		}
		s.numbers, s.spans = append(s.numbers, number), append(s.spans, span{})
	}
	return groups
}

// first is the index of the first pod set of a group.
func (s *Search) first(number int16) int { return slices.Index(s.numbers, number) }

// assignGroup finds flavors for a group of pod sets, one of each resource group that they
// request something of.
func (s *Search) assignGroup(number int16) bool {
	s.asks, s.picks = s.asks[:0], s.picks[:0]
	for i := range s.podSets {
		if s.numbers[i] == number {
			s.sum(&s.podSets[i], s.podSets[i].Count)
		}
	}
	tried := len(s.into.Tried)
	for i := range s.asks {
		a := &s.asks[i]
		if a.got.mode != NoFit {
			continue // came with an earlier resource of its group
		}
		s.contradicted = false
		if a.group < 0 {
			if a.amount == 0 || s.IgnoreUndeclared {
				continue
			}
			s.refuse(s.first(number), detail{kind: uncovered, other: s.Table.Name(a.resource)})
			s.into.Reason = trace.NoMatchingFlavor
		} else {
			s.into.Reason = s.search(number, a.group)
		}
		if s.into.Reason == "" {
			continue
		}
		// Another flavor for an earlier resource group cannot help this one, except where
		// the two contradicted each other.
		if !s.contradicted {
			s.into.Tried = s.into.Tried[:tried]
		}
		return false
	}
	if s.Places != nil && !s.endGroup(number) {
		return false
	}
	s.assignPodSets(number)
	return true
}

// sum adds the requests of count pods of a pod set, and quota for pods where that is counted,
// to the asks. spec: 10 §4.2.
func (s *Search) sum(ps *workload.PodSet, count int32) {
	for _, r := range ps.Requests {
		if s.pods.group >= 0 && r.Resource == s.pods.resource {
			continue // their number is what counts
		}
		amount := r.Amount
		if count != ps.Count {
			amount = amount.Scale(ps.Count, count)
		}
		group, at := s.groupOf(r.Resource)
		s.ask(ask{resource: r.Resource, amount: amount, group: group, at: at})
	}
	if s.pods.group >= 0 {
		pods := s.pods
		pods.amount = resource.Amount(count)
		s.ask(pods)
	}
}

// ask inserts a in name order, or adds it to the ask for its resource.
func (s *Search) ask(a ask) {
	name := s.Table.Name(a.resource)
	i := len(s.asks)
	for i > 0 && s.Table.Name(s.asks[i-1].resource) > name {
		i--
	}
	if i > 0 && s.asks[i-1].resource == a.resource {
		s.asks[i-1].amount = s.asks[i-1].amount.Add(a.amount)
		return
	}
	s.asks = slices.Insert(s.asks, i, a)
}

// groupOf returns the resource group that covers a resource, and its index in the group.
func (s *Search) groupOf(id resource.ID) (group, at int) {
	for i := range s.Groups {
		if at := slices.Index(s.Groups[i].Resources, id); at >= 0 {
			return i, at
		}
	}
	return -1, 0
}

// requested returns what a pod set requests of a resource.
func (s *Search) requested(ps *workload.PodSet, id resource.ID) (resource.Amount, bool) {
	if s.pods.group >= 0 && id == s.pods.resource {
		return resource.Amount(ps.Count), true
	}
	for _, r := range ps.Requests {
		if r.Resource == id {
			return r.Amount, true
		}
	}
	return 0, false
}

// assignPodSets assigns the picked flavors to the pod sets of the group.
func (s *Search) assignPodSets(number int16) {
	a := s.into
	for i := range s.podSets {
		if s.numbers[i] != number {
			continue
		}
		from := len(a.flat)
		for _, p := range s.picks {
			for _, q := range s.asks {
				if q.group != p.group {
					continue
				}
				amount, ok := s.requested(&s.podSets[i], q.resource)
				if !ok {
					continue
				}
				a.flat = append(a.flat, trace.Choice{Amount: amount, FR: q.got.fr, Level: int16(q.got.level), Mode: q.got.mode})
				a.Usage.Quota = add(a.Usage.Quota, q.got.fr, amount)
				a.Mode = min(a.Mode, q.got.mode)
				a.Level = max(a.Level, q.got.level)
				if q.got.mode != Fit {
					s.needs = insert(s.needs, q.got.fr)
				}
			}
		}
		s.spans[i] = span{from, len(a.flat), true}
	}
}
