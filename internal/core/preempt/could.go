package preempt

import (
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
)

// Could tells whether preemption might make amount of fr available to the preemptor:
// false is certain, true is worth a search. It looks at no candidate but the first of
// the own queue, and costs as much as there are queues in the tree. Requests and Need
// are not read.
func (s *Search) Could(fr resource.FR, amount resource.Amount) bool {
	f := s.Quota
	if f.Root(s.Node) == quota.None {
		return false
	}
	short := amount.Sub(f.Available(s.Node, fr))
	own := resource.Amount(0)
	if s.mayAsk() {
		own = f.Usage(s.Node, fr)
	}
	if short = short.Sub(own); short <= 0 {
		return true
	}
	parent := f.Parent(s.Node)
	if s.Policy.Reclaim == Never || parent == quota.None {
		return false
	}
	// Unless the request fits in the quota of a subtree, or it may borrow meanwhile, others
	// have to give something back only for what the queue owns itself. spec: 10 §4.7.4.
	_, fits := f.Level(s.Node, fr, amount)
	if s.Fair == nil && !s.Policy.BorrowWithin && !fits &&
		f.Nominal(s.Node, fr) < f.Usage(s.Node, fr).Sub(own).Add(amount) {
		return false
	}
	below := s.Node
	for at := parent; at != quota.None; at = f.Parent(at) {
		if short = s.given(at, below, fr, short); short <= 0 {
			return true
		}
		below = at
	}
	return false
}

// mayAsk tells whether anybody in the own queue may be of a priority that can be asked.
func (s *Search) mayAsk() bool {
	h := s.Holders(s.Node)
	if h == nil {
		return false
	}
	for _, part := range []*sorted{&h.leaving, &h.staying} {
		if len(part.chunks) == 0 {
			continue
		}
		lowest := part.chunks[0][0].Priority
		switch s.Policy.Within {
		case Any:
			return true
		case LowerPriority:
			if lowest < s.Preemptor.Priority {
				return true
			}
		case LowerOrNewerEqualPriority:
			if lowest <= s.Preemptor.Priority {
				return true
			}
		case Never:
		}
	}
	return false
}

// given takes off short what the queues below at hold that use more than their own of
// fr, leaving out the part below skip.
func (s *Search) given(at, skip quota.Node, fr resource.FR, short resource.Amount) resource.Amount {
	f := s.Quota
	for _, kid := range f.Kids(at) {
		switch {
		case short <= 0:
			return short
		case kid == skip:
		case f.IsCohort(kid) && s.Fair != nil: // it may borrow of another FR, and be gone into for that
			short = s.given(kid, skip, fr, short)
		case !f.Borrowing(kid, fr, 0):
		case f.IsCohort(kid):
			short = s.given(kid, skip, fr, short)
		default:
			short = short.Sub(f.Usage(kid, fr))
		}
	}
	return short
}
