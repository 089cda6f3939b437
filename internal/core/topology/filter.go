package topology

import (
	"maps"
	"slices"
	"strconv"

	"github.com/berth-project/berth/internal/core/workload"
)

// Preference is a term of preferred node affinity.
type Preference struct {
	Weight int32
	Term   workload.Term
}

// filter is the constraints of pods on nodes, with the results of matching by node. Equal constraints share one.
type filter struct {
	constraints workload.Constraints
	selector    []string // label, value, label, value…
	preferred   []Preference
	byName      bool // some term is about the names of nodes
	key         string
	shapes      int // that use it
	results     []match
}

// withoutResults returns the constraints alone, to evaluate.
func (f *filter) withoutResults() *filter {
	if f == nil {
		return nil
	}
	out := *f
	out.key, out.shapes, out.results = "", 0, nil
	return &out
}

// match is the result of a node, of a version of its labels and taints.
type match struct {
	version uint32
	score   int32 // the weights of the preferred terms that match
	verdict verdict
}

// verdict is why a node is excluded.
type verdict uint8

const (
	passes verdict = iota
	untolerated
	unselected
	averse // to the required affinity
)

// match returns the result of a node, from memory while its labels and taints are the same.
func (f *filter) match(s *Space, slot int32) match {
	for int(slot) >= len(f.results) {
		f.results = append(f.results, match{})
	}
	n := &s.nodes.All[slot]
	if m := f.results[slot]; m.version == n.version {
		return m
	}
	m := f.evaluate(n)
	m.version = n.version
	f.results[slot] = m
	return m
}

func (f *filter) evaluate(n *node) (m match) {
	if _, repelled := f.repelledBy(n); repelled {
		m.verdict = untolerated
		return m
	}
	for i := 0; i < len(f.selector); i += 2 {
		if value, ok := n.Labels[f.selector[i]]; !ok || value != f.selector[i+1] {
			m.verdict = unselected
			return m
		}
	}
	labels := n.Labels
	if f.byName {
		labels = maps.Clone(labels)
		labels[workload.NodeName] = n.Name
	}
	affine := func(t workload.Term) bool { return len(t) > 0 && t.Matches(labels) } // as in Kubernetes, an empty term is of no node
	if len(f.constraints.Affinity) > 0 && !slices.ContainsFunc(f.constraints.Affinity, affine) {
		m.verdict = averse
		return m
	}
	for _, p := range f.preferred {
		if p.Term.Matches(labels) {
			m.score += p.Weight
		}
	}
	return m
}

// repelledBy returns the first taint of a node that keeps the pods away.
func (f *filter) repelledBy(n *node) (workload.Taint, bool) {
	for _, taint := range n.Taints {
		tolerates := func(t workload.Toleration) bool { return t.Tolerates(taint) }
		if taint.Repels() && !slices.ContainsFunc(f.constraints.Tolerations, tolerates) {
			return taint, true
		}
	}
	return workload.Taint{}, false
}

// filterKey appends a text that is equal for equal filters alone. Where the lowest level is no hostname, only taints count.
func filterKey(b []byte, p *PodSet, hosts, affinity bool, keys []string) ([]byte, []string) {
	quote := func(values ...string) {
		for _, v := range values {
			b = strconv.AppendInt(b, int64(len(v)), 10)
			b = append(b, ':')
			b = append(b, v...)
		}
	}
	c := p.Constraints
	if c == nil {
		c = &workload.Constraints{}
	}
	b = append(b, 'T')
	for _, t := range c.Tolerations {
		quote(t.Key, t.Operator, t.Value, t.Effect)
	}
	if !hosts {
		return b, keys
	}
	keys = keys[:0]
	for k := range c.Selector { //berth:unordered sorted below
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = append(b, 'S')
	for _, k := range keys {
		quote(k, c.Selector[k])
	}
	term := func(t workload.Term) {
		for _, e := range t {
			quote(e.Key, string(e.Op))
			quote(e.Values...)
			b = append(b, ';')
		}
	}
	for _, t := range c.Affinity {
		b = append(b, 'A')
		term(t)
	}
	if affinity {
		for _, pref := range p.Prefers {
			b = strconv.AppendInt(append(b, 'P'), int64(pref.Weight), 10)
			b = append(b, ' ')
			term(pref.Term)
		}
	}
	return b, keys
}

// newFilter returns the filter of a key, which filterKey has made of p.
func newFilter(key string, p *PodSet, hosts, affinity bool, selected []string) *filter {
	f := &filter{key: key}
	if p.Constraints == nil {
		p = &PodSet{Constraints: &workload.Constraints{}, Prefers: p.Prefers}
	}
	f.constraints.Tolerations = p.Constraints.Tolerations
	if !hosts {
		return f
	}
	f.constraints = *p.Constraints
	for _, k := range selected {
		f.selector = append(f.selector, k, p.Constraints.Selector[k])
	}
	if affinity {
		f.preferred = p.Prefers
	}
	named := func(t workload.Term) bool {
		return slices.ContainsFunc(t, func(e workload.Expr) bool { return e.Key == workload.NodeName })
	}
	f.byName = slices.ContainsFunc(f.constraints.Affinity, named) ||
		slices.ContainsFunc(f.preferred, func(p Preference) bool { return named(p.Term) })
	return f
}
