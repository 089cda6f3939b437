package state

import (
	"math"
	"slices"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Hash is one number for the traces of some decisions, in order.
func Hash(decisions []cycle.Decision) uint64 {
	var h trace.Hash
	for i := range decisions {
		decisions[i].Attempt.Hash(&h)
	}
	return h.Sum()
}

// recorder keeps the events of a State since some moment, and its checkpoint of that moment: the
// last two legs. A nil recorder keeps nothing.
type recorder struct {
	least       int // number of events in a leg
	classes     int // how many a step copies for a checkpoint that is not complete
	last, older leg
	records     pages
	touched     []int32 // numbers of records that may differ from their checkpoints, with repeats
}

// leg is a part of the record: a checkpoint, and the events after it.
type leg struct {
	from   *Checkpoint
	events [][]noted // in pieces, so that none is ever copied
	number int       // of events
}

// noted is an Event or, to save memory, the *definition that an event gave to a record.
type noted any

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

// classesPerStep is how many inadmissible classes a step copies for a checkpoint that is not complete, in a tenth of a millisecond.
const classesPerStep = 1024

// workloadsPerLeg: a leg has at least one event for that many workloads, so that the checkpoints cost little for each event.
const workloadsPerLeg = 4

// Record makes s keep its events: at least the given number of the latest, or a quarter of the number of workloads if that is more,
// and about twice as many at most. Call it before the first event or right after a step.
func (s *State) Record(events int) {
	s.flight = &recorder{least: max(1, events), classes: classesPerStep, records: s.copyRecords()}
	s.flight.last.from = s.Checkpoint()
}

// touch notes that a record may differ from its checkpoint; nil is none.
func (f *recorder) touch(r *record) {
	if f != nil && r != nil && !r.unrecorded {
		r.unrecorded = true
		f.touched = append(f.touched, r.first.Record)
	}
}

// update updates the checkpoints of the touched records.
func (f *recorder) update(s *State) {
	if f == nil {
		return
	}
	for _, number := range f.touched {
		r := s.byNumber.All[number]
		if r != nil {
			r.unrecorded = false
		}
		f.records.set(number, f.records.checkpointOf(r))
	}
	f.touched = f.touched[:0]
}

// manyTouched is how many records may be touched until their checkpoints are updated, without a step.
const manyTouched = 4096

// updateMany is update if many records are touched. Between steps the others wait: most of them are touched again by the next one.
func (f *recorder) updateMany(s *State) {
	if f != nil && len(f.touched) >= manyTouched {
		f.update(s)
	}
}

// shareRecords returns the checkpoints of all records.
func (f *recorder) shareRecords(s *State) []*page {
	f.update(s)
	return f.records.share()
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
	f.update(s)
	s.ContinueCheckpoint(f.classes)
	f.note(Step{Now: now, Budget: budget, Cycles: r.Cycles, Hash: Hash(r.Decisions)})
	if !r.More && f.last.number >= max(f.least, len(s.records)/workloadsPerLeg) {
		f.older, f.last = f.last, leg{from: s.BeginCheckpoint()}
	}
}

// Record is the events of a State since a moment.
type Record struct {
	from      *Checkpoint
	events    [][]noted
	resources []string
}

// Recorded returns the record, nil without State.Record. It costs next to nothing, unless a checkpoint is not complete.
func (s *State) Recorded() *Record {
	f := s.flight
	s.ContinueCheckpoint(math.MaxInt)
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
			switch n := n.(type) {
			case *definition:
				events = append(events, SetWorkload(n.workload(r.resources)))
			case Event:
				events = append(events, n)
			}
		}
	}
	return r.from.Snapshot(), events
}

// noteUnsettled notes workloads whose admission was retracted in this step: there need not be a decision about them.
func (f *recorder) noteUnsettled(s *State) {
	if f == nil {
		return
	}
	for _, wl := range s.world.Unsettled() {
		if wl.Retractions > 0 {
			f.touch(s.byNumber.All[wl.Record])
		}
	}
}
