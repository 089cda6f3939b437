package state

import (
	"fmt"
	"iter"

	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// PendingList is the pending workloads of a ClusterQueue in a Model: all in line, those in backoff, and those whose admission is not
// written yet. spec: 70 §4.6.
type PendingList struct{ *queueView }

// PendingWorkload is a pending workload.
type PendingWorkload struct{ *entry }

// UID returns its UID.
func (w PendingWorkload) UID() string { return w.wl.UID }

// Name returns its namespace and its name.
func (w PendingWorkload) Name() (namespace, name string) { return w.wl.Split() }

// Priority returns its effective priority.
func (w PendingWorkload) Priority() int64 { return w.wl.Priority }

// Created returns its creation time.
func (w PendingWorkload) Created() workload.Instant { return w.created }

// LocalQueue returns the name of its LocalQueue, which is in its own namespace.
func (w PendingWorkload) LocalQueue() string { return w.lq.name.Name }

// Placed is a pending workload with its place in line.
type Placed struct {
	PendingWorkload
	InClusterQueue, InLocalQueue int32 // from 0
}

// Waiting returns the pending workloads of a ClusterQueue; false if there is none of that name.
func (m *Model) Waiting(queue string) (PendingList, bool) {
	q := m.queue(queue)
	return PendingList{q}, q != nil
}

// Len is the number of workloads.
func (l PendingList) Len() int {
	n := l.line.Len()
	for lq := range l.lines.all() {
		n += lq.waiting.Len()
	}
	return n
}

// prioritized returns the entry of the prioritized workload, or nil.
func (q *queueView) prioritized() *entry {
	if q.first == nil {
		return nil
	}
	line := q.line
	if q.firstLine != nil {
		line = q.firstLine.waiting
	}
	if e, _, found := line.find(func(e *entry) int { return order.Compare(e.wl, q.first) }); found && e.wl == q.first {
		return e
	}
	return nil
}

// inOrder returns the pending workloads in the order of the queue. spec: 10 §4.4.
func (q *queueView) inOrder() iter.Seq[*entry] {
	if q.UsageBased {
		return q.lineInOrder
	}
	return func(yield func(*entry) bool) {
		first := q.prioritized()
		if first != nil && !yield(first) {
			return
		}
		for e := range q.line.all() {
			if e != first && !yield(e) {
				return
			}
		}
	}
}

// place returns the number of workloads before a pending one.
func (q *queueView) place(e *entry) int {
	if q.UsageBased {
		return q.placeInLines(e)
	}
	_, before, _ := q.line.find(func(o *entry) int { return compareEntries(o, e) })
	switch first := q.prioritized(); {
	case first == e:
		return 0
	case first != nil && compareEntries(first, e) > 0:
		return before + 1
	}
	return before
}

// Page returns up to limit workloads in the order of the queue, after the first offset. With
// a LocalQueue it counts and returns the workloads of that LocalQueue; places are always among all. It costs a pass over the line up
// to the last of the page. spec: 70 §4.6.
func (l PendingList) Page(in *Name, offset, limit int64) []Placed {
	page := make([]Placed, 0, max(0, min(limit, int64(l.Len())-offset)))
	places := map[*localQueue]int32{}
	at, matched := int32(-1), int64(0)
	for e := range l.inOrder() {
		if int64(len(page)) >= limit {
			break
		}
		at++
		place := places[e.lq]
		places[e.lq]++
		if in != nil && e.lq.name != *in {
			continue
		}
		if matched++; matched > offset {
			page = append(page, Placed{PendingWorkload{e}, at, place})
		}
	}
	return page
}

// AttemptNow evaluates a workload in line now, and decides nothing: it returns the last decision about it with present figures, and its place
// in line from 0. Of other workloads it returns Attempt, and −1. It is for questions that Model.Last does not answer.
func (s *State) AttemptNow(uid string) (attempt *trace.Attempt, place int) {
	r := s.records[uid]
	if r == nil || r.in == nil || r.wl.Reserved {
		return s.Attempt(uid), -1
	}
	m := s.Publish()
	q, e := m.queue(r.in.Name), *s.read.entries.at(r.first.Record)
	place = q.place(e)
	last, known := m.last(q, e)
	if !known || last.reason == trace.PendingEvaluation && last.of == "" {
		last.said = said{verdict: trace.Waits, reason: trace.PendingEvaluation, note: fmt.Sprintf("number %d in line of ClusterQueue %s", place+1, q.Name)}
	}
	attempt = &trace.Attempt{Workload: r.wl.Key, UID: uid, Queue: q.Name, Priority: r.wl.Priority}
	if q.inactive == "" {
		attempt = s.world.Explain(r.wl)
	}
	attempt.Verdict, attempt.Reason, attempt.Note, attempt.Victims = last.verdict, last.reason, last.note, last.victims
	return attempt, place
}

// Holders returns the workloads with a reservation in a ClusterQueue, the most urgent and oldest first.
func (m *Model) Holders(queue string) iter.Seq[PendingWorkload] {
	return func(yield func(PendingWorkload) bool) {
		q := m.queue(queue)
		if q == nil {
			return
		}
		for e := range q.held.all() {
			if !yield(PendingWorkload{e}) {
				return
			}
		}
	}
}
