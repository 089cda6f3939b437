// Package preempt finds the workloads that have to go for another to fit: who may
// be asked to, in which order, and the fewest that suffice. spec: 10 §4.7, 20 §4.3.
package preempt

import (
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

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

	reach      trace.Reach
	candidates [relations]Candidates
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
	s.reach = s.Policy.Reach()
	if s.Quota.Root(s.Node) == quota.None {
		return nil, s.reach // below a cycle nothing ever fits
	}
	for r := range relations {
		s.candidates[r] = s.Policy.Candidates(r, s.Preemptor)
	}
	if s.Fair != nil {
		victims := s.fair()
		return victims, s.reach
	}
	victims := s.classical()
	return victims, s.reach
}
