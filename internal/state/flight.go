package state

import (
	"slices"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Hash is one number for the traces of some decisions, in order.
func Hash(decisions []cycle.Decision) uint64 {
	var h trace.Hash
	for i := range decisions {
		decisions[i].Look.Hash(&h)
	}
	return h.Sum()
}

// recorder keeps the events of a State since some moment, and its checkpoint of that moment: the
// last two legs. A nil recorder keeps nothing.
type recorder struct {
	least       int // number of events in a leg
	last, older leg
}

// leg is a part of the record: a checkpoint, and the events after it.
type leg struct {
	from   *Checkpoint
	events [][]noted // in pieces, so that none is ever copied
	number int       // of events
}

// piece is the number of events in a piece.
const piece = 1024

func (l *leg) note(n noted) {
	last := len(l.events) - 1
	if l.number%piece == 0 {
		l.events = append(l.events, make([]noted, 0, piece))
		last++
	}
	l.events[last] = append(l.events[last], n)
	l.number++
}

// noted is an event or, to save memory, the definition that an event gave to a record.
type noted struct {
	Event
	r   *record // only what never changes of it may be read
	def *definition
}

// workloadsPerLeg: a leg has at least one event for that many workloads, so that the checkpoints cost little for each event.
const workloadsPerLeg = 4

// Record makes s keep its events: at least the given number of the latest, or a quarter of the number of workloads if that is more,
// and about twice as many at most. Call it before the first event or right after a step.
func (s *State) Record(events int) {
	s.flight = &recorder{least: max(1, events), last: leg{from: s.Checkpoint()}}
}

func (f *recorder) note(n noted) {
	if f != nil {
		f.last.note(n)
	}
}

// stepped records a step. It begins a new leg when this one is full and nothing is left to do.
func (f *recorder) stepped(s *State, now workload.Instant, budget int, r *cycle.Result) {
	if f == nil {
		return
	}
	f.note(noted{Event: Step{Now: now, Budget: budget, Cycles: r.Cycles, Hash: Hash(r.Decisions)}})
	if !r.More && f.last.number >= max(f.least, len(s.records)/workloadsPerLeg) {
		f.older, f.last = f.last, leg{from: s.Checkpoint()}
	}
}

// Record is the events of a State since a moment.
type Record struct {
	from      *Checkpoint
	events    [][]noted
	resources []string
}

// Recorded returns the record, nil without State.Record. It costs next to nothing.
func (s *State) Recorded() *Record {
	f := s.flight
	switch {
	case f == nil:
		return nil
	case f.older.from == nil:
		return &Record{f.last.from, slices.Clone(f.last.events), s.world.Table.Names()}
	}
	return &Record{f.older.from, slices.Concat(f.older.events, f.last.events), s.world.Table.Names()}
}

// Contents returns a Snapshot, and the events since. It may be called in any goroutine, while the State changes.
func (r *Record) Contents() (from *Snapshot, events []Event) {
	for _, piece := range r.events {
		for _, n := range piece {
			if n.def != nil {
				n.Event = SetWorkload(n.def.workload(n.r, r.resources))
			}
			events = append(events, n.Event)
		}
	}
	return r.from.Snapshot(), events
}
