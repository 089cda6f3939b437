// Package preempt finds the workloads to evict so that another one fits: the candidates, their
// order, and the fewest that suffice. spec: 10 §4.7, 20 §4.3.
package preempt

import (
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Strategy is a condition on preemption for a fair share. spec: 20 §4.3.
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

// Fair is the configuration of preemption under fair sharing.
type Fair struct {
	// Strategies has one or two: the condition and, as the second, LessThanInitialShare for
	// candidates that fail the first.
	Strategies []Strategy
	// WithinNominal: a queue within its own quota needs to meet no condition.
	WithinNominal bool
}

// Victim is a workload to evict, and the reason.
type Victim struct {
	Workload *workload.Workload
	Node     quota.Node
	Reason   string
	// Ran is how long it had run when it was evicted, if that was less than its MinRun; else 0.
	Ran workload.Instant
}

// Search is the world of one preemptor. It may be reused with other fields: then it allocates
// only the victims that it returns. It must not be copied.
type Search struct {
	*ledger.Ledger
	Node   quota.Node
	Policy Policy
	Fair   *Fair // nil for classical preemption
	// Holders returns the workloads with a reservation in a queue; nil for a queue whose
	// workloads are out of reach.
	Holders func(quota.Node) *Holders
	// Standing orders the candidates of the own queue whose LocalQueues share it by usage: the highest first. Nil elsewhere.
	// spec: 20 §4.3.
	Standing func(*workload.Workload) order.Standing
	// Gone reports whether a workload is out of the forest already: then it is no candidate. Nil
	// is never.
	Gone func(*workload.Workload) bool

	Preemptor *workload.Workload
	Replaces  *workload.Workload // the slice that Preemptor may replace, nil for none: neither is a candidate. spec: 20 §4.11
	Requests  ledger.Usage       // all requests of Preemptor, less the usage of Replaces
	Need      []resource.FR      // the FRs of it that are short

	// Places reports whether the preemptor, which fits in quota now, has places for its pods as
	// well; nil without a need for any.
	Places func() bool

	Visited int // candidates that all searches so far have visited, taken ones twice

	reach      trace.Reach
	sparing    bool // candidates that are Early at the time now come last
	now        workload.Instant
	candidates [relations]Candidates
	buffers
}

// buffers is memory that is kept for the next search.
type buffers struct {
	rest    resource.Vector
	none    sorted        // empty
	byUsage [parts]sorted // the candidates of the own queue, if they have standings
	ranked  [parts][]*workload.Workload
	ranks   []ranked
	sources []source
	heads   []head
	taken   []taken

	from, to int // the parts whose candidates are the heads of rivals
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

// Targets returns the victims, in the order in which they were chosen: enough of them, or none.
// With none, the reach describes the candidates: Queues and Others are the queues of the tree
// that use more than their own quota of what is short, and their workloads; the allowed ones
// are the ones that the largest attempt could take. The forest is unchanged afterwards.
func (s *Search) Targets() ([]Victim, trace.Reach) {
	s.reach = s.Policy.Reach()
	if s.Quota.Root(s.Node) == quota.None {
		return nil, s.reach // below a cycle nothing ever fits
	}
	victims := s.find()
	return victims, s.reach
}

func (s *Search) find() []Victim {
	for r := range relations {
		s.candidates[r] = s.Policy.Candidates(r, s.Preemptor)
	}
	if s.Fair != nil {
		return s.fair()
	}
	return s.classical()
}

// Spare returns the victims that Targets has returned for the same question. If some of them are Early at a time, it searches again, with all
// such candidates after all others, and returns those victims if fewer of them are Early. The time decides which victims there are, and
// never whether there are any: a preemptor that has none need not be evaluated again when a minimum ends.
func (s *Search) Spare(victims []Victim, now workload.Instant) []Victim {
	before := countEarly(victims, now)
	if before == 0 {
		return victims
	}
	s.sparing, s.now = true, now
	others := s.find()
	s.sparing = false
	if len(others) > 0 && countEarly(others, now) < before {
		return others
	}
	return victims
}

func countEarly(victims []Victim, now workload.Instant) (n int) {
	for i := range victims {
		if victims[i].Workload.Early(now) {
			n++
		}
	}
	return n
}
