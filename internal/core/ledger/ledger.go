// Package ledger counts everything that workloads hold: quota, and every other dimension of
// capacity. The engine charges, releases, asks and speculates here, and nowhere below.
//
// Quota is built in, and its figures - levels, shares, nominal quota - are questions to
// Ledger.Quota. A further dimension is a file in this package: a Dimension that Extend adds,
// and a Part of a Usage for each workload. In a world without one, a Usage is its quota and a
// nil pointer, and no call goes through an interface.
//
// The contract, over all dimensions together:
//
//   - Release is the inverse of Charge, in any order, as long as no sum saturates.
//   - Rollback leaves every figure as it was at its Mark, whatever happened in between.
//   - Fits holds exactly when every dimension has room for its part of the usage.
//   - Return is the Release that lasts: sums that saturated are right again afterwards, and
//     searches that stopped in the queue start over.
package ledger

import (
	"iter"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
)

// Ledger is the charges of all workloads. It is not safe for concurrent use.
type Ledger struct {
	// Quota is the nodes, their quota, and the questions about it. It charges nothing.
	Quota *quota.Forest

	quota    quota.Dimension
	rest     []Dimension // the dimensions besides quota, by Key
	log      []undo      // of rest
	table    *resource.Table
	measures []MeasureID // by −1−FR
	known    map[MeasureID]resource.FR
}

// New returns an empty ledger that counts the FRs of t.
func New(t *resource.Table) *Ledger {
	l := &Ledger{quota: quota.NewDimension(t), table: t}
	l.Quota = &l.quota.Forest
	return l
}

// Charge adds u to node n. In quota, the part past what n guarantees to itself is added to its
// ancestors too. spec: 10 §4.3.2.
func (l *Ledger) Charge(n quota.Node, u Usage) {
	l.quota.Charge(n, u.Quota)
	if u.rest != nil {
		l.chargeRest(n, u)
	}
}

// Release is the inverse of Charge.
func (l *Ledger) Release(n quota.Node, u Usage) {
	l.quota.Release(n, u.Quota)
	if u.rest != nil {
		l.releaseRest(n, u)
	}
}

// Return releases u for good: its workload has left n, where the remaining usages stay. Sums that
// saturated are counted again from those, and the generation of n grows: Release keeps it, since
// a speculation must not be seen. spec: 10 §4.3.6.
func (l *Ledger) Return(n quota.Node, u Usage, remaining iter.Seq[Usage]) {
	if l.quota.Saturated(n, u.Quota) {
		var all resource.Vector
		for o := range remaining {
			all = all.Sum(o.Quota)
		}
		l.quota.Recount(n, all)
	} else {
		l.quota.Release(n, u.Quota)
	}
	l.quota.Bump(n)
	if u.rest != nil {
		l.releaseRest(n, u)
	}
}

// Fits reports whether all of u can be charged to n now. Nothing fits below a cycle.
func (l *Ledger) Fits(n quota.Node, u Usage) bool {
	return l.quota.Fits(n, u.Quota) && (u.rest == nil || l.fitsRest(n, u))
}

// Available returns how much quota of fr a workload of n can still take, own and borrowed, never
// below 0, and nothing below a cycle; or the amount of a measure. spec: 10 §4.3.2.
func (l *Ledger) Available(n quota.Node, fr resource.FR) resource.Amount {
	if fr < 0 {
		return l.measure(fr)
	}
	return l.quota.Available(n, fr)
}

// Mark is a point that Rollback returns to.
type Mark struct {
	quota quota.Mark
	rest  int // the length of Ledger.log
}

// Mark begins a speculation. Marks nest; each must be rolled back, last first. Nodes and quota
// must not be edited in between.
func (l *Ledger) Mark() Mark { return Mark{l.quota.Mark(), len(l.log)} }

// Rollback undoes every charge and release since m, in all dimensions.
func (l *Ledger) Rollback(m Mark) {
	l.quota.Rollback(m.quota)
	for i := len(l.log) - 1; i >= m.rest; i-- {
		u := l.log[i]
		l.rest[u.of].Restore(u.figure, u.was)
	}
	l.log = l.log[:m.rest]
}
