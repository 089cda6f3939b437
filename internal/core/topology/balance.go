package topology

import (
	"cmp"
	"math"
	"slices"
)

// mostExtensions bounds the work of a search for an even choice, some tenths of a second; beyond it the pods are placed as without the gate.
const mostExtensions = 1 << 21

// siblings is the children of one domain, and their children, that are pruned. Their counts are the shape's until then. spec: 20 §4.6, balanced placement.
type siblings struct {
	list      []candidate
	kids      []candidate // of all, in the order of values
	ends      []int       // of the kids of each of list, in kids
	counts    []count     // of the pruned ones of list
	entropy   []float64   // of each of list
	threshold int64
	count     int // how many siblings the last greedy test took
}

// kidsOf returns the children of one of list.
func (set *siblings) kidsOf(i int) []candidate {
	first := 0
	if i > 0 {
		first = set.ends[i-1]
	}
	return set.kids[first:set.ends[i]]
}

// greedyTest is the outcome of filling domains one after the other.
type greedyTest struct {
	fits         bool
	domains      int
	last, leader count
}

// balancer spreads one group evenly.
type balancer struct {
	chooser
	g       *group
	sh      *shape
	scratch *evenScratch
}

// evenScratch is memory that is used again: the best siblings so far, others that are tried, and a list for the greedy test.
type evenScratch struct {
	best, trial siblings
	list        []candidate
	empty       count // of what is pruned
}

// balance places a group evenly, as far as that is possible. ok is false if it is not.
func (s *Space) balance(g *group, sh *shape, h chooser) (shares []share, ok bool) {
	t, b := g.tree, balancer{h, g, sh, &s.scratch.even}
	best := b.bestSiblings(t)
	if best == nil {
		return nil, false
	}
	l, list := g.requested, best.list
	if l < g.slice {
		best.measure()
		chosen := b.choose(list, func(x, y int) int { return b.firstOrder(best, x, y) })
		if chosen == nil {
			return nil, false
		}
		var below []candidate
		for i := range list {
			if slices.ContainsFunc(chosen, func(c candidate) bool { return c.id == list[i].id }) {
				below = append(below, best.kidsOf(i)...)
			}
		}
		l, list = l+1, below
	}
	list = b.choose(list, func(x, y int) int { return cmp.Compare(list[x].order, list[y].order) })
	if list == nil {
		return nil, false
	}
	now := b.even(list, best.threshold)
	if now == nil {
		return nil, false
	}
	var next []share
	for ok = true; ok && l < g.slice; l++ {
		next = nil
		for _, p := range now {
			kids := t.appendKids(nil, sh, l, p.id, h)
			if next, ok = h.distribute(&ranking{list: kids, order: h.withoutLeader}, p.n, 0, p.leader, next); !ok {
				return nil, false
			}
		}
		now = next
	}
	for i := range now {
		now[i].n *= g.size
	}
	shares, f := s.descendEach(g, sh, h, l, now, nil, true)
	return shares, f == nil
}

// bestSiblings returns the siblings with the highest threshold, then the fewest domains, then the first.
func (b balancer) bestSiblings(t *tree) (best *siblings) {
	for _, ids := range t.siblingsOf(b.g.requested) {
		least := int64(0)
		if best != nil {
			least = best.threshold
		}
		set := b.prunedSiblings(t, ids, least)
		if set == nil {
			continue
		}
		if best == nil || set.threshold > best.threshold || (set.threshold == best.threshold && set.count < best.count) {
			sc := b.scratch
			sc.best, sc.trial = sc.trial, sc.best
			best = &sc.best
		}
	}
	return best
}

// prunedSiblings returns siblings with their threshold, nil if they do not hold everything or it is below least.
func (b balancer) prunedSiblings(t *tree, ids []int32, least int64) *siblings {
	l := b.g.requested
	if !b.mayHold(t, l, ids) {
		return nil
	}
	set := b.gatherSiblings(t, l, ids)
	test := b.test(set.list)
	if l < b.g.slice {
		test = b.test(set.kids)
	}
	if !test.fits {
		return nil
	}
	threshold := min(b.g.needed/int64(test.domains), test.last.slices)
	if b.leader {
		threshold = min(threshold, test.leader.slicesWL)
	}
	if threshold < least {
		return nil
	}
	if b.prune(t, set, threshold) {
		return set
	}
	lower := min(threshold, test.last.slicesWL)
	if !b.leader || lower <= 0 || lower < least {
		return nil
	}
	if set = b.gatherSiblings(t, l, ids); b.prune(t, set, lower) {
		return set
	}
	return nil
}

// siblingsOf returns the children of each domain above a level, in the order of values.
func (t *tree) siblingsOf(l int) (out [][]int32) {
	if l == 0 {
		return [][]int32{t.roots}
	}
	above := t.levels[l-1].All
	order := make([]int32, 0, len(above))
	for id := range above {
		if above[id].live {
			order = append(order, int32(id))
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(above[a].order, above[b].order) })
	for _, id := range order {
		out = append(out, above[id].kids)
	}
	return out
}

// mayHold reports whether siblings have room for all slices, with a leader or without. It is cheaper than to gather them.
func (b balancer) mayHold(t *tree, l int, ids []int32) bool {
	left := b.g.needed
	for _, id := range ids {
		if l >= b.g.slice {
			left -= b.sh.counts[l][id].slices
			continue
		}
		for _, k := range t.levels[l].All[id].kids {
			left -= b.sh.counts[l+1][k].slices
		}
	}
	return left <= 0
}

// gatherSiblings lists siblings in the scratch memory for a trial.
func (b balancer) gatherSiblings(t *tree, l int, ids []int32) *siblings {
	set := &b.scratch.trial
	*set = siblings{list: set.list[:0], kids: set.kids[:0], ends: set.ends[:0], counts: set.counts[:0]}
	for _, id := range ids {
		set.list = append(set.list, candidate{&b.sh.counts[l][id], id, t.levels[l].All[id].order})
		if l < t.lowest() {
			for _, k := range t.levels[l].All[id].kids {
				set.kids = append(set.kids, candidate{&b.sh.counts[l+1][k], k, t.levels[l+1].All[k].order})
			}
		}
		set.ends = append(set.ends, len(set.kids))
	}
	return set
}

// test fills domains in their order until all slices are placed.
func (b balancer) test(list []candidate) (r greedyTest) {
	list, left := append(b.scratch.list[:0], list...), b.g.needed
	b.scratch.list = list
	if b.leader {
		if len(list) == 0 {
			return r
		}
		selectFirst(list, 1, b.withLeader)
		if !list[0].leader {
			return r
		}
		r.leader, r.last, r.domains = *list[0].count, *list[0].count, 1
		left -= list[0].slicesWL
		list = list[1:]
	}
	rest := ranking{list: list, order: b.withoutLeader}
	for i := 0; i < len(list) && left > 0 && rest.at(i).slices > 0; i++ {
		r.last = *rest.at(i).count
		r.domains++
		left -= r.last.slices
	}
	r.fits = left <= 0
	return r
}

// prune empties domains below a threshold, and reports whether the siblings still hold everything.
func (b balancer) prune(t *tree, set *siblings, threshold int64) bool {
	l := b.g.requested
	cut := func(list []candidate) {
		for i := range list {
			c := &list[i]
			switch {
			case c.slices < threshold:
				c.count = &b.scratch.empty
			case c.leader && c.slicesWL < threshold:
				own := *c.count
				own.leader, c.count = false, &own
			}
		}
	}
	if l < t.lowest() {
		cut(set.kids)
		set.counts = slices.Grow(set.counts, len(set.list))[:len(set.list)]
		for i := range set.list {
			b.sum(set, i)
		}
	}
	cut(set.list)
	test := b.test(set.list)
	set.threshold, set.count = threshold, test.domains
	return test.fits
}

// sum recomputes the count of a sibling from its children, without regard to inner layers.
func (b balancer) sum(set *siblings, i int) {
	c := count{}
	lost, lostSlices := int64(plenty), int64(plenty)
	for _, k := range set.kidsOf(i) {
		c.pods, c.slices, c.score = c.pods+k.pods, c.slices+k.slices, c.score+k.score
		if k.leader {
			c.leader = true
			lost, lostSlices = min(lost, k.pods-k.podsWL), min(lostSlices, k.slices-k.slicesWL)
		}
	}
	switch {
	case !b.leader:
		c.podsWL, c.slicesWL = c.pods, c.slices
	case c.leader:
		c.podsWL, c.slicesWL = c.pods-lost, c.slices-lostSlices
	}
	b.sh.countSlices(b.g.requested, &c)
	set.counts[i], set.list[i].count = c, &set.counts[i]
}

// firstOrder is the order of siblings for their choice, given their places in the list.
func (b balancer) firstOrder(set *siblings, i, j int) int {
	x, y := &set.list[i], &set.list[j]
	if b.leader && x.leader != y.leader {
		if x.leader {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(y.slicesWL, x.slicesWL), cmp.Compare(set.entropy[j], set.entropy[i]), cmp.Compare(x.order, y.order))
}

// measure computes how evenly the pods of each sibling's children are spread.
func (set *siblings) measure() {
	set.entropy = append(set.entropy[:0], make([]float64, len(set.list))...)
	for i, of := range set.list {
		pods, term := int64(0), 0.0 // of the child before: most are equal
		for _, k := range set.kidsOf(i) {
			if k.pods <= 0 {
				continue
			}
			if k.pods != pods {
				p := float64(k.pods) / float64(of.pods)
				pods, term = k.pods, p*math.Log2(p)
			}
			set.entropy[i] -= term
		}
	}
}

// even gives each chosen domain the threshold, and the rest in their order.
func (b balancer) even(list []candidate, threshold int64) (out []share) {
	left := b.g.needed - int64(len(list))*threshold
	if left < 0 {
		return nil
	}
	slices.SortFunc(list, b.withLeader)
	for i, c := range list {
		hosts, room := b.leader && i == 0, c.slices
		if hosts {
			room = c.slicesWL
		}
		extra := max(0, min(left, room-threshold))
		out = append(out, share{c.id, hosts, threshold + extra})
		left -= extra
	}
	if left > 0 {
		return nil
	}
	return out
}

// state is what a choice of domains has reached, and how.
type state struct {
	stateKey
	from    int // the state before, -1 for none
	through int // the domain by which it was reached
}

// stateKey is what a choice of domains has reached.
type stateKey struct {
	used       int
	leaderless bool // the leader has no host yet
	left       int64
}

// ends reports whether everything has a place.
func (k stateKey) ends() bool { return !k.leaderless && k.left <= 0 }

// search is the states of a choice that can be extended, in the order in which they were found.
type search struct {
	n      int // how many domains are to be chosen
	states []state
	seen   map[stateKey]bool
	best   state // of n domains that hold everything, the first one with the least waste; from is -1 without one
}

// extend adds the domain through to a state, unless its outcome was reached before.
func (s *search) extend(from int, leaderless bool, pods int64, through int) {
	k := s.states[from].stateKey
	k = stateKey{k.used + 1, leaderless, k.left - pods}
	switch {
	case k.used == s.n:
		if k.ends() && (s.best.from < 0 || k.left > s.best.left) {
			s.best = state{k, from, through}
		}
	case !k.ends() && !s.seen[k]:
		s.seen[k] = true
		s.states = append(s.states, state{k, from, through})
	}
}

// choose returns exactly as many domains as the greedy test takes, with the least waste; nil if it finds none. The order is one of places in
// the list.
func (b balancer) choose(list []candidate, order func(i, j int) int) (out []candidate) {
	places := make([]int, len(list))
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, order)
	s := search{n: b.test(list).domains, seen: map[stateKey]bool{}, best: state{from: -1}}
	s.states = []state{{stateKey{leaderless: b.leader, left: b.g.needed * b.g.size}, -1, 0}}
	tried := 0
	for _, d := range places {
		if tried += len(s.states); tried > mostExtensions {
			return nil
		}
		c := &list[d]
		for i, end := 0, len(s.states); i < end; i++ {
			leaderless := s.states[i].leaderless
			if leaderless && c.leader {
				s.extend(i, false, c.podsWL, d)
			}
			if c.slices > 0 {
				s.extend(i, leaderless, c.pods, d)
			}
		}
	}
	for at := s.best; at.from >= 0; at = s.states[at.from] {
		out = append(out, list[at.through])
	}
	return out
}
