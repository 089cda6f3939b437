// Package preempt finds the workloads that have to go for another to fit: who may
// be asked to, in which order, and the fewest that suffice. spec: 10 §4.7.
package preempt

import (
	"slices"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Rule says which workloads may be preempted, by effective priority and age.
type Rule int8

// The rules.
const (
	Never Rule = iota
	LowerPriority
	LowerOrNewerEqualPriority
	Any
)

// Policy is a queue's preemption policy.
type Policy struct {
	Within       Rule   // in the own queue
	Reclaim      Rule   // in other queues that borrow
	BorrowWithin bool   // also while borrowing itself, victims of lower priority
	Threshold    *int64 // highest priority of such a victim, nil for no bound
}

// allows tells whether p may preempt c under the rule. spec: 10 §4.7.2.
func (r Rule) allows(p, c *workload.Workload) bool {
	switch r {
	case LowerPriority:
		return p.Priority > c.Priority
	case LowerOrNewerEqualPriority:
		return p.Priority > c.Priority || (p.Priority == c.Priority && p.Since < c.Since)
	case Any:
		return true
	case Never:
	}
	return false
}

// Reasons a victim is given, as clients compare them. spec: 10 §5.1.
const (
	InClusterQueue              = "InClusterQueue"
	InCohortReclamation         = "InCohortReclamation"
	InCohortReclaimWhileBorrows = "InCohortReclaimWhileBorrowing"
)

// Words describe a reason in a sentence.
func Words(reason string) string {
	switch reason {
	case InClusterQueue:
		return "prioritization in the ClusterQueue"
	case InCohortReclamation:
		return "reclamation within the cohort"
	case InCohortReclaimWhileBorrows:
		return "reclamation within the cohort while borrowing"
	}
	return reason
}

// Victim is a workload that has to go, and why it may be asked to.
type Victim struct {
	Workload *workload.Workload
	Node     quota.Node
	Reason   string
}

// Search is one preemptor's view of the world.
type Search struct {
	Quota  *quota.Forest
	Node   quota.Node
	Policy Policy
	// Holders returns the workloads with a reservation in a queue; nil for a queue
	// whose workloads are out of reach.
	Holders func(quota.Node) []*workload.Workload

	Preemptor *workload.Workload
	Requests  resource.Vector // everything it asks for
	Need      []resource.FR   // what of it is short
}

// candidate is a possible victim with the terms on which it may be taken.
type candidate struct {
	Victim
	own      bool
	borrowOK bool       // may be taken while the preemptor borrows
	below    quota.Node // the common ancestor: every cohort under it must stay over nominal
}

// Targets returns the victims, in the order they were chosen, or none: either all
// that it takes or nobody. The forest is left as it was found.
func (s *Search) Targets() []Victim {
	own := s.own()
	hierarchical, priority := s.others()
	order := concat(hierarchical, priority, own)
	if len(order) == 0 {
		return nil
	}
	for _, borrow := range s.attempts(len(hierarchical)+len(priority) > 0, len(hierarchical) > 0) {
		if victims := s.attempt(order, borrow); victims != nil {
			return victims
		}
	}
	return nil
}

func (s *Search) own() []candidate {
	return s.collect(nil, s.Node, s.Policy.Within, func(w *workload.Workload) candidate {
		return candidate{Victim: Victim{w, s.Node, InClusterQueue}, own: true, borrowOK: true, below: s.Node}
	})
}

// collect appends the workloads of one queue that the rule allows and that hold some
// of what is needed.
func (s *Search) collect(to []candidate, n quota.Node, rule Rule, as func(*workload.Workload) candidate) []candidate {
	if rule == Never {
		return to
	}
	for _, w := range s.Holders(n) {
		if w.UID != s.Preemptor.UID && s.holdsNeeded(w) && rule.allows(s.Preemptor, w) {
			to = append(to, as(w))
		}
	}
	return to
}

func (s *Search) holdsNeeded(w *workload.Workload) bool {
	for _, fr := range s.Need {
		if w.Usage.Of(fr) > 0 {
			return true
		}
	}
	return false
}

// others finds candidates in the rest of the tree, from the nearest cohort up. While
// the request fits in the quota of a subtree around the preemptor, whoever uses that
// quota from outside is hierarchical: it has to give back what it borrowed.
// spec: 10 §4.7.2.
func (s *Search) others() (hierarchical, priority []candidate) {
	if s.Policy.Reclaim == Never || s.Quota.Root(s.Node) == quota.None {
		return nil, nil
	}
	rest := slices.Clone(s.Requests)
	advantage := s.inQuotaOf(s.Node, rest)
	s.leaveLocal(s.Node, rest)
	below := s.Node
	for at := s.Quota.Parent(s.Node); at != quota.None; at = s.Quota.Parent(at) {
		found := s.subtree(nil, at, below, func(n quota.Node, to []candidate) []candidate {
			return s.collect(to, n, s.Policy.Reclaim, func(w *workload.Workload) candidate {
				return s.terms(w, n, at, advantage)
			})
		})
		if advantage {
			hierarchical = append(hierarchical, found...)
		} else {
			priority = append(priority, found...)
		}
		advantage = advantage || s.inQuotaOf(at, rest)
		s.leaveLocal(at, rest)
		below = at
	}
	return hierarchical, priority
}

// terms decides how a candidate of another queue may be taken.
func (s *Search) terms(w *workload.Workload, n, lca quota.Node, advantage bool) candidate {
	c := candidate{Victim: Victim{w, n, InCohortReclamation}, borrowOK: advantage, below: lca}
	lower := w.Priority < s.Preemptor.Priority && (s.Policy.Threshold == nil || w.Priority <= *s.Policy.Threshold)
	if !advantage && s.Policy.BorrowWithin && lower {
		c.Reason, c.borrowOK = InCohortReclaimWhileBorrows, true
	}
	return c
}

// subtree visits the queues below at that use more than their own of something
// needed, leaving out the part below skip, which was visited before.
func (s *Search) subtree(to []candidate, at, skip quota.Node, visit func(quota.Node, []candidate) []candidate) []candidate {
	for _, kid := range s.Quota.Kids(at) {
		switch {
		case kid == skip || s.Quota.WithinNominal(kid, s.Need):
		case s.Quota.IsCohort(kid):
			to = s.subtree(to, kid, skip, visit)
		default:
			to = visit(kid, to)
		}
	}
	return to
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

// concat sorts each list and joins them: those on their way out first, then the
// rest, each in the order of the lists. spec: 10 §4.7.3.
func concat(lists ...[]candidate) []candidate {
	var leaving, rest []candidate
	for _, list := range lists {
		slices.SortFunc(list, func(a, b candidate) int { return a.Workload.Before(b.Workload) })
		for _, c := range list {
			if c.Workload.Evicting {
				leaving = append(leaving, c)
			} else {
				rest = append(rest, c)
			}
		}
	}
	return append(leaving, rest...)
}

// attempts says whether to try with the preemptor borrowing, without, or both.
// spec: 10 §4.7.4.
func (s *Search) attempts(others, hierarchical bool) []bool {
	const borrow, own = true, false
	switch {
	case !others, !s.Policy.BorrowWithin && !s.underNominal():
		return []bool{borrow}
	case !s.Policy.BorrowWithin && !hierarchical:
		return []bool{own, borrow}
	}
	return []bool{borrow, own}
}

func (s *Search) underNominal() bool {
	for _, fr := range s.Need {
		if s.Quota.Usage(s.Node, fr) >= s.Quota.Nominal(s.Node, fr) {
			return false
		}
	}
	return true
}

// attempt takes candidates until the preemptor fits, then puts back, from the
// second-last, whoever is not needed after all. spec: 10 §4.7.4, §4.7.5.
func (s *Search) attempt(order []candidate, borrow bool) []Victim {
	mark := s.Quota.Mark()
	defer s.Quota.Rollback(mark)
	var taken []candidate
	fits := false
	for _, c := range order {
		if !s.takeable(c, borrow) {
			continue
		}
		s.Quota.Release(c.Node, c.Workload.Usage)
		taken = append(taken, c)
		if fits = s.fits(borrow); fits {
			break
		}
	}
	if !fits {
		return nil
	}
	for i := len(taken) - 2; i >= 0; i-- {
		s.Quota.Charge(taken[i].Node, taken[i].Workload.Usage)
		if s.fits(borrow) {
			taken = slices.Delete(taken, i, i+1)
		} else {
			s.Quota.Release(taken[i].Node, taken[i].Workload.Usage)
		}
	}
	victims := make([]Victim, len(taken))
	for i, c := range taken {
		victims[i] = c.Victim
	}
	return victims
}

// takeable tells whether the candidate's queue, and every cohort between it and the
// common ancestor, still uses more than its own of something needed.
func (s *Search) takeable(c candidate, borrow bool) bool {
	if c.own {
		return true
	}
	if borrow && !c.borrowOK {
		return false
	}
	for at := c.Node; at != c.below; at = s.Quota.Parent(at) {
		if s.Quota.WithinNominal(at, s.Need) {
			return false
		}
	}
	return true
}

func (s *Search) fits(borrow bool) bool {
	if !s.Quota.Fits(s.Node, s.Requests) {
		return false
	}
	if borrow {
		return true
	}
	for _, e := range s.Requests {
		if s.Quota.Nominal(s.Node, e.FR) < s.Quota.Usage(s.Node, e.FR).Add(e.Amount) {
			return false
		}
	}
	return true
}
