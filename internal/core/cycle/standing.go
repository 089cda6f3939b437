package cycle

import (
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/workload"
)

// SetStanding sets the standing of a LocalQueue line of a queue. No workload becomes active by it: only which of the active ones is the
// head, and which inadmissible class is activated next. spec: 20 §4.4.
func (w *World) SetStanding(q *Queue, line int32, standing order.Standing) {
	w.applyEdits()
	q.Pending.SetStanding(line, standing)
	w.activate(q)
}

// assumed updates the standing of a LocalQueue line after an admission, or one that is retracted: the next head of the same run is
// already chosen by it.
func (w *World) assumed(q *Queue, wl *workload.Workload, admitted bool) {
	if !q.UsageBased {
		return
	}
	if standing, changed := w.Assumed(wl, admitted); changed {
		q.Pending.SetStanding(wl.Line, standing)
	}
}
