package topology

import (
	"slices"
	"strconv"
	"strings"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Measured is a measure: how much of a group of pod sets the domains hold. It is one more than the slices of the domain
// that holds most or, where several domains will do, of all domains together; 0 if a leader fits nowhere. A group whose
// needs it does not reach has no room; one whose needs it reaches most often has.
type Measured struct {
	Key   string   // the same for equal groups; "" for a number that is free
	Pods  []PodSet // of the group
	Empty bool     `json:",omitempty"` // the usage of placed pods is ignored
}

// measures are the measures by number.
type measures struct {
	all    []Measured
	groups [][]group // that the pods of each are; nil is not known yet
	bounds []bound
	known  map[string]int
}

// bound is what a measure does not exceed: by an edit of the tree, or by places that are freed later, it may.
type bound struct {
	tree   *tree // nil for no bound
	cursor int   // the position in the tree's journal up to which it counts
	amount resource.Amount
	filter *filter // of the nodes that count, without results; nil for all

	exact resource.Amount // the measure
	at    int             // the position in the journal for which it is exact
}

// put numbers a measure. A free number is used again, the lowest first.
func (m *measures) put(of Measured) int {
	number, known := m.known[of.Key]
	if known {
		return number
	}
	number = -1
	if len(m.known) < len(m.all) {
		number = slices.IndexFunc(m.all, func(m Measured) bool { return m.Key == "" })
	}
	if number < 0 {
		number = len(m.all)
		m.all, m.groups, m.bounds = append(m.all, Measured{}), append(m.groups, nil), append(m.bounds, bound{})
	}
	if m.known == nil {
		m.known = map[string]int{}
	}
	m.all[number], m.known[of.Key] = of, number
	return number
}

// MeasureOf returns the number of the measure that a group of pod sets has to wait for, and the amount that it needs;
// false if only another topology can help.
func (s *Space) MeasureOf(pods []PodSet, empty bool) (number int, needed resource.Amount, ok bool) {
	groups := groupsOf(pods)
	if len(groups) != 1 {
		return 0, 0, false
	}
	g := &groups[0]
	if f := s.resolve(g); f != nil && f.Cause != NoDomains {
		return 0, 0, false
	}
	// Levels have numbers in what follows, which an edit of the topology may give to others.
	key := g.tree.flavor + " " + strings.Join(g.tree.def.Levels, ",") + " " +
		strconv.Itoa(g.requested) + strconv.FormatBool(g.required) + g.tree.shapeOf(g, empty).key
	return s.measures.put(Measured{Key: key, Pods: pods, Empty: empty}), resource.Amount(g.needed) + 1, true
}

// Measured returns the measures by number, which RestoreMeasures takes. Not to be modified.
func (s *Space) Measured() []Measured { return slices.Clone(s.measures.all) }

// RestoreMeasures gives a Space without measures the measures of another one.
func (s *Space) RestoreMeasures(all []Measured) {
	s.measures = measures{all: slices.Clone(all), groups: make([][]group, len(all)), bounds: make([]bound, len(all)), known: map[string]int{}}
	for number, m := range all {
		if m.Key != "" {
			s.measures.known[m.Key] = number
		}
	}
}

// Measure returns the present amount of a measure.
func (d Dimension) Measure(number int) resource.Amount {
	s, m := d.s, &d.s.measures.all[number]
	was := s.measures.bounds[number]
	if t := was.tree; t != nil && s.trees[t.flavor] == t && was.at == t.base+len(t.journal) {
		return was.exact
	}
	s.measures.bounds[number] = bound{}
	groups := s.measures.groups[number]
	if groups == nil {
		groups = groupsOf(m.Pods)
		s.measures.groups[number] = groups
	}
	if len(groups) != 1 {
		return 0
	}
	g := &groups[0]
	if s.resolve(g) != nil {
		return 0
	}
	t := g.tree
	t.number()
	sh := t.shapeOf(g, m.Empty)
	exact, most := t.measure(g, sh)
	if was.tree != t {
		was.filter = sh.filter.withoutResults()
	}
	end := t.base + len(t.journal)
	s.measures.bounds[number] = bound{tree: t, cursor: end, amount: most, filter: was.filter, exact: exact, at: end}
	return exact
}

// measure returns the amount of the measure of a group, and a bound of it for any leader.
func (t *tree) measure(g *group, sh *shape) (exact, most resource.Amount) {
	level := g.requested
	if !g.required {
		level = 0
	}
	best, sum, leader := resource.Amount(0), resource.Amount(1), g.leader == nil
	for id := range t.levels[level].All {
		if !t.levels[level].All[id].live {
			continue
		}
		c := &sh.counts[level][id]
		most, sum = max(most, resource.Amount(c.slices)+1), sum+resource.Amount(c.slices)
		if g.leader == nil || c.leader {
			leader, best = true, max(best, resource.Amount(c.slicesWL)+1)
		}
	}
	if !g.required {
		most, best = sum, sum
	}
	if !leader {
		best = 0
	}
	return best, most
}

// AtMost returns a bound of a measure: the amount at the last evaluation, and what fits on the leaves that have changed since, whatever
// leader there is. Beyond the shapes whose counts are kept, the measure itself costs a look at every leaf.
func (d Dimension) AtMost(number int) resource.Amount {
	s, b := d.s, &d.s.measures.bounds[number]
	t := b.tree
	if t == nil || s.trees[t.flavor] != t || b.cursor < t.base {
		return resource.Unlimited
	}
	g, empty := &s.measures.groups[number][0], s.measures.all[number].Empty
	for _, leaf := range t.changedSince(b.cursor, empty) {
		pods := t.podsOn(leaf, g.workers.Requests, b.filter, empty)
		switch {
		case pods == 0:
		case g.required && g.requested == t.lowest():
			b.amount = max(b.amount, resource.Amount(pods/g.size)+1)
		case g.size > 1: // places that complete a slice, and at each level what stays together
			b.amount = b.amount.Add(resource.Amount(pods/g.size + int64(len(t.levels))))
		default:
			b.amount = b.amount.Add(resource.Amount(pods))
		}
	}
	b.cursor = t.base + len(t.journal)
	return b.amount
}

// changedSince returns the leaves that have changed since a position in the journal, by more than usage or in any way. Measures are asked
// for in turn: the answer is kept for the next one.
func (t *tree) changedSince(cursor int, capacity bool) []int32 {
	sc, end := &t.s.scratch, t.base+len(t.journal)
	if cursor == end {
		return nil
	}
	if ask := (stretch{t, cursor, end, capacity, sc.round}); sc.stretch != ask {
		sc.begin(t)
		for _, e := range t.journal[cursor-t.base:] {
			if !capacity || !e.usage() {
				sc.touch(e.level(), e.domain())
			}
		}
		t.read = end
		ask.round = sc.round
		sc.stretch = ask
	}
	return sc.touched[t.lowest()]
}

// stretch is a part of the journal of a tree, whose leaves are the touched ones of a round.
type stretch struct {
	tree     *tree
	from, to int
	capacity bool // without the changes of usage alone
	round    uint64
}

// podsOn returns how many pods fit on a leaf, without the usage of placed pods if it is taken for empty. A filter, nil for none, counts where
// it excludes all nodes of the leaf.
func (t *tree) podsOn(leaf int32, requests []workload.Request, f *filter, empty bool) int64 {
	s, lf := t.s, &t.leaves[leaf]
	if lf.active == 0 {
		return 0
	}
	capacity := row(t.capacity, leaf, s.stride)
	if len(lf.nodes) > 1 {
		capacity = t.mostOf(lf)
	}
	var used []resource.Amount
	if !empty {
		used = row(s.used, lf.account, s.stride)
	}
	pods := int64(plenty)
	for _, r := range requests {
		if r.Amount <= 0 {
			continue
		}
		room := resource.Amount(0)
		if c := s.known(r.Resource); c >= 0 {
			room = capacity[c]
			if used != nil {
				room = room.Sub(used[c])
			}
		}
		pods = min(pods, int64(max(0, room)/r.Amount))
	}
	if pods > 0 && f != nil && !slices.ContainsFunc(lf.nodes, func(slot int32) bool { return f.evaluate(&s.nodes.All[slot]).verdict == passes }) {
		return 0
	}
	return pods
}

// mostOf returns the most capacity that some of the nodes of a leaf have together: foreign pods may have more of a node than it offers.
func (t *tree) mostOf(lf *leaf) []resource.Amount {
	most := make([]resource.Amount, t.s.stride)
	for _, slot := range lf.nodes {
		if n := &t.s.nodes.All[slot]; n.active() && t.counts(lf, n) {
			for c, amount := range row(t.s.net, slot, t.s.stride) {
				most[c] = most[c].Add(max(0, amount))
			}
		}
	}
	return most
}

// MeasureName names the flavor and the level of a measure: the places that are free, or all that there are.
func (d Dimension) MeasureName(number int) resource.Pair {
	p, name := &d.s.measures.all[number].Pods[0], "places"
	if d.s.measures.all[number].Empty {
		name = "capacity"
	}
	if p.Required != "" {
		name += " in one " + p.Required
	}
	return resource.Pair{Flavor: p.Flavor, Resource: name}
}

// Raises reports whether the release of a part may raise a measure: it frees nodes of the measure's tree.
func (d Dimension) Raises(p ledger.Part, number int) bool {
	m := &d.s.measures.all[number]
	if m.Empty || len(m.Pods) == 0 {
		return false
	}
	for _, h := range p.(*part).entries {
		if h.flavor == m.Pods[0].Flavor {
			return true
		}
		for _, at := range d.s.accounts.All[d.s.find(&h)].leaves {
			if at.tree.flavor == m.Pods[0].Flavor {
				return true
			}
		}
	}
	return false
}

// Forget frees the number of a measure that nothing waits for.
func (d Dimension) Forget(number int) {
	m := &d.s.measures
	delete(m.known, m.all[number].Key)
	m.all[number], m.groups[number], m.bounds[number] = Measured{}, nil, bound{}
}

// Remember returns the amounts of a part by flavor and leaf.
func (d Dimension) Remember(p ledger.Part) (items []ledger.Item) {
	for _, h := range p.(*part).entries {
		for _, r := range h.amounts {
			items = append(items, ledger.Item{Of: h.flavor, At: h.key.flavor + "\x00" + h.key.leaf, Resource: r.Resource, Amount: r.Amount})
		}
	}
	return items
}

// Recall is the inverse of Remember.
func (d Dimension) Recall(items []ledger.Item) ledger.Part {
	p := &part{}
	for i, item := range items {
		if i == 0 || items[i-1].Of != item.Of || items[i-1].At != item.At {
			of, leaf, _ := strings.Cut(item.At, "\x00")
			key := accountKey{of, leaf}
			p.entries = append(p.entries, holding{flavor: item.Of, key: key, account: d.s.account(key)})
		}
		h := &p.entries[len(p.entries)-1]
		h.amounts = append(h.amounts, workload.Request{Resource: item.Resource, Amount: item.Amount})
	}
	return p
}
