package ledger

import (
	"iter"
	"slices"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
)

// Dimension is a kind of capacity besides quota. It keeps its figures as numbered amounts, and
// decides alone how the parts of usages change them: the ledger calls it with the parts that are
// its own, and undoes it in a rollback. Its capacity may be shared by all cohort trees.
//
// What a refused workload waits for is a measure: a numbered amount that has to reach a threshold
// before another evaluation can succeed. A wake condition on a measure is one like on quota.
type Dimension interface {
	// Charge adds p, for a workload of the node, and Release is its inverse. Either passes each
	// figure to undo before it changes it.
	Charge(n quota.Node, p Part, undo Undo)
	Release(n quota.Node, p Part, undo Undo)
	// Fits reports whether all of p can be charged now, for a workload of the node.
	Fits(n quota.Node, p Part) bool
	// Restore sets a figure back to a former value.
	Restore(figure int, was resource.Amount)
	// Measure returns the present amount of a measure.
	Measure(number int) resource.Amount
	// MeasureName returns the name of a measure, for texts.
	MeasureName(number int) resource.Pair
	// Raises reports whether the release of p may raise a measure.
	Raises(p Part, number int) bool
}

// Part is what a Usage has of one dimension. It is immutable.
type Part interface {
	// Beyond returns the part past o, which is of the same dimension, or nil if nothing is.
	Beyond(o Part) Part
	// Equal reports whether o, of the same dimension, is the same amount.
	Equal(o Part) bool
}

// Key is the number of a dimension in a ledger.
type Key int

// Extend adds a dimension to a ledger in which it has no charges yet.
func (l *Ledger) Extend(d Dimension) Key {
	l.rest = append(l.rest, d)
	return Key(len(l.rest) - 1)
}

// MeasureID names a measure: one of a dimension, by its number there.
type MeasureID struct {
	Of     Key
	Number int
}

// Measure returns the number under which wake conditions and Available know a measure.
func (l *Ledger) Measure(id MeasureID) resource.FR {
	if fr, known := l.known[id]; known {
		return fr
	}
	if l.known == nil {
		l.known = map[MeasureID]resource.FR{}
	}
	fr := l.table.AddMeasure(l.rest[id.Of].MeasureName(id.Number))
	l.measures, l.known[id] = append(l.measures, id), fr
	return fr
}

// Measures returns the known measures, the one of FR −1 first: a ledger in which Measure is called
// with them in this order knows them by the same numbers. Not to be modified.
func (l *Ledger) Measures() []MeasureID { return slices.Clip(l.measures) }

// measure returns the present amount of a measure.
func (l *Ledger) measure(fr resource.FR) resource.Amount {
	id := l.measures[-1-fr]
	return l.rest[id.Of].Measure(id.Number)
}

// Raised yields the measures that the release of u may have raised.
func (l *Ledger) Raised(u Usage) iter.Seq[resource.FR] {
	return func(yield func(resource.FR) bool) {
		for key, p := range u.parts() {
			for i, id := range l.measures {
				if id.Of == key && l.rest[key].Raises(p, id.Number) && !yield(resource.FR(-1-i)) {
					return
				}
			}
		}
	}
}

// Undo takes the former values of a dimension's figures.
type Undo struct {
	in *Ledger
	of Key
}

// undo is the former value of a figure.
type undo struct {
	of     Key
	figure int
	was    resource.Amount
}

// Note notes the value of a figure that is about to change.
func (u Undo) Note(figure int, was resource.Amount) {
	if u.in.quota.Speculates() {
		u.in.log = append(u.in.log, undo{u.of, figure, was})
	}
}

func (l *Ledger) chargeRest(n quota.Node, u Usage) {
	for key, p := range u.parts() {
		l.rest[key].Charge(n, p, Undo{l, key})
	}
}

func (l *Ledger) releaseRest(n quota.Node, u Usage) {
	for key, p := range u.parts() {
		l.rest[key].Release(n, p, Undo{l, key})
	}
}

func (l *Ledger) fitsRest(n quota.Node, u Usage) bool {
	for key, p := range u.parts() {
		if !l.rest[key].Fits(n, p) {
			return false
		}
	}
	return true
}
