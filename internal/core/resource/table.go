package resource

import (
	"slices"
	"strings"
)

// Pods is the name of the resource of which every pod needs one, and requests none. spec: 10 §4.2.
const Pods = "pods"

// ID is an interned resource name.
type ID int32

// FR is an interned (flavor, resource) pair: the unit that quota is counted in. A number below 0
// is a measure: an amount of another dimension of capacity than quota, see Table.SetMeasure.
type FR int32

// Pair is the names of an FR.
type Pair struct {
	Flavor, Resource string
}

// PairNames are the names of FRs and of measures. The names in a Table grow with it.
type PairNames struct {
	pairs    []Pair // by FR
	measures []Pair // the names of the measures, by −1−FR or, if there are only some, in their order
	only     []FR   // these, sorted; nil for all
}

// NamesOf returns names of FRs from 0.
func NamesOf(pairs []Pair) *PairNames { return &PairNames{pairs: pairs} }

// Table interns resource names and (flavor, resource) pairs. Numbers are given in
// order of first use and never taken back, so they can index dense arrays.
type Table struct {
	PairNames
	ids    map[string]ID
	names  []string
	frs    map[Pair]FR
	of     []ID       // the resource of each pair
	frozen *PairNames // the result of Frozen, while it is up to date
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{ids: map[string]ID{}, frs: map[Pair]FR{}}
}

// ID returns the number of a resource name, a new one at its first use.
func (t *Table) ID(name string) ID {
	if id, ok := t.ids[name]; ok {
		return id
	}
	id := ID(len(t.names))
	t.ids[name] = id
	t.names = append(t.names, name)
	return id
}

// MaxRequested bounds the names that workloads alone bring to a table. They choose them freely, and a name stays as long as the table.
const MaxRequested = 1 << 16

// Beyond stands for all names that come after these. It is no valid name, so no queue covers it and no node offers it. A workload that got it
// keeps it until its definition changes, also if a queue brings the name later.
const Beyond = "another resource"

// Requested returns the number of a resource that a workload requests.
func (t *Table) Requested(name string) ID {
	if _, known := t.ids[name]; !known && len(t.names) >= MaxRequested {
		name = Beyond
	}
	return t.ID(name)
}

// Name returns the resource's name.
func (t *Table) Name(id ID) string { return t.names[id] }

// IDs returns how many resource names there are; every ID is below it.
func (t *Table) IDs() int { return len(t.names) }

// FR returns the number of a pair, a new one at its first use.
func (t *Table) FR(flavor, resource string) FR {
	p := Pair{flavor, resource}
	if fr, ok := t.frs[p]; ok {
		return fr
	}
	fr := FR(len(t.pairs))
	t.frs[p] = fr
	t.pairs, t.frozen = append(t.pairs, p), nil
	t.of = append(t.of, t.ID(resource))
	return fr
}

// SetMeasure sets the name of a measure, for texts. Package ledger numbers them.
func (t *Table) SetMeasure(fr FR, name Pair) {
	for int(-1-fr) >= len(t.measures) {
		t.measures = append(t.measures, Pair{})
	}
	t.measures[-1-fr] = name
}

// Frozen returns the names of today, but for measures, for readers in other goroutines: they never change.
func (t *Table) Frozen() *PairNames {
	if t.frozen == nil {
		t.frozen = &PairNames{pairs: slices.Clip(t.pairs)}
	}
	return t.frozen
}

// FrozenWith returns Frozen with the names of the measures among some FRs, which are sorted and do not change: the names of all measures are
// as many as all shapes of pods that wait.
func (t *Table) FrozenWith(frs []FR) *PairNames {
	n, _ := slices.BinarySearch(frs, 0)
	if n == 0 {
		return t.Frozen()
	}
	out := &PairNames{pairs: slices.Clip(t.pairs), only: frs[:n], measures: make([]Pair, n)}
	for i, fr := range out.only {
		out.measures[i] = t.Pair(fr)
	}
	return out
}

// Names returns the resource names in the order of their numbers. It never changes, and must not be modified.
func (t *Table) Names() []string { return slices.Clip(t.names) }

// Pairs returns the pairs in the order of their numbers. It never changes, and must not be modified.
func (t *Table) Pairs() []Pair { return slices.Clip(t.pairs) }

// Ref is Pair without a copy: not to be modified, and always valid.
func (n *PairNames) Ref(fr FR) *Pair {
	if fr < 0 {
		at := int(-1 - fr)
		if n.only != nil {
			at, _ = slices.BinarySearch(n.only, fr)
		}
		return &n.measures[at]
	}
	return &n.pairs[fr]
}

// Pair returns the pair of fr, the name of a measure.
func (n *PairNames) Pair(fr FR) Pair { return *n.Ref(fr) }

// ResourceOf returns the number of fr's resource: pairs of one resource share it.
func (t *Table) ResourceOf(fr FR) ID { return t.of[fr] }

// Len returns how many pairs there are; every FR is below it.
func (t *Table) Len() int { return len(t.pairs) }

// Entry is an amount of one FR.
type Entry struct {
	FR     FR
	Amount Amount
}

// Vector is a sparse set of amounts, sorted by FR, one entry an FR. The zero value
// is an empty vector.
type Vector []Entry

// Plus returns v with amount added at fr; v's own array is not shared.
func (v Vector) Plus(fr FR, amount Amount) Vector {
	i, found := slices.BinarySearchFunc(v, fr, func(e Entry, fr FR) int { return int(e.FR) - int(fr) })
	if found {
		out := slices.Clone(v)
		out[i].Amount = out[i].Amount.Add(amount)
		return out
	}
	return slices.Insert(slices.Clone(v), i, Entry{fr, amount})
}

// Add returns v with amount added at fr, in v's own memory if there is room.
func (v Vector) Add(fr FR, amount Amount) Vector {
	i := 0
	for i < len(v) && v[i].FR < fr {
		i++
	}
	if i < len(v) && v[i].FR == fr {
		v[i].Amount = v[i].Amount.Add(amount)
		return v
	}
	return slices.Insert(v, i, Entry{fr, amount})
}

// Sum returns v with all of o added, in v's own memory if there is room.
func (v Vector) Sum(o Vector) Vector {
	for _, e := range o {
		v = v.Add(e.FR, e.Amount)
	}
	return v
}

// Beyond returns the amounts by which v exceeds o; v's own array is not shared.
func (v Vector) Beyond(o Vector) Vector {
	var out Vector
	for _, e := range v {
		if more := e.Amount.Sub(o.Of(e.FR)); more > 0 {
			out = append(out, Entry{e.FR, more})
		}
	}
	return out
}

// Of returns the amount at fr, 0 if there is none.
func (v Vector) Of(fr FR) Amount {
	for _, e := range v {
		if e.FR == fr {
			return e.Amount
		}
	}
	return 0
}

// Format writes the vector as "flavor/resource=amount", sorted by name.
func (v Vector) Format(t *Table) string {
	parts := make([]string, 0, len(v))
	for _, e := range v {
		p := t.Pair(e.FR)
		parts = append(parts, p.Flavor+"/"+p.Resource+"="+e.Amount.Format(p.Resource))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}
