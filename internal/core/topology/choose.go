package topology

import (
	"cmp"
	"slices"
)

// candidate is a domain to choose from. Its count is the shape's, and must not be modified.
type candidate struct {
	*count
	id, order int32
}

// few candidates are looked through for each of the first ones.
const few = 128

// ranking is candidates in an order that is established as far as it is read: few of 10,000 hosts are.
type ranking struct {
	list   []candidate
	order  func(a, b candidate) int
	sorted int  // list[:sorted] is in order, and before the rest
	fixed  bool // the order is the one of the list
}

// at returns the candidate of a place.
func (r *ranking) at(i int) *candidate {
	for i >= r.sorted && !r.fixed {
		rest := r.list[r.sorted:]
		if r.sorted < 4 && len(r.list) <= few { // which are often enough
			first := 0
			for j := 1; j < len(rest); j++ {
				if r.order(rest[j], rest[first]) < 0 {
					first = j
				}
			}
			rest[0], rest[first] = rest[first], rest[0]
			r.sorted++
			continue
		}
		n := max(16, 2*r.sorted)
		if n > len(rest)/2 {
			n = len(rest)
		}
		selectFirst(rest, n, r.order)
		slices.SortFunc(rest[:n], r.order)
		r.sorted += n
	}
	return &r.list[i]
}

// selectFirst moves the first n of an order to the front.
func selectFirst(list []candidate, n int, order func(a, b candidate) int) {
	for n < len(list) && len(list) > 1 {
		pivot := middle(list[0], list[len(list)/2], list[len(list)-1], order)
		i, j := 0, len(list)-1
		for i <= j {
			for order(list[i], pivot) < 0 {
				i++
			}
			for order(list[j], pivot) > 0 {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case n <= j:
			list = list[:j+1]
		case n > i:
			list, n = list[i:], n-i
		default:
			return
		}
	}
}

func middle(a, b, c candidate, order func(a, b candidate) int) candidate {
	if order(b, a) < 0 {
		a, b = b, a
	}
	if order(c, b) < 0 {
		if b = c; order(c, a) < 0 {
			b = a
		}
	}
	return b
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

// moveLeader moves the first domain that can host the leader without losing more than can be spared to the front. If
// there is none, the order stays.
func (h chooser) moveLeader(r *ranking, n, unit int64) {
	spare, first := -n, -1
	for i := range r.list {
		all, _ := r.list[i].room(unit)
		spare += all
	}
	for i := range r.list {
		c := &r.list[i]
		if all, with := c.room(unit); c.leader && all-with <= spare && (first < 0 || (!r.fixed && r.order(*c, r.list[first]) < 0)) {
			first = i
		}
	}
	if first < 0 {
		return
	}
	c := r.list[first]
	if r.fixed {
		copy(r.list[1:], r.list[:first])
	} else {
		r.list[first], r.sorted = r.list[0], 1
	}
	r.list[0] = c
}

// tightest returns the smallest candidate that holds n alone, among the one at a place, which does, and the ones after it
// of the same affinity; LeastFreeCapacity takes the one at the place. spec: 20 §4.6, step 4.
func (h chooser) tightest(r *ranking, at int, n, unit int64, leader bool) *candidate {
	best := &r.list[at]
	if h.least {
		return best
	}
	size := func(c *candidate) int64 {
		all, with := c.room(unit)
		if leader {
			return with
		}
		return all
	}
	found, score := size(best), best.score
	for j := at + 1; j < len(r.list); j++ {
		c := &r.list[j]
		room := size(c)
		if room < n || (leader && !c.leader) || (h.tiers && c.score != score) || room > found {
			continue
		}
		if room < found || (!r.fixed && best != &r.list[at] && r.order(*c, *best) < 0) {
			best, found = c, room
		}
	}
	return best
}

// several chooses domains that hold everything together; nil if they do not. It reorders list. spec: 20 §4.6, step 4.
func (h chooser) several(list []candidate, n int64) []candidate {
	rest := ranking{list: list, order: h.withLeader}
	if h.leader {
		h.moveLeader(&rest, n, 0)
		if len(list) == 0 || !rest.at(0).leader {
			return nil
		}
		if list[0].slicesWL >= n {
			list[0] = *h.tightest(&rest, 0, n, 0, true)
			return list[:1]
		}
		n -= list[0].slicesWL
		rest.list = list[1:]
	}
	rest = ranking{list: rest.list, order: h.withoutLeader}
	for at := 0; n > 0; at++ {
		if at == len(rest.list) {
			return nil
		}
		c := rest.at(at)
		if n -= c.slices; n <= 0 {
			best := h.tightest(&rest, at, n+c.slices, 0, false)
			*c, *best = *best, *c
			return list[:len(list)-len(rest.list)+at+1]
		}
	}
	return list[:len(list)-len(rest.list)]
}

// distribute gives n to candidates in their order, and a leader to one of them. It reorders list. A domain that gets
// nothing is left out. ok is false if they do not hold it. spec: 20 §4.6, Take.
func (h chooser) distribute(r *ranking, n, unit int64, leader bool, out []share) (_ []share, ok bool) {
	if leader {
		h.moveLeader(r, n, unit)
	}
	for i := range r.list {
		if !leader && n == 0 {
			return out, true
		}
		c := r.at(i)
		room, with := c.room(unit)
		if leader {
			room = with
		}
		if room >= n && (!leader || c.leader) {
			return append(out, share{h.tightest(r, i, n, unit, leader).id, leader, n}), true
		}
		room = min(room, n)
		hosts := leader && c.leader
		if room > 0 || hosts {
			out = append(out, share{c.id, hosts, room})
		}
		leader, n = leader && !hosts, n-room
	}
	return out, n == 0 && !leader
}
