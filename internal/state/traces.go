package state

import (
	"slices"

	"github.com/berth-project/berth/internal/core/trace"
)

// The traces of the last evaluations are kept for readers: of the last few workloads that each queue has evaluated, keptTraces in all,
// but at least one and at most tracesPerQueue for each queue. A trace takes one to three kilobytes.
const (
	keptTraces     = 1024
	tracesPerQueue = 8
)

// traces are the kept traces of all queues, by Queue.Index. The published pages do not change: a page is replaced before its next change.
type traces struct {
	noted []*queue // with traces since the last Publish
	table []*tracePage
}

// tracePage has the traces of some queues, the last one first.
type tracePage [32][]*trace.Attempt

// noteAttempt notes the trace of an evaluation.
func (p *publisher) noteAttempt(q *queue, attempt *trace.Attempt) {
	if p == nil {
		return
	}
	if q.attempts == nil {
		p.traces.noted = append(p.traces.noted, q)
	}
	if len(q.attempts) == tracesPerQueue {
		q.attempts = slices.Delete(q.attempts, 0, 1)
	}
	q.attempts = append(q.attempts, attempt)
}

// dropAttempts forgets the traces of a queue that is deleted.
func (p *publisher) dropAttempts(q *queue) {
	if p == nil {
		return
	}
	if q.attempts == nil {
		p.traces.noted = append(p.traces.noted, q)
	}
	q.attempts = []*trace.Attempt{}
	q.gone = true
}

// publish adds the noted traces to a Model of some number of queues. They are copied: a part of a step's memory would keep all of it.
func (t *traces) publish(m *Model, queues int) {
	if len(t.noted) == 0 {
		return
	}
	limit := min(max(1, keptTraces/max(1, queues)), tracesPerQueue)
	table := slices.Clone(t.table)
	for _, q := range t.noted {
		n, at := tracesAt(q.q.Index)
		for n >= len(table) {
			table = append(table, &tracePage{})
		}
		if n < len(t.table) && table[n] == t.table[n] {
			table[n] = new(*table[n])
		}
		if table[n][at] = q.recent(table[n][at], limit); q.gone {
			table[n][at] = nil
		}
		q.attempts = nil
	}
	clear(t.noted)
	t.noted, t.table = t.noted[:0], table
	m.traces = &table
}

func tracesAt(queue int32) (page, at int) {
	return int(queue) / len(tracePage{}), int(queue) % len(tracePage{})
}

// recent returns the last traces, one for each workload: of the noted ones, and then of older ones.
func (q *queue) recent(older []*trace.Attempt, limit int) []*trace.Attempt {
	out := make([]*trace.Attempt, 0, limit)
	add := func(attempt *trace.Attempt, clone bool) {
		if len(out) == limit || slices.ContainsFunc(out, func(o *trace.Attempt) bool { return o.UID == attempt.UID }) {
			return
		}
		if clone {
			attempt = attempt.Clone()
		}
		out = append(out, attempt)
	}
	for _, attempt := range slices.Backward(q.attempts) {
		add(attempt, true)
	}
	for _, attempt := range older {
		add(attempt, false)
	}
	return out
}

// trace returns the trace of the last evaluation of a workload in a queue, nil if it is not kept.
func (m *Model) trace(queue int32, uid string) *trace.Attempt {
	if m.traces == nil {
		return nil
	}
	n, at := tracesAt(queue)
	if n >= len(*m.traces) {
		return nil
	}
	for _, attempt := range (*m.traces)[n][at] {
		if attempt.UID == uid {
			return attempt
		}
	}
	return nil
}
