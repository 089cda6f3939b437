package state

import (
	"fmt"
	"slices"

	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Roll is everyone who waits in a ClusterQueue, as of one moment: those in line, parked
// or not, and those whose admission is not written down yet. Taking it costs the owner
// of the state one pass over them; it is put in order at the first page that is asked of
// it, by whoever holds it, while the state goes on. spec: 70 §4.6.
type Roll struct {
	waiters []Waiter
	first   *workload.Workload // the one that goes before all others, or nil
	sorted  bool
}

// Waiter is a workload that waits.
type Waiter struct {
	// Of wl only what never changes is read, since the state goes on: UID, Key, Priority
	// and Since. A workload that gets another of these gets another value, see
	// State.intern. The name of a LocalQueue does not change either.
	wl      *workload.Workload
	lane    *Name
	created workload.Instant
}

// UID of the workload.
func (w Waiter) UID() string { return w.wl.UID }

// Name returns its namespace and its name.
func (w Waiter) Name() (namespace, name string) { return w.wl.Split() }

// Priority that orders the queue.
func (w Waiter) Priority() int64 { return w.wl.Priority }

// Created is when it was made.
func (w Waiter) Created() workload.Instant { return w.created }

// LocalQueue is the name of its LocalQueue, which is in its own namespace.
func (w Waiter) LocalQueue() string { return w.lane.Name }

// Placed is a waiter with its place in line.
type Placed struct {
	Waiter
	InClusterQueue, InLocalQueue int32 // from 0
}

// Waiting copies who waits in a ClusterQueue; false if there is none of that name.
func (s *State) Waiting(queue string) (*Roll, bool) {
	q := s.queues[queue]
	if q == nil {
		return nil, false
	}
	roll := &Roll{
		waiters: make([]Waiter, 0, q.q.Pending.Active()+q.q.Pending.Parked()),
		first:   q.q.Pending.Sticky(),
	}
	s.eachWaiting(q, func(r *record) {
		roll.waiters = append(roll.waiters, Waiter{r.wl, &r.lane.name, r.def.Created})
	})
	return roll, true
}

// eachWaiting visits those who wait in a ClusterQueue, in no order that means anything.
func (s *State) eachWaiting(q *queue, visit func(*record)) {
	for _, l := range s.heading(q.def.Name) {
		for r := l.records; r != nil; r = r.next {
			if (r.def.rests() && !l.def.Stopped) || r.in == q.q && (!r.wl.Reserved || (r.assumed() && !r.def.Reserved)) {
				visit(r)
			}
		}
	}
}

// PointsTo returns the name of the ClusterQueue that a LocalQueue points to, whether
// that exists or not; false if there is no such LocalQueue.
func (s *State) PointsTo(namespace, localQueue string) (queue string, ok bool) {
	l := s.localQueues[Name{namespace, localQueue}]
	if l == nil || !l.exists {
		return "", false
	}
	return l.def.Queue, true
}

// compare is the order of the queue. spec: 10 §4.4.
func (r *Roll) compare(a, b Waiter) int {
	switch {
	case a.wl == b.wl:
		return 0
	case a.wl == r.first:
		return -1
	case b.wl == r.first:
		return 1
	}
	return order.Compare(a.wl, b.wl)
}

// Len is how many wait.
func (r *Roll) Len() int { return len(r.waiters) }

// Page returns up to limit of them in the order of the queue, after the first offset.
// With a LocalQueue it counts and returns those of that one only; places are those among
// all. spec: 70 §4.6.
func (r *Roll) Page(localQueue *Name, offset, limit int64) []Placed {
	if !r.sorted {
		slices.SortFunc(r.waiters, r.compare)
		r.sorted = true
	}
	page := make([]Placed, 0, max(0, min(limit, int64(len(r.waiters))-offset)))
	places := map[*Name]int32{}
	matched := int64(0)
	for i := range r.waiters {
		if int64(len(page)) >= limit {
			break
		}
		w := &r.waiters[i]
		place := places[w.lane]
		places[w.lane]++
		if localQueue != nil && *w.lane != *localQueue {
			continue
		}
		if matched++; matched > offset {
			page = append(page, Placed{*w, int32(i), place})
		}
	}
	return page
}

// LookNow is Look for whoever asks why: what Look knows, and of a workload about which
// nothing was decided here, as on a replica that does not decide, what a look would find
// as things are. It also returns its place in line from 0, −1 if it has none.
func (s *State) LookNow(uid string) (look *trace.Look, place int) {
	r := s.records[uid]
	if r == nil || r.in == nil || r.wl.Reserved {
		return s.Look(uid), -1
	}
	place = s.placeInLine(r)
	if r.said != nil {
		return s.Look(uid), place
	}
	note := fmt.Sprintf("number %d in line of ClusterQueue %s", place+1, r.in.Name)
	look = &trace.Look{Workload: r.wl.Key, UID: uid, Queue: r.in.Name, Priority: r.wl.Priority}
	if r.in.Closed == "" {
		look = s.world.Explain(r.wl)
	} else {
		note += ", which is inactive: " + r.in.Closed
	}
	look.Verdict, look.Reason, look.Note = trace.Waits, trace.PendingEvaluation, note
	return look, place
}

// placeInLine counts who comes before a workload that waits.
func (s *State) placeInLine(r *record) int {
	sticky := r.in.Pending.Sticky()
	if r.wl == sticky {
		return 0
	}
	before := 0
	s.eachWaiting(s.queues[r.in.Name], func(o *record) {
		if o.wl == sticky || order.Compare(o.wl, r.wl) < 0 {
			before++
		}
	})
	return before
}
