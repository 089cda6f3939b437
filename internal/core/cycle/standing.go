package cycle

import "github.com/berth-project/berth/internal/core/order"

// SetStanding sets the standing of a LocalQueue line of a queue. No workload becomes active by it: only which of the active ones is the
// head, and which inadmissible class is activated next. spec: 20 §4.4.
func (w *World) SetStanding(q *Queue, line int32, standing order.Standing) {
	w.applyEdits()
	q.Pending.SetStanding(line, standing)
	w.activate(q)
}
