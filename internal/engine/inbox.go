package engine

import "github.com/berth-project/berth/internal/state"

// eventsPerTurn is the most events that are applied before decisions are made.
const eventsPerTurn = 128

// inbox is the events that wait for a turn, in the order of their posting. Several updates of one workload are one event. Each event has
// a place, which counts from when the inbox was empty. The events are in pieces, so that a long inbox is never copied.
type inbox struct {
	pieces [][]posted     // each has pieceLen events, the last one up to as many
	taken  int            // the number of events that were taken, also of the first piece
	added  int            // the number of events that were added
	gone   int            // the number of pieces that were taken whole
	by     map[string]int // by UID, the place of the last event about a workload
	last   uint64         // the number of the last event
}

// pieceLen is the number of events in a piece of an inbox.
const pieceLen = 1024

// posted is an event with its number.
type posted struct {
	state.Event
	number uint64
	uid    string // of its workload, "" for none
	alone  bool   // no other event of the inbox is about its workload
}

// Len returns the number of events that wait.
func (in *inbox) Len() int { return in.added - in.taken }

// at returns the event at a place.
func (in *inbox) at(place int) *posted { return &in.pieces[place/pieceLen-in.gone][place%pieceLen] }

func (in *inbox) add(e state.Event) {
	in.last++
	p := posted{Event: e, number: in.last, uid: state.UID(e), alone: true}
	if p.uid != "" {
		if place, known := in.by[p.uid]; known {
			earlier := in.at(place)
			if state.Supersedes(e, earlier.Event) {
				earlier.Event = e
				return
			}
			earlier.alone, p.alone = false, false
		}
		if in.by == nil {
			in.by = map[string]int{}
		}
		in.by[p.uid] = in.added
	}
	piece := in.added/pieceLen - in.gone
	if piece == len(in.pieces) {
		in.pieces = append(in.pieces, make([]posted, 0, pieceLen))
	}
	in.pieces[piece] = append(in.pieces[piece], p)
	in.added++
}

// takeTurn removes the first events, at most eventsPerTurn. Events that only release quota come before the others, which find it
// free. applied is the number up to which no event is left.
func (in *inbox) takeTurn() (events []state.Event, applied uint64) {
	end := in.taken + min(in.Len(), eventsPerTurn)
	events = make([]state.Event, 0, end-in.taken)
	for _, releases := range []bool{true, false} {
		for place := in.taken; place < end; place++ {
			if p := in.at(place); (p.uid != "" && p.alone && state.Releases(p.Event)) == releases {
				events = append(events, p.Event)
			}
		}
	}
	if end == in.added {
		in.empty()
		return events, in.last
	}
	for ; in.taken < end; in.taken++ {
		p := in.at(in.taken)
		if p.uid != "" && in.by[p.uid] == in.taken {
			delete(in.by, p.uid)
		}
		*p = posted{}
	}
	for ; in.taken/pieceLen > in.gone; in.gone++ {
		in.pieces = in.pieces[1:]
	}
	return events, in.at(in.taken).number - 1
}

// empty removes all events. The memory of a short inbox is kept for the next ones.
func (in *inbox) empty() {
	if in.added > pieceLen {
		*in = inbox{last: in.last}
		return
	}
	clear(in.by)
	for i := range in.pieces {
		clear(in.pieces[i])
		in.pieces[i] = in.pieces[i][:0]
	}
	in.taken, in.added = 0, 0
}
