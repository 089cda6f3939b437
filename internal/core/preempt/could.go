package preempt

import (
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
)

// Could reports whether preemption might make amount of fr available to the preemptor:
// false is certain, true is worth a search. Requests and Need are not read.
func (s *Search) Could(fr resource.FR, amount resource.Amount) bool {
	if s.Quota.Root(s.Node) == quota.None {
		return false
	}
	short := amount.Sub(s.Ledger.Available(s.Node, fr))
	return s.UpperBound(fr, amount, short) >= short
}

// UpperBound returns how much of fr all victims together could free at most for a preemptor
// that requests amount of it, whatever else it requests. It stops counting at enough. It
// evaluates no candidate but the first of the own queue, and costs as much as there are queues
// in the tree. The preemptor's queue must not be below a cycle.
func (s *Search) UpperBound(fr resource.FR, amount, enough resource.Amount) resource.Amount {
	f := s.Quota
	own := resource.Amount(0)
	if s.hasCandidates() {
		own = f.Usage(s.Node, fr)
	}
	if own >= enough || !s.Policy.Reclaims() {
		return own
	}
	// Unless the request fits in the quota of a subtree, or it may borrow meanwhile, others
	// have to give something back only for what the queue owns itself. spec: 10 §4.7.4.
	_, fits := f.Level(s.Node, fr, amount)
	if !fits && !s.Policy.WhileBorrowing(s.Fair) && f.Nominal(s.Node, fr) < f.Usage(s.Node, fr).Sub(own).Add(amount) {
		return own
	}
	freed, below := own, s.Node
	for at := f.Parent(s.Node); at != quota.None && freed < enough; at = f.Parent(at) {
		freed = s.borrowers(at, below, fr, freed, enough)
		below = at
	}
	return freed
}

// hasCandidates reports whether a workload in the own queue has a priority that the policy allows.
func (s *Search) hasCandidates() bool {
	h := s.Holders(s.Node)
	if h == nil {
		return false
	}
	of := s.Policy.Candidates(SameQueue, s.Preemptor)
	for _, part := range []*sorted{&h.leaving, &h.staying} {
		if len(part.chunks) > 0 && !of.Ends(part.chunks[0][0]) {
			return true
		}
	}
	return false
}

// borrowers adds to freed the usage of fr of the queues below at that use more than their own
// quota of any FR, except the part below skip: a victim taken for another FR frees this one
// as well.
func (s *Search) borrowers(at, skip quota.Node, fr resource.FR, freed, enough resource.Amount) resource.Amount {
	f := s.Quota
	for _, kid := range f.Kids(at) {
		switch {
		case freed >= enough:
			return freed
		case kid == skip || !f.Borrows(kid):
		case f.IsCohort(kid):
			freed = s.borrowers(kid, skip, fr, freed, enough)
		default:
			freed = freed.Add(f.Usage(kid, fr))
		}
	}
	return freed
}
