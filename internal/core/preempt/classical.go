package preempt

import (
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// tier is a list of candidates; the lists are used in this order. spec: 10 §4.7.3.
type tier int8

const (
	hierarchical tier = iota // they use quota of a subtree that the request fits in
	priority                 // they are of other queues that borrow
	own
	tiers
)

// source is a queue with candidates, and the conditions on them.
type source struct {
	node  quota.Node
	below quota.Node // the common ancestor: every node under it must stay over nominal
	tier  tier
	start [parts]cursor // at its first candidates
}

// classical is spec 10 §4.7.
func (s *Search) classical() []Victim {
	s.findSources()
	if len(s.sources) == 0 {
		return nil
	}
	first, both := s.attempts()
	if victims := s.attempt(first); victims != nil || !both {
		return victims
	}
	return s.attempt(!first)
}

// findSources finds the queues with candidates. In the rest of the tree it goes from the
// nearest cohort up: while the request fits in the quota of a subtree around the preemptor,
// users of that quota outside the subtree are hierarchical, and have to return the quota that they
// borrowed. spec: 10 §4.7.2.
func (s *Search) findSources() {
	s.sources = s.sources[:0]
	if s.Policy.Reclaims() {
		s.rest = append(s.rest[:0], s.Requests.Quota...)
		advantage := s.inQuotaOf(s.Node, s.rest)
		s.leaveLocal(s.Node, s.rest)
		below := s.Node
		for at := s.Quota.Parent(s.Node); at != quota.None; at = s.Quota.Parent(at) {
			list := priority
			if advantage {
				list = hierarchical
			}
			s.subtree(at, at, below, list)
			advantage = advantage || s.inQuotaOf(at, s.rest)
			s.leaveLocal(at, s.rest)
			below = at
		}
	}
	if h := s.Holders(s.Node); h != nil {
		s.reach.Own = h.Len()
		s.source(s.Node, s.Node, own, h)
	}
}

// subtree visits the queues below at that use more than their own quota of something needed,
// except the part below skip, which was visited before.
func (s *Search) subtree(at, lca, skip quota.Node, list tier) {
	for _, kid := range s.Quota.Kids(at) {
		switch {
		case kid == skip || s.Quota.WithinNominal(kid, s.Need):
		case s.Quota.IsCohort(kid):
			s.subtree(kid, lca, skip, list)
		default:
			if h := s.holders(kid); h != nil {
				s.source(kid, lca, list, h)
			}
		}
	}
}

func (s *Search) source(n, lca quota.Node, list tier, h *Holders) {
	if start, found := s.startOf(n, h); found {
		s.sources = append(s.sources, source{node: n, below: lca, tier: list, start: start})
	}
}

func (s *Search) inQuotaOf(n quota.Node, v resource.Vector) bool {
	for _, e := range v {
		if s.Quota.Borrowing(n, e.FR, e.Amount) {
			return false
		}
	}
	return true
}

func (s *Search) leaveLocal(n quota.Node, v resource.Vector) {
	for i := range v {
		v[i].Amount = max(0, v[i].Amount.Sub(s.Quota.Local(n, v[i].FR)))
	}
}

// attempts reports whether to try first with the preemptor borrowing, and whether to try the
// other way after that. spec: 10 §4.7.4.
func (s *Search) attempts() (borrow, both bool) {
	var has [tiers]bool
	for i := range s.sources {
		has[s.sources[i].tier] = true
	}
	others := has[hierarchical] || has[priority]
	switch {
	case !others, !s.Policy.BorrowWithin && !s.underNominal():
		return true, false
	case !s.Policy.BorrowWithin && !has[hierarchical]:
		return false, true
	}
	return true, true
}

func (s *Search) underNominal() bool {
	for _, fr := range s.Need {
		if s.Quota.Usage(s.Node, fr) >= s.Quota.Nominal(s.Node, fr) {
			return false
		}
	}
	return true
}

// attempt takes candidates until the preemptor fits: of every list those being evicted,
// then of every list the rest. spec: 10 §4.7.3, §4.7.4.
func (s *Search) attempt(borrow bool) []Victim {
	mark := s.Ledger.Mark()
	defer s.Ledger.Rollback(mark)
	s.taken = s.taken[:0]
	for part := range parts {
		for list := range tiers {
			if list == priority && borrow && !s.candidates[CohortWhileBorrowing].some {
				continue
			}
			if s.takeFrom(part, list, borrow) {
				return s.fillBack(func(*taken) bool { return s.fits(borrow) })
			}
		}
	}
	s.tally()
	return nil
}

// takeFrom takes the candidates of one list in order, until the preemptor fits or none is
// left. A candidate that is not allowed now is not allowed later either, and neither are the
// next ones of its queue: usage only decreases, and priorities increase.
func (s *Search) takeFrom(part int, list tier, borrow bool) bool {
	m := merge(s.heads[:0])
	for i := range s.sources {
		if src := &s.sources[i]; src.tier == list {
			if w := src.start[part].get(); w != nil {
				m = append(m, head{w, src.start[part], int32(i)})
			}
		}
	}
	s.heads = m
	m.heapify()
	for len(m) > 0 {
		top := &m[0]
		src := &s.sources[top.source]
		if (list == priority && borrow && !s.candidates[CohortWhileBorrowing].Has(top.Workload)) || !s.overNominal(src) {
			m = m.pop()
			continue
		}
		s.takeVictim(top.Workload, src.node, s.reason(list, top.Workload))
		if s.fits(borrow) {
			return true
		}
		top.at.step()
		if top.Workload = s.seek(&top.at, s.candidatesOf(src.node)); top.Workload == nil {
			m = m.pop()
		} else {
			m.down(0)
		}
	}
	return false
}

// overNominal reports whether the candidate's queue, and every cohort between it and the
// common ancestor, still uses more than its own quota of something needed. It is true of the
// preemptor's queue.
func (s *Search) overNominal(src *source) bool {
	for at := src.node; at != src.below; at = s.Quota.Parent(at) {
		if s.Quota.WithinNominal(at, s.Need) {
			return false
		}
	}
	return true
}

func (s *Search) reason(list tier, c *workload.Workload) string {
	switch {
	case list == own:
		return InClusterQueue
	case list == priority && s.candidates[CohortWhileBorrowing].Has(c):
		return InCohortReclaimWhileBorrows
	}
	return InCohortReclamation
}
