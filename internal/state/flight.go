package state

import (
	"slices"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Event is an input of a State, or a step of it: one field is set.
type Event struct {
	SetFlavor        *flavor.Flavor `json:",omitempty"`
	DeleteFlavor     string         `json:",omitempty"`
	SetCohort        *Cohort        `json:",omitempty"`
	DeleteCohort     string         `json:",omitempty"`
	SetQueue         *Queue         `json:",omitempty"`
	DeleteQueue      string         `json:",omitempty"`
	SetLocalQueue    *LocalQueue    `json:",omitempty"`
	DeleteLocalQueue *Name          `json:",omitempty"`
	SetNamespace     *Namespace     `json:",omitempty"`
	DeleteNamespace  string         `json:",omitempty"`
	SetWorkload      *Workload      `json:",omitempty"`
	Written          *Workload      `json:",omitempty"`
	AdmissionWritten *Workload      `json:",omitempty"`
	DeleteWorkload   string         `json:",omitempty"`
	AdmissionFailed  string         `json:",omitempty"`
	EvictionFailed   string         `json:",omitempty"`
	Step             *Step          `json:",omitempty"`
}

// Step is a step with its outcome.
type Step struct {
	Now    workload.Instant
	Budget int
	Cycles int
	Hash   uint64 // of the traces of all its decisions
}

// Apply applies an event of another State. The result is that of a step.
func (s *State) Apply(e Event) (r cycle.Result) {
	switch {
	case e.SetFlavor != nil:
		s.SetFlavor(*e.SetFlavor)
	case e.DeleteFlavor != "":
		s.DeleteFlavor(e.DeleteFlavor)
	case e.SetCohort != nil:
		s.SetCohort(*e.SetCohort)
	case e.DeleteCohort != "":
		s.DeleteCohort(e.DeleteCohort)
	case e.SetQueue != nil:
		s.SetQueue(*e.SetQueue)
	case e.DeleteQueue != "":
		s.DeleteQueue(e.DeleteQueue)
	case e.SetLocalQueue != nil:
		s.SetLocalQueue(*e.SetLocalQueue)
	case e.DeleteLocalQueue != nil:
		s.DeleteLocalQueue(e.DeleteLocalQueue.Namespace, e.DeleteLocalQueue.Name)
	case e.SetNamespace != nil:
		s.SetNamespace(e.SetNamespace.Name, e.SetNamespace.Labels)
	case e.DeleteNamespace != "":
		s.DeleteNamespace(e.DeleteNamespace)
	case e.Step != nil:
		r = s.Step(e.Step.Now, e.Step.Budget)
	default:
		s.applyWorkload(e)
	}
	return r
}

func (s *State) applyWorkload(e Event) {
	switch {
	case e.SetWorkload != nil:
		s.SetWorkload(*e.SetWorkload)
	case e.Written != nil:
		s.Written(*e.Written)
	case e.AdmissionWritten != nil:
		s.AdmissionWritten(*e.AdmissionWritten)
	case e.DeleteWorkload != "":
		s.DeleteWorkload(e.DeleteWorkload)
	case e.AdmissionFailed != "":
		s.AdmissionFailed(e.AdmissionFailed)
	case e.EvictionFailed != "":
		s.EvictionFailed(e.EvictionFailed)
	}
}

// Hash is one number for the traces of some decisions, in order.
func Hash(decisions []cycle.Decision) uint64 {
	h := trace.NewHash()
	for i := range decisions {
		decisions[i].Look.Hash(&h)
	}
	return h.Sum()
}

// recorder keeps the events of a State since some moment, and its snapshot of that moment: the
// last two legs. A nil recorder keeps nothing.
type recorder struct {
	leg         int // least number of events in a leg
	last, older leg
}

// leg is a part of the record: a snapshot, and the events after it.
type leg struct {
	from   *Snapshot
	events []Event
}

// Record makes s keep its events: at least the given number of the latest, at most twice as
// many, or twice as many as there are workloads if that is more. Call it before the first
// event or right after a step.
func (s *State) Record(events int) {
	s.flight = &recorder{leg: max(1, events), last: leg{from: s.Snapshot()}}
}

func (f *recorder) note(e Event) {
	if f != nil {
		f.last.events = append(f.last.events, e)
	}
}

// noteWorkload notes an event of a workload: with a copy, so that without a recorder the
// definition stays off the heap.
func (f *recorder) noteWorkload(def *Workload, event func(kept *Workload) Event) {
	if f != nil {
		kept := *def
		f.note(event(&kept))
	}
}

// stepped records a step. It begins a new leg when this one is full and nothing is left to do.
func (f *recorder) stepped(s *State, now workload.Instant, budget int, r *cycle.Result) {
	if f == nil {
		return
	}
	f.note(Event{Step: &Step{Now: now, Budget: budget, Cycles: r.Cycles, Hash: Hash(r.Decisions)}})
	if !r.More && len(f.last.events) >= max(f.leg, len(s.records)) {
		f.older, f.last = f.last, leg{from: s.Snapshot()}
	}
}

// Recorded returns the record: a Snapshot, and the events since. It is nil without Record.
func (s *State) Recorded() (from *Snapshot, events []Event) {
	f := s.flight
	switch {
	case f == nil:
		return nil, nil
	case f.older.from == nil:
		return f.last.from, f.last.events
	}
	return f.older.from, slices.Concat(f.older.events, f.last.events)
}
