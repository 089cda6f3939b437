package order

import (
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
)

// Measures calls visit with every measure in the wants of the line's classes, with repeats: also of active classes, which
// keep the wants of their last evaluation.
func (p *Pending) Measures(visit func(resource.FR)) {
	p.each(func(c *class) {
		if c.pattern == nil {
			return
		}
		for i := range c.pattern.each {
			if fr := c.pattern.each[i].fr; fr < 0 {
				visit(fr)
			}
		}
	})
}

// releasedMeasures returns the released FRs that are measures.
func (p *Pending) releasedMeasures() []resource.FR {
	n, _ := slices.BinarySearch(p.released, 0)
	return p.released[:n]
}

// promised is the amount of a measure, or a bound of it.
type promised struct {
	amount resource.Amount
	exact  bool
}

// searchMeasures searches the entries on measures. A measure may cost as much as a placement, its bound does not: the first entry by the
// bounds is the first one, if its measure is enough, and no other has to be known.
func (b *best) searchMeasures(measures []resource.FR, now Figures) {
	p := b.p
	known := p.patterns.promised[:0]
	for _, fr := range measures {
		most := none
		if s := p.wakeIndex(fr); s != nil && !s.isEmpty() {
			most = now.AtMost(fr)
		}
		known = append(known, promised{amount: most})
	}
	p.patterns.promised = known
	for {
		first, of := best{p: p, bound: b.bound, bounded: b.bounded}, -1
		for i, fr := range measures {
			if known[i].amount == none {
				continue
			}
			if first.searchIndex(p.wakeIndex(fr), known[i].amount); first.found && first.fr == fr {
				of = i
			}
		}
		if of < 0 || (b.found && b.precedes(&first)) {
			return
		}
		if known[of].exact {
			*b = first
			return
		}
		known[of] = promised{now.Available(measures[of]), true}
	}
}

// precedes reports whether the entry comes before another one.
func (b *best) precedes(o *best) bool {
	return b.standing < o.standing || (b.standing == o.standing && b.p.inLine(&b.indexEntry, &o.indexEntry) < 0)
}
