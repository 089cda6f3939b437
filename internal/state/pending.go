package state

import (
	"fmt"
	"slices"

	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// PendingList is the pending workloads of a ClusterQueue at one moment: all in line, and those
// whose admission is not written yet. Making it costs the owner of the state one pass over
// them; the first Page sorts it, in the goroutine of its caller. spec: 70 §4.6.
type PendingList struct {
	workloads []PendingWorkload
	first     *workload.Workload // the prioritized workload, or nil
	sorted    bool
}

// PendingWorkload is a pending workload.
type PendingWorkload struct {
	// Only the immutable fields of wl are read, since the state changes: UID, Key, Priority
	// and Since. A change of these makes another value, see State.intern. The name of a
	// LocalQueue does not change either.
	wl      *workload.Workload
	lq      *Name
	created workload.Instant
}

// UID returns its UID.
func (w PendingWorkload) UID() string { return w.wl.UID }

// Name returns its namespace and its name.
func (w PendingWorkload) Name() (namespace, name string) { return w.wl.Split() }

// Priority returns its effective priority.
func (w PendingWorkload) Priority() int64 { return w.wl.Priority }

// Created returns its creation time.
func (w PendingWorkload) Created() workload.Instant { return w.created }

// LocalQueue returns the name of its LocalQueue, which is in its own namespace.
func (w PendingWorkload) LocalQueue() string { return w.lq.Name }

// Placed is a pending workload with its place in line.
type Placed struct {
	PendingWorkload
	InClusterQueue, InLocalQueue int32 // from 0
}

// Waiting returns the pending workloads of a ClusterQueue; false if there is none of that name.
func (s *State) Waiting(queue string) (*PendingList, bool) {
	q := s.queues[queue]
	if q == nil {
		return nil, false
	}
	list := &PendingList{
		workloads: make([]PendingWorkload, 0, q.q.Pending.Active()+q.q.Pending.Inadmissible()),
		first:     q.q.Pending.Prioritized(),
	}
	s.eachWaiting(q, func(r *record) {
		list.workloads = append(list.workloads, PendingWorkload{r.wl, &r.lq.name, r.def.Created})
	})
	return list, true
}

// eachWaiting visits the pending workloads of a ClusterQueue, in no particular order.
func (s *State) eachWaiting(q *queue, visit func(*record)) {
	for _, l := range s.leadingTo(q.def.Name) {
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
func (r *PendingList) compare(a, b PendingWorkload) int {
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

// Len is the number of workloads.
func (r *PendingList) Len() int { return len(r.workloads) }

// Page returns up to limit workloads in the order of the queue, after the first offset. With
// a LocalQueue it counts and returns the workloads of that LocalQueue; places are always among all.
// spec: 70 §4.6.
func (r *PendingList) Page(localQueue *Name, offset, limit int64) []Placed {
	if !r.sorted {
		slices.SortFunc(r.workloads, r.compare)
		r.sorted = true
	}
	page := make([]Placed, 0, max(0, min(limit, int64(len(r.workloads))-offset)))
	places := map[*Name]int32{}
	matched := int64(0)
	for i := range r.workloads {
		if int64(len(page)) >= limit {
			break
		}
		w := &r.workloads[i]
		place := places[w.lq]
		places[w.lq]++
		if localQueue != nil && *w.lq != *localQueue {
			continue
		}
		if matched++; matched > offset {
			page = append(page, Placed{*w, int32(i), place})
		}
	}
	return page
}

// LookNow is Look for the visibility API: of a workload without a decision, as on a replica
// that does not decide, it returns the outcome of an evaluation now. It also returns the place
// in line from 0, −1 for none.
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

// placeInLine counts the workloads before a pending one.
func (s *State) placeInLine(r *record) int {
	sticky := r.in.Pending.Prioritized()
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
