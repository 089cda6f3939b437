// Package preempt finds the workloads that have to go for another to fit: who may
// be asked to, in which order, and the fewest that suffice. spec: 10 §4.7, 20 §4.3.
package preempt

import (
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
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

// String is the rule as the API spells it.
func (r Rule) String() string {
	switch r {
	case LowerPriority:
		return "LowerPriority"
	case LowerOrNewerEqualPriority:
		return "LowerOrNewerEqualPriority"
	case Any:
		return "Any"
	case Never:
	}
	return "Never"
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

// ends tells whether the rule allows nobody of c's priority or a higher one.
func (r Rule) ends(p, c *workload.Workload) bool {
	switch r {
	case LowerPriority:
		return c.Priority >= p.Priority
	case LowerOrNewerEqualPriority:
		return c.Priority > p.Priority
	case Any:
		return false
	case Never:
	}
	return true
}

// Policy is a queue's preemption policy.
type Policy struct {
	Within       Rule   // in the own queue
	Reclaim      Rule   // in other queues that borrow
	BorrowWithin bool   // also while borrowing itself, victims of lower priority
	Threshold    *int64 // highest priority of such a victim, nil for no bound
}

// Strategy is a test that preempting for a fair share has to pass. spec: 20 §4.3.
type Strategy int8

// The strategies: the share of the preemptor, once it is in, against that of the victim
// once that is out, or against that of the victim while it is in.
const (
	LessThanOrEqualToFinalShare Strategy = iota
	LessThanInitialShare
)

// String is the strategy as the API spells it.
func (s Strategy) String() string {
	if s == LessThanInitialShare {
		return "LessThanInitialShare"
	}
	return "LessThanOrEqualToFinalShare"
}

// Fair says how preemption shares out what is borrowed.
type Fair struct {
	// Strategies has one or two: the test, and whether those that fail it get a second
	// chance by LessThanInitialShare, which is what a second one stands for.
	Strategies []Strategy
	// WithinNominal: a queue that stays within its own quota needs to pass no test.
	WithinNominal bool
}

// Reasons a victim is given, as clients compare them. spec: 10 §5.1.
const (
	InClusterQueue              = "InClusterQueue"
	InCohortReclamation         = "InCohortReclamation"
	InCohortReclaimWhileBorrows = "InCohortReclaimWhileBorrowing"
	InCohortFairSharing         = "InCohortFairSharing"
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
	}
	return reason
}

// Victim is a workload that has to go, and why it may be asked to.
type Victim struct {
	Workload *workload.Workload
	Node     quota.Node
	Reason   string
}

// Search is one preemptor's view of the world. It may be kept, and its fields set anew
// for the next question: then it allocates nothing but the victims it returns. It must
// not be copied.
type Search struct {
	Quota  *quota.Forest
	Node   quota.Node
	Policy Policy
	Fair   *Fair // nil for classical preemption
	// Holders returns the workloads with a reservation in a queue; nil for a queue
	// whose workloads are out of reach.
	Holders func(quota.Node) *Holders
	// Gone tells of workloads that are out of the forest already: they are no candidates.
	// Nil is nobody.
	Gone func(*workload.Workload) bool

	Preemptor *workload.Workload // neither it nor what it Replaces is a candidate
	Requests  resource.Vector    // everything it asks for, less what it Replaces holds
	Need      []resource.FR      // what of it is short

	reach trace.Reach
	buffers
}

// buffers are of one search, kept for the next.
type buffers struct {
	rest    resource.Vector
	sources []source
	heads   []head
	taken   []taken

	rivals   []rival
	branches []branch
	way      []int32 // from the root to the branch picked last; indices of branches
}

// taken is a victim that fillBack may spare.
type taken struct {
	Victim
	back bool // it was put back
	// For fair sharing: the preemptor's side just below the common ancestor (none in the
	// own queue), and what its share may be.
	mine  quota.Node
	limit bound
}

// Targets returns the victims, in the order they were chosen, or none: either all that
// it takes or nobody. With none, the reach tells whom it could have asked: Queues and
// Others are those of the tree that use more than their own of what is short, and the
// allowed are those that the fullest attempt could take. The forest is left as it was
// found.
func (s *Search) Targets() ([]Victim, trace.Reach) {
	s.reach = trace.Reach{Within: s.Policy.Within.String(), Reclaim: s.Policy.Reclaim.String()}
	if s.Quota.Root(s.Node) == quota.None {
		return nil, s.reach // below a cycle nothing ever fits
	}
	if s.Fair != nil {
		victims := s.fair()
		return victims, s.reach
	}
	victims := s.classical()
	return victims, s.reach
}
