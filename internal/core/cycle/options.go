package cycle

import (
	"time"

	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/workload"
)

// Options are the settings that decisions depend on. They are fixed for the life of a
// World. Defaults has the usual ones.
type Options struct {
	// IgnoreUndeclared: resources that a queue does not cover need no quota there.
	IgnoreUndeclared bool
	// Fair turns fair sharing on: queues and cohorts take their turns, and are preempted,
	// by their shares. spec: 10 §4.8.
	Fair *preempt.Fair
	// NonBorrowingFirst: with fair sharing, a head within its own quota comes before heads that
	// borrow, whatever the shares.
	NonBorrowingFirst bool
	// PriorityInCohort: heads of different queues that borrow alike come by priority.
	PriorityInCohort bool
	// PreemptorFirst: a head whose victims are leaving comes before other queues' heads,
	// and keeps quota from them whatever its queue may reclaim.
	PreemptorFirst bool
	// RecomputeOverlap: a head whose victims are leaving for another preemptor is nominated anew
	// as if they had left.
	RecomputeOverlap bool
	// PlaceAgain: a head that lost its places on nodes to an earlier head of the cycle gets others, if
	// there are any, in the same cycle. spec: 20 §4.7.3.
	PlaceAgain bool
	// KeepScan: a head that lost its flavor to another head resumes with the next flavor.
	KeepScan bool
	// FungibilityOff: queues' preferences among flavors are ignored.
	FungibilityOff bool
	// BlockAdmission: no workload is admitted while one with a reservation is not ready.
	// spec: 20 §4.15.
	BlockAdmission bool
	// PartialAdmission: pod sets that allow it may be admitted with fewer pods.
	PartialAdmission bool
	// ClaimTimeout is how long quota is held for a preemptor whose victims do not leave, in
	// nanoseconds; 0 is for ever.
	ClaimTimeout workload.Instant
	// LateHeads: the head of an inadmissible class that a release may help is evaluated when its turn comes, and not if earlier heads took
	// that quota by then. Without it heads are evaluated at once: so a flight record that does not have it decides as it did.
	LateHeads bool `json:",omitempty"`
	// EditWindow is the least time between two evaluations of all workloads of a tree because of
	// edits, in nanoseconds. spec: 10 §4.4.
	EditWindow workload.Instant
}

// Defaults returns the options of an installation that configures nothing.
func Defaults() Options {
	return Options{
		NonBorrowingFirst: true, PriorityInCohort: true, RecomputeOverlap: true, PlaceAgain: true, KeepScan: true, PartialAdmission: true,
		LateHeads: true, ClaimTimeout: workload.Instant(10 * time.Minute), EditWindow: workload.Instant(time.Second),
	}
}
