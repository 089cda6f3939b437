package state

import (
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/core/workload"
)

// Event is one change of the world, or a Step. An event, with the values that it refers to, must not be modified once it is applied or posted.
type Event interface{ apply(*State) }

// The events of definitions. The names of their types are those in stored flight records.
type (
	// SetFlavor adds or changes a flavor; its Missing is ignored.
	SetFlavor flavor.Flavor
	// DeleteFlavor deletes the flavor of a name. Queues that list it are closed until it exists again.
	DeleteFlavor string
	// SetCohort adds or changes a cohort.
	SetCohort Cohort
	// DeleteCohort deletes a cohort's own quota and parent. While others name it, it exists without them. spec: 10 §4.3.5.
	DeleteCohort string
	// SetQueue adds or changes a ClusterQueue.
	SetQueue Queue
	// DeleteQueue deletes a ClusterQueue and its quota. Workloads with a reservation in it are no longer counted, and its pending
	// workloads wait until it exists again.
	DeleteQueue string
	// SetLocalQueue adds or changes a LocalQueue.
	SetLocalQueue LocalQueue
	// DeleteLocalQueue deletes a LocalQueue; its pending workloads wait until it exists again.
	DeleteLocalQueue Name
	// SetUsage sets the past usage of a LocalQueue, as its status at a time had it, if the LocalQueue exists. It has no effect after the
	// first sample. Where the ClusterQueue is UsageBased, the LocalQueue with the lowest usage comes first.
	SetUsage struct {
		Namespace, Name string
		Consumed        []sharing.Used
		At              workload.Instant `json:",omitempty"`
	}
	// SampleUsage counts the usage of the LocalQueues since their last samples, of at most Max of those whose sample is an interval ago,
	// the oldest first. spec: 20 §4.4.
	SampleUsage struct {
		Now workload.Instant
		Max int
	}
	// SetNamespace sets the labels of a namespace.
	SetNamespace Namespace
	// DeleteNamespace forgets a namespace.
	DeleteNamespace string
)

// The events of Workloads. Those with a string are about the workload of that UID.
type (
	// SetWorkload adds or changes a workload. Versions older than a known one are ignored; while an admission is being written, so
	// are updates without a reservation: only the writer knows whether it was written to a later version.
	SetWorkload Workload
	// DeleteWorkload forgets a workload and releases its quota.
	DeleteWorkload string
	// Written is SetWorkload for the outcome of an own write: it has no effect on a workload that was deleted meanwhile.
	Written Workload
	// AdmissionWritten is the outcome of writing an admission, or the reservation that its writer found. If a later version is known
	// already, which happens when a watch restarts and omits versions, that version counts, and the assumption ends here, unless it is
	// of a later admission.
	AdmissionWritten Workload
	// AdmissionFailed takes back an admission that was not written, and will not be: the workload returns to its place in line, and the
	// slice that it replaced to its own. Version is that of the Grant: a later admission stays.
	AdmissionFailed struct {
		UID     string
		Version uint64
	}
	// EvictionFailed takes back an eviction that could not be written.
	EvictionFailed string
)

// Step makes decisions, see State.Step. In a record it has its outcome.
type Step struct {
	Now    workload.Instant
	Budget int
	Cycles int
	Hash   uint64 // of the traces of all its decisions
}

func (e Step) apply(s *State) { s.Step(e.Now, e.Budget) }

// Apply applies an event: nothing else changes the world. The result is that of a Step.
func (s *State) Apply(e Event) (r cycle.Result) {
	if step, ok := e.(Step); ok {
		return s.Step(step.Now, step.Budget)
	}
	s.applied = nil
	e.apply(s)
	if s.applied != nil {
		s.flight.note(s.applied)
	} else {
		s.flight.note(e)
	}
	s.flight.updateMany(s)
	return r
}

// UID returns the UID of the workload that an event is about, "" for none.
func UID(e Event) string {
	switch e := e.(type) {
	case SetWorkload:
		return e.UID
	case Written:
		return e.UID
	case AdmissionWritten:
		return e.UID
	case AdmissionFailed:
		return e.UID
	case DeleteWorkload:
		return string(e)
	case EvictionFailed:
		return string(e)
	}
	return ""
}

// Supersedes reports whether an event makes an earlier one about the same workload needless, if no other is between them.
func Supersedes(e, earlier Event) bool {
	last, is := e.(SetWorkload)
	first, was := earlier.(SetWorkload)
	return is && was && last.UID == first.UID && last.Version >= first.Version
}

// Releases reports whether an event may release quota, and takes none.
func Releases(e Event) bool {
	switch e := e.(type) {
	case DeleteWorkload, AdmissionFailed:
		return true
	case SetWorkload:
		return !e.Reserved && !e.Queueable
	}
	return false
}
