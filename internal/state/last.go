package state

import (
	"fmt"
	"iter"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Last is the last decision about a workload, as a Model has it: of its own evaluation, or of an equivalent workload that failed
// before it. spec: 10 §4.4, §4.10.
type Last struct {
	PendingWorkload
	said
	model *Model
	queue *queueView
	of    string // the UID of the workload that was evaluated, "" for none
}

// Reason returns why it has no quota reservation.
func (l *Last) Reason() trace.Reason { return l.reason }

// Lasts returns the last decisions about all workloads in line, in no particular order. Workloads of which nothing new is known
// are left out.
func (m *Model) Lasts() iter.Seq[Last] {
	return func(yield func(Last) bool) {
		for q := range m.queues.all() {
			for e := range q.waiting() {
				if l, ok := m.last(q, e); ok && !yield(l) {
					return
				}
			}
		}
	}
}

// Find returns the last decision about a workload in the line of a ClusterQueue, and its place there from 0, or about one with a written
// reservation there, and −1; false for others, and where nothing new is known. It costs a search if the engine knows the same priority and
// queue timestamp, else a pass over the line.
func (m *Model) Find(queue, uid string, priority int64, since workload.Instant) (l Last, place int, found bool) {
	q := m.queue(queue)
	if q == nil {
		return Last{}, -1, false
	}
	e := q.find(&workload.Workload{UID: uid, Priority: priority, Since: since})
	if e == nil {
		for other := range q.waiting() {
			if other.wl.UID == uid {
				e = other
				break
			}
		}
	}
	switch {
	case e == nil:
		return Last{}, -1, false
	case e.held != nil && e.held.held != nil:
		return Last{PendingWorkload: PendingWorkload{e}, said: said{verdict: trace.Admitted}, model: m, queue: q}, -1, true
	}
	if l, found = m.last(q, e); found {
		place = q.place(e)
	}
	return l, place, found
}

// find returns the entry of a workload that is pending or has a reservation, given what decides its place in line; nil if there is none.
func (q *queueView) find(w *workload.Workload) *entry {
	compare := func(e *entry) int { return order.Compare(e.wl, w) }
	if e, _, found := q.line.find(compare); found {
		return e
	}
	for l := range q.lines.all() {
		if e, _, found := l.waiting.find(compare); found {
			return e
		}
	}
	e, _, _ := q.held.find(compare)
	return e
}

// last returns the last decision about a workload in the line of a queue; false where nothing new is known.
func (m *Model) last(q *queueView, e *entry) (Last, bool) {
	if !e.has(inLine) {
		return Last{}, false
	}
	l := Last{PendingWorkload: PendingWorkload{e}, model: m, queue: q}
	waits := func(reason trace.Reason, note string) (Last, bool) {
		l.said = said{verdict: trace.Waits, reason: reason, note: note}
		return l, true
	}
	if q.inactive != "" {
		return waits(trace.Suspended, inactive(q.Name, q.inactive))
	}
	by := q.evaluated(e)
	if by != nil && (e.has(alone) || by.wl.UID == e.wl.UID) {
		by = nil
	}
	if own := e.said; own.waits() && own.reason != trace.Suspended && (by == nil || own.reason != trace.Misconfigured) {
		l.said, l.of = *own, e.wl.UID
		return l, true
	}
	switch {
	case by == nil:
	case by.said.waits():
		l.of = by.wl.UID
		return waits(by.said.reason, by.said.note)
	case e.has(told): // what failed is not known any more: its message stays
		return Last{}, false
	}
	if reason, note := m.misfit(q, e.wl); reason != "" && by == nil {
		return waits(reason, note)
	}
	return waits(trace.PendingEvaluation, "it is not evaluated yet, others of ClusterQueue "+q.Name+" come first")
}

// misfit returns why a queue does not take a workload whatever quota is free, "" if it does.
func (m *Model) misfit(q *queueView, wl *workload.Workload) (trace.Reason, string) {
	namespace, _ := wl.Split()
	n, _, exists := m.namespaces.find(func(n *Namespace) int { return compareNamespaces(n, &Namespace{Name: namespace}) })
	if !exists {
		n = &Namespace{}
	}
	reason, note, _ := cycle.Misfit(q.Name, q.Namespaces, wl, n.Labels, exists)
	return reason, note
}

// Attempt returns the decision with the trace of its evaluation; false if that is not kept, or there was no evaluation.
func (l *Last) Attempt() (*trace.Attempt, bool) {
	if l.verdict == trace.Admitted {
		return attemptOfHeld(l.wl, l.queue.Name, l.held.held), true
	}
	attempt := &trace.Attempt{}
	if l.of != "" {
		if attempt = l.model.trace(l.queue.index, l.of); attempt == nil || attempt.Reason != l.reason || attempt.Note != l.note {
			return nil, false
		}
	} else if l.reason == trace.PendingEvaluation {
		return nil, false
	}
	out := l.Outcome()
	out.PodSets, out.Refusals, out.WakesOn, out.Table = attempt.PodSets, attempt.Refusals, attempt.WakesOn, attempt.Table
	return out, true
}

// Outcome returns the decision without the trace of its evaluation.
func (l *Last) Outcome() *trace.Attempt {
	return &trace.Attempt{
		Workload: l.wl.Key, UID: l.wl.UID, Queue: l.queue.Name, Priority: l.wl.Priority, Verdict: l.verdict, Reason: l.reason, Note: l.note,
		Victims: l.victims, Start: l.start,
	}
}

// Unqueued returns why the workloads of a LocalQueue are in no line, "" if they are in one. name is "" for workloads without a LocalQueue.
func (m *Model) Unqueued(namespace, name string) (trace.Reason, string) {
	l := m.localQueue(Name{namespace, name})
	if l == nil {
		return unqueued(Name{namespace, name}, nil, false)
	}
	return unqueued(l.Name, &LocalQueue{Queue: l.queue, Stopped: l.stopped, Deleted: l.deleted}, m.queue(l.queue) != nil)
}

// unqueued is Unqueued, given the definition of the LocalQueue, nil for none, and whether its ClusterQueue exists.
func unqueued(name Name, def *LocalQueue, queueExists bool) (trace.Reason, string) {
	switch {
	case name.Name == "":
		return trace.Misconfigured, "it names no LocalQueue; set the label kueue.x-k8s.io/queue-name"
	case def == nil:
		return trace.Misconfigured, fmt.Sprintf("LocalQueue %s doesn't exist in namespace %s; create it or name another", name.Name, name.Namespace)
	case def.Deleted:
		return trace.Misconfigured, fmt.Sprintf("LocalQueue %s is being deleted", name.Name)
	case def.Stopped:
		return trace.Suspended, fmt.Sprintf("LocalQueue %s is stopped (stopPolicy)", name.Name)
	case !queueExists:
		return trace.Misconfigured, fmt.Sprintf("ClusterQueue %s, which LocalQueue %s points to, doesn't exist", def.Queue, name.Name)
	}
	return "", ""
}

// inactive is why the workloads in the line of a ClusterQueue wait that is closed for a reason.
func inactive(queue, why string) string { return "ClusterQueue " + queue + " is inactive: " + why }
