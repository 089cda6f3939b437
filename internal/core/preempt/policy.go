package preempt

import (
	"math"
	"slices"

	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Rule is which workloads may be preempted, by effective priority and age.
type Rule int8

// The rules, each of which allows all that the one before it allows.
const (
	Never Rule = iota
	LowerPriority
	LowerOrNewerEqualPriority
	Any
)

// ruleNames are the rules as the API spells them.
var ruleNames = [...]string{"Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"}

// String is the rule as the API spells it.
func (r Rule) String() string {
	if r < 0 || int(r) >= len(ruleNames) {
		return ruleNames[Never]
	}
	return ruleNames[r]
}

// RuleNamed returns the rule of a name in the API; Never for any other text.
func RuleNamed(name string) Rule { return Rule(max(0, slices.Index(ruleNames[:], name))) }

// Policy is a queue's preemption policy, and the only place that knows which preemptions it allows.
// Candidates are the workloads that a preemptor may preempt, by their relation to it;
// Search.UpperBound is how much of a resource they could free at most. Every victim of a
// search is a candidate, and where Search.Could is false, no search finds victims: both
// hold for every policy, classical or fair. spec: 10 §4.7, 20 §4.3.
type Policy struct {
	Within       Rule   // in the own queue
	Reclaim      Rule   // in other queues that borrow
	BorrowWithin bool   // also while borrowing itself, victims of lower priority
	Threshold    *int64 // highest priority of such a victim, nil for no bound
}

// Allows reports whether the policy allows any preemption at all.
func (p *Policy) Allows() bool { return p.Within != Never || p.Reclaims() }

// Reclaims reports whether workloads of other queues may be victims.
func (p *Policy) Reclaims() bool { return p.Reclaim != Never }

// ReclaimsAlways reports whether the queue can reclaim its quota from any borrower, so that
// there is no need to keep it from others.
func (p *Policy) ReclaimsAlways() bool { return p.Reclaim == Any }

// WhileBorrowing reports whether workloads of other queues may be victims of a request past
// the quota of the own queue. Fair sharing, unless nil, decides that by shares.
// spec: 10 §4.7.4.
func (p *Policy) WhileBorrowing(fair *Fair) bool {
	return p.BorrowWithin || (fair != nil && p.Reclaims())
}

// Reach is the reach of a search that has visited no workload.
func (p *Policy) Reach() trace.Reach {
	return trace.Reach{Within: p.Within.String(), Reclaim: p.Reclaim.String()}
}

// Relation is the relation of a candidate to its preemptor.
type Relation int8

// The relations.
const (
	// SameQueue: both are of one queue.
	SameQueue Relation = iota
	// Cohort: the candidate is of another queue that borrows. The preemptor stays within
	// its own quota or that of a subtree which the candidate uses from outside, or fair
	// sharing compares their shares.
	Cohort
	// CohortWhileBorrowing: the candidate is of another queue that borrows, and so does the
	// preemptor. spec: 10 §4.7.4.
	CohortWhileBorrowing
	relations
)

// Candidates returns the workloads in a relation to p that it may preempt. spec: 10 §4.7.2.
func (p *Policy) Candidates(r Relation, preemptor *workload.Workload) Candidates {
	switch r {
	case SameQueue:
		return p.Within.candidates(preemptor)
	case CohortWhileBorrowing:
		c := min(p.Reclaim, LowerPriority).candidates(preemptor)
		c.some = c.some && p.BorrowWithin
		if p.Threshold != nil {
			c.top = min(c.top, *p.Threshold)
		}
		return c
	case Cohort, relations:
	}
	return p.Reclaim.candidates(preemptor)
}

// Candidates are workloads up to some priority. The zero value is none.
type Candidates struct {
	some  bool
	top   int64            // the highest priority among them
	newer bool             // of that priority, only workloads that have waited less long
	since workload.Instant // than this
}

// candidates are the workloads that the rule allows.
func (r Rule) candidates(p *workload.Workload) Candidates {
	switch r {
	case LowerPriority:
		return Candidates{some: p.Priority > math.MinInt64, top: p.Priority - 1}
	case LowerOrNewerEqualPriority:
		return Candidates{some: true, top: p.Priority, newer: true, since: p.Since}
	case Any:
		return Candidates{some: true, top: math.MaxInt64}
	case Never:
	}
	return Candidates{}
}

// Has reports whether w is a candidate.
func (c *Candidates) Has(w *workload.Workload) bool {
	return !c.Ends(w) && (!c.newer || w.Priority < c.top || c.since < w.Since)
}

// Ends reports whether no workload of the priority of w, or of a higher one, is a candidate.
func (c *Candidates) Ends(w *workload.Workload) bool { return !c.some || w.Priority > c.top }

// Reasons a victim is given, as clients compare them. spec: 10 §5.1.
const (
	InClusterQueue              = "InClusterQueue"
	InCohortReclamation         = "InCohortReclamation"
	InCohortReclaimWhileBorrows = "InCohortReclaimWhileBorrowing"
	InCohortFairSharing         = "InCohortFairSharing"
	// Migration is no preemption: the victim is a variant of the same job that makes room for one with a preferred flavor. spec: 20 §4.13.
	Migration = "FlavorMigration"
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
	case InCohortFairSharing:
		return "Fair Sharing within the cohort"
	case Migration:
		return "migration of the job to a preferred flavor"
	}
	return reason
}
