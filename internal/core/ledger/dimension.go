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
	// Measure returns the present amount of a measure, and AtMost a bound of it that costs less.
	Measure(number int) resource.Amount
	AtMost(number int) resource.Amount
	// MeasureName returns the name of a measure, for texts.
	MeasureName(number int) resource.Pair
	// Forget frees the number of a measure that no workload waits for.
	Forget(number int)
	// Raises reports whether the release of p may raise a measure.
	Raises(p Part, number int) bool
	// Remember returns a part as data, and Recall makes a part of it, also in another ledger with the
	// same resources.
	Remember(p Part) []Item
	Recall([]Item) Part
}

// Item is an amount of a part as data.
type Item struct {
	Of, At   string // of what, and where: names of the dimension
	Resource resource.ID
	Amount   resource.Amount
}

// Remember returns u, but for its quota, as data: the items of each dimension.
func (l *Ledger) Remember(u Usage) (items [][]Item) {
	for key, p := range u.parts() {
		for len(items) <= int(key) {
			items = append(items, nil)
		}
		items[key] = l.rest[key].Remember(p)
	}
	return items
}

// Recall returns u with the parts that Remember returned as data.
func (l *Ledger) Recall(u Usage, items [][]Item) Usage {
	for key, of := range items {
		if len(of) > 0 && key < len(l.rest) {
			u = u.With(Key(key), l.rest[key].Recall(of))
		}
	}
	return u
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
	at := len(l.measures)
	if len(l.known) < at {
		at = slices.IndexFunc(l.measures, MeasureID.isFree)
	}
	return l.setMeasure(at, id)
}

func (l *Ledger) setMeasure(at int, id MeasureID) resource.FR {
	fr := resource.FR(-1 - at)
	l.table.SetMeasure(fr, l.rest[id.Of].MeasureName(id.Number))
	if at == len(l.measures) {
		l.measures = append(l.measures, id)
	}
	l.measures[at], l.known[id] = id, fr
	return fr
}

// freeMeasure is in the place of a measure that was forgotten.
var freeMeasure = MeasureID{Of: -1}

func (id MeasureID) isFree() bool { return id == freeMeasure }

// RestoreMeasures gives a ledger without measures the measures of another one, as Measures returns them.
func (l *Ledger) RestoreMeasures(all []MeasureID) {
	l.known = map[MeasureID]resource.FR{}
	for at, id := range all {
		if id.isFree() {
			l.measures = append(l.measures, id)
			continue
		}
		l.setMeasure(at, id)
	}
}

// ForgetMeasures forgets all measures but the live ones. Their numbers are used again.
func (l *Ledger) ForgetMeasures(live func(resource.FR) bool) {
	for at, id := range l.measures {
		if fr := resource.FR(-1 - at); !id.isFree() && !live(fr) {
			l.rest[id.Of].Forget(id.Number)
			delete(l.known, id)
			l.measures[at] = freeMeasure
		}
	}
}

// Measures returns the measures, the one of FR −1 first, for RestoreMeasures.
func (l *Ledger) Measures() []MeasureID { return slices.Clone(l.measures) }

// KnownMeasures returns how many measures are known.
func (l *Ledger) KnownMeasures() int { return len(l.known) }

// MeasureAt returns what is known about an FR below 0, and whether there is one with such a number: a number may be free.
func (l *Ledger) MeasureAt(fr resource.FR) (id MeasureID, ok bool) {
	if at := int(-1 - fr); at < len(l.measures) {
		return l.measures[at], true
	}
	return freeMeasure, false
}

// measure returns the present amount of a measure.
func (l *Ledger) measure(fr resource.FR) resource.Amount {
	id := l.measures[-1-fr]
	return l.rest[id.Of].Measure(id.Number)
}

// AtMost returns a bound of the amount of a measure, which costs less than Available.
func (l *Ledger) AtMost(fr resource.FR) resource.Amount {
	id := l.measures[-1-fr]
	return l.rest[id.Of].AtMost(id.Number)
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
