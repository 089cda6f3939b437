package engine

import "github.com/berth-project/berth/internal/state"

// eventsPerTurn is the most events that are applied before decisions are made: some milliseconds of work.
const eventsPerTurn = 128

// inbox is the events that wait for a turn, in the order of their posting. Several updates of one workload are one event.
type inbox struct {
	events []posted
	taken  int            // events that were taken since the inbox was empty
	by     map[string]int // by UID, the place of the last event about a workload, taken ones counted
	last   uint64         // the number of the last event
}

// posted is an event with its number.
type posted struct {
	state.Event
	number uint64
	uid    string // of its workload, "" for none
	alone  bool   // no other event of the inbox is about its workload
}

func (in *inbox) add(e state.Event) {
	in.last++
	p := posted{Event: e, number: in.last, uid: state.UID(e), alone: true}
	if p.uid != "" {
		if place, known := in.by[p.uid]; known {
			earlier := &in.events[place-in.taken]
			if state.Supersedes(e, earlier.Event) {
				earlier.Event = e
				return
			}
			earlier.alone, p.alone = false, false
		}
		if in.by == nil {
			in.by = map[string]int{}
		}
		in.by[p.uid] = in.taken + len(in.events)
	}
	in.events = append(in.events, p)
}

// takeTurn removes the first events, at most eventsPerTurn. Events that only release quota come before the others, which find it
// free. applied is the number up to which no event is left.
func (in *inbox) takeTurn() (events []state.Event, applied uint64) {
	n := min(len(in.events), eventsPerTurn)
	events = make([]state.Event, 0, n)
	for _, releases := range []bool{true, false} {
		for i := range in.events[:n] {
			if p := &in.events[i]; (p.uid != "" && p.alone && state.Releases(p.Event)) == releases {
				events = append(events, p.Event)
			}
		}
	}
	if n == len(in.events) {
		in.events, in.by, in.taken = nil, nil, 0
		return events, in.last
	}
	for i := range in.events[:n] {
		if p := &in.events[i]; p.uid != "" && in.by[p.uid] == in.taken+i {
			delete(in.by, p.uid)
		}
	}
	clear(in.events[:n])
	in.events, in.taken = in.events[n:], in.taken+n
	return events, in.events[0].number - 1
}
