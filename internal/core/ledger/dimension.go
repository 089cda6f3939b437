package ledger

import (
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
)

// Dimension is a kind of capacity besides quota. It keeps its figures as numbered amounts, and
// decides alone how the parts of usages change them: the ledger calls it with the parts that are
// its own, and undoes it in a rollback.
//
// A head that quota admits and a dimension refuses stays active: it is evaluated again after every
// change in its cohort tree, as there are no wake conditions but for quota.
type Dimension interface {
	// Charge adds p, for a workload of the node, and Release is its inverse. Either passes each
	// figure to undo before it changes it.
	Charge(n quota.Node, p Part, undo Undo)
	Release(n quota.Node, p Part, undo Undo)
	// Fits reports whether all of p can be charged now, for a workload of the node.
	Fits(n quota.Node, p Part) bool
	// Restore sets a figure back to a former value.
	Restore(figure int, was resource.Amount)
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
