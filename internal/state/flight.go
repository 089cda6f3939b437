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
	published   *Record
	// waits: nothing is recorded before a step has left nothing to do. An engine that does not decide, as on a standby, would keep all
	// events: legs end with steps.
	waits bool
}

// leg is a part of the record: a checkpoint, and the events after it. A copy of it stays as it is: nothing that it shows is written to.
type leg struct {
	from   *Checkpoint
	full   [][]noted // in pieces, so that none is ever copied
	last   []noted   // the piece that is not full
	number int       // of events
	bytes  int       // of the constraints of their workloads
}

// noted is an Event or, to save memory, the *definition that an event gave to a record.
type noted any

// piece is the number of events in a piece.
const piece = 1024

func (l *leg) note(n noted) {
	if len(l.last) == cap(l.last) {
		if l.last != nil {
			l.full = append(l.full, l.last)
		}
		l.last = make([]noted, 0, piece)
	}
	l.last = append(l.last, n)
	l.number++
	if def, is := n.(*definition); is {
		for _, text := range def.shape.texts {
			l.bytes += len(text)
		}
	}
}

// maxBytes is how many bytes of constraints a leg has, about. It alone keeps the constraints of deleted workloads.
const maxBytes = 16 << 20

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

// RecordDecided is Record from the first step on that leaves nothing to do.
func (s *State) RecordDecided(events int) {
	s.Record(events)
	s.flight.waits, s.flight.last = true, leg{}
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
		r := s.byNumber.record(number)
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
	if f != nil && !f.waits {
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
	if f.waits {
		if f.waits = r.More; !f.waits {
			f.last.from = s.Checkpoint()
		}
		return
	}
	f.note(Step{Now: now, Budget: budget, Cycles: r.Cycles, Hash: Hash(r.Decisions)})
	if !r.More && (f.last.number >= max(f.least, len(s.records)/workloadsPerLeg) || f.last.bytes > maxBytes) {
		f.older, f.last = f.last, leg{from: s.BeginCheckpoint()}
	}
}

// Record is the events of a State since a moment.
type Record struct {
	older, last leg
	resources   []string
}

// hasNews reports whether anything was recorded since the last call of publish.
func (f *recorder) hasNews() bool {
	return f != nil && !f.waits && (f.published == nil || f.published.last.number != f.last.number || f.published.last.from != f.last.from)
}

// publish returns the record for a Model, nil without a recorder.
func (f *recorder) publish(in *Model) *Record {
	if f.hasNews() {
		f.published = &Record{f.older, f.last, *in.resources}
	}
	if f == nil {
		return nil
	}
	return f.published
}

// Record returns the events that led to the Model, nil if they are not recorded. See State.Record.
func (m *Model) Record() *Record { return m.flight }

// Contents returns a Snapshot, and the events since. It may be called in any goroutine, while the State changes.
func (r *Record) Contents() (from *Snapshot, events []Event) {
	checkpoint := r.last.from
	legs := []leg{r.last}
	if r.older.from != nil { // then that of the last one may not be complete
		checkpoint, legs = r.older.from, []leg{r.older, r.last}
	}
	for _, l := range legs {
		for _, piece := range append(slices.Clip(l.full), l.last) {
			for _, n := range piece {
				switch n := n.(type) {
				case *definition:
					events = append(events, SetWorkload(n.workload(r.resources)))
				case Event:
					events = append(events, n)
				}
			}
		}
	}
	return checkpoint.Snapshot(), events
}

// noteUnsettled notes workloads whose admission was retracted in this step: there need not be a decision about them.
func (f *recorder) noteUnsettled(s *State) {
	if f == nil {
		return
	}
	for _, wl := range s.world.Unsettled() {
		if wl.Retractions > 0 {
			f.touch(s.byNumber.record(wl.Record))
		}
	}
}
