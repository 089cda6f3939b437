package topology

import (
	"cmp"
	"slices"
)

// candidate is a domain to choose from.
type candidate struct {
	count
	id, order int32
}

// share is what a domain is given, in slices or, below their level, in pods.
type share struct {
	id     int32
	leader bool
	n      int64
}

// room returns how much a candidate holds, and how much with the leader: slices if unit is 0, else portions of unit pods.
func (c *candidate) room(unit int64) (all, with int64) {
	if unit == 0 {
		return c.slices, c.slicesWL
	}
	return c.pods / unit, c.podsWL / unit
}

// chooser applies the rules of a group to lists of candidates.
type chooser struct {
	leader bool // a leader is wanted
	least  bool // LeastFreeCapacity
	tiers  bool // affinity orders
}

// withoutLeader is order A. spec: 20 §4.6, sort orders.
func (h chooser) withoutLeader(a, b candidate) int {
	if h.tiers && a.score != b.score {
		return cmp.Compare(b.score, a.score)
	}
	if a.slices != b.slices {
		return h.direction(a.slices, b.slices)
	}
	if a.pods != b.pods {
		return cmp.Compare(a.pods, b.pods)
	}
	return cmp.Compare(a.order, b.order)
}

// withLeader is order B.
func (h chooser) withLeader(a, b candidate) int {
	if !h.leader {
		return h.withoutLeader(a, b)
	}
	if a.leader != b.leader {
		if a.leader {
			return -1
		}
		return 1
	}
	if h.tiers && a.score != b.score {
		return cmp.Compare(b.score, a.score)
	}
	if a.slicesWL != b.slicesWL {
		return h.direction(a.slicesWL, b.slicesWL)
	}
	if a.podsWL != b.podsWL {
		return cmp.Compare(a.podsWL, b.podsWL)
	}
	return cmp.Compare(a.order, b.order)
}

func (h chooser) direction(a, b int64) int {
	if h.least {
		return cmp.Compare(a, b)
	}
	return cmp.Compare(b, a)
}

// fits reports whether a candidate holds all of n, and the leader if one is wanted.
func (h chooser) fits(c *candidate, n int64) bool {
	return c.slicesWL >= n && (c.leader || !h.leader)
}

// single returns the one domain that holds everything, or -1. scan looks into lower tiers of affinity as well. spec: 20
// §4.6, phase 2a, steps 1 to 3.
func (h chooser) single(list []candidate, n int64, scan bool) int {
	best := -1
	for i := range list {
		if h.fits(&list[i], n) && (best < 0 || h.tighter(&list[i], &list[best])) {
			best = i
		}
	}
	if best < 0 || h.least || !h.tiers || scan {
		return best
	}
	for i := range list { // a domain of a higher tier is the top one, and does not fit
		if (list[i].leader || !h.leader) && list[i].score > list[best].score {
			return -1
		}
	}
	return best
}

// tighter reports whether a is to be preferred to b where each holds everything: the smallest sufficient one of the
// highest tier.
func (h chooser) tighter(a, b *candidate) bool {
	if h.tiers && a.score != b.score {
		return a.score > b.score
	}
	if a.slicesWL != b.slicesWL {
		return a.slicesWL < b.slicesWL
	}
	if a.podsWL != b.podsWL {
		return a.podsWL < b.podsWL
	}
	return a.order < b.order
}

// moveLeader moves the first domain that can host the leader without losing more than can be spared to the front.
func (h chooser) moveLeader(list []candidate, n, unit int64) {
	if !h.leader {
		return
	}
	spare := -n
	for i := range list {
		all, _ := list[i].room(unit)
		spare += all
	}
	for i := range list {
		if all, with := list[i].room(unit); list[i].leader && all-with <= spare {
			c := list[i]
			copy(list[1:], list[:i])
			list[0] = c
			return
		}
	}
}

// tightest returns the index of the smallest candidate from i on that holds n alone, in the tier of the one at i.
func (h chooser) tightest(list []candidate, i int, n, unit int64, leader bool) int {
	if h.least {
		return i
	}
	best, size := i, int64(-1)
	for j := i; j < len(list); j++ {
		c := &list[j]
		room, with := c.room(unit)
		if leader {
			room = with
		}
		if room < n || (leader && !c.leader) || (h.tiers && c.score != list[i].score) || (size >= 0 && room >= size) {
			continue
		}
		best, size = j, room
	}
	return best
}

// several chooses domains that hold everything together; nil if they do not. It reorders list. spec: 20 §4.6, step 4.
func (h chooser) several(list []candidate, n int64) []candidate {
	slices.SortFunc(list, h.withLeader)
	h.moveLeader(list, n, 0)
	at := 0
	if h.leader {
		if len(list) == 0 || !list[0].leader {
			return nil
		}
		if list[0].slicesWL >= n {
			i := h.tightest(list, 0, n, 0, true)
			return list[i : i+1]
		}
		n -= list[0].slicesWL
		at = 1
		slices.SortFunc(list[1:], h.withoutLeader)
	}
	for ; n > 0; at++ {
		if at == len(list) {
			return nil
		}
		if list[at].slices >= n {
			i := h.tightest(list, at, n, 0, false)
			list[at], list[i] = list[i], list[at]
			n = 0
			continue
		}
		n -= list[at].slices
	}
	return list[:at]
}

// distribute gives n to candidates in their order, and a leader to one of them. It reorders list. A domain that gets
// nothing is left out. ok is false if they do not hold it. spec: 20 §4.6, Take.
func (h chooser) distribute(list []candidate, n, unit int64, leader bool, out []share) (_ []share, ok bool) {
	h.leader = leader
	h.moveLeader(list, n, unit)
	for i := range list {
		all, with := list[i].room(unit)
		switch {
		case !leader && n == 0:
			return out, true
		case leader && list[i].leader && with >= n:
			return append(out, share{list[h.tightest(list, i, n, unit, true)].id, true, n}), true
		case !leader && all >= n:
			return append(out, share{list[h.tightest(list, i, n, unit, false)].id, false, n}), true
		case leader:
			all = min(with, n)
		}
		hosts := leader && list[i].leader
		if leader = leader && !hosts; all > 0 || hosts {
			out = append(out, share{list[i].id, hosts, all})
		}
		n -= all
	}
	return out, n == 0 && !leader
}
