package dash

import (
	"sync"
	"time"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Runs that have ended are remembered for remembered, and keptRuns at most: about 4 MB.
const (
	remembered = time.Hour
	keptRuns   = 20_000
)

// run is the time during which a Workload held quota. Its end is zero while it does.
type run struct {
	namespace, name, queue string
	start, end             time.Time
	outcome                string // why it ended, see endOfRun; "" while it holds quota
}

// How runs end.
const (
	runFinished = "finished"
	runFailed   = "failed"
	runEvicted  = "evicted"
	runDeleted  = "deleted"
)

// history has the runs of the last hour that have ended, in the order in which it learned of them. It learns from the events of the cache:
// Workloads may be deleted long before.
type history struct {
	now func() time.Time

	mu   sync.Mutex
	ring []run // keptRuns at most; then the one at next is the oldest
	next int
	// complete is since when it has all: later than an hour ago after more than keptRuns.
	complete time.Time
}

func newHistory(now func() time.Time) *history {
	return &history{now: now, complete: now().Add(-remembered)}
}

// runOf returns the run of a Workload that holds quota or has finished; false for others.
func runOf(w *kueue.Workload) (r run, known bool) {
	if w.Status.Admission == nil {
		return run{}, false
	}
	r = run{namespace: w.Namespace, name: w.Name, queue: string(w.Status.Admission.ClusterQueue)}
	if r.start = lifecycle.TrueSince(w, kueue.WorkloadAdmitted); r.start.IsZero() {
		r.start = lifecycle.TrueSince(w, kueue.WorkloadQuotaReserved)
	}
	return r, !r.start.IsZero()
}

// holds reports whether a Workload holds quota.
func holds(w *kueue.Workload) bool { return lifecycle.IsReserved(w) && !lifecycle.IsFinished(w) }

// observe notes the run of a Workload that has ended. before is nil for one that is new to the cache, and after for one that is deleted.
func (h *history) observe(before, after *kueue.Workload) {
	switch {
	case after == nil:
		if holds(before) {
			h.end(before, h.now(), runDeleted)
		}
	case lifecycle.IsFinished(after):
		if before != nil && lifecycle.IsFinished(before) {
			return
		}
		outcome := runFinished
		if c := lifecycle.Condition(after, kueue.WorkloadFinished); c.Reason == kueue.ReasonFailed {
			outcome = runFailed
		}
		h.end(after, lifecycle.TrueSince(after, kueue.WorkloadFinished), outcome)
	case before != nil && holds(before) && !holds(after):
		at := lifecycle.TrueSince(after, kueue.WorkloadEvicted)
		if at.IsZero() {
			at = h.now()
		}
		h.end(before, at, runEvicted)
	}
}

func (h *history) end(w *kueue.Workload, at time.Time, outcome string) {
	r, known := runOf(w)
	if !known || at.Before(h.now().Add(-remembered)) {
		return
	}
	r.end, r.outcome = at, outcome
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ring) < keptRuns {
		h.ring = append(h.ring, r)
		return
	}
	if lost := h.ring[h.next].end; lost.After(h.complete) {
		h.complete = lost
	}
	h.ring[h.next] = r
	h.next = (h.next + 1) % keptRuns
}

// of returns the runs of a ClusterQueue that have ended within the last hour, in no particular order, and since when these are all.
func (h *history) of(queue string) (runs []run, complete time.Time) {
	from := h.now().Add(-remembered)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.ring {
		if r := &h.ring[i]; r.queue == queue && !r.end.Before(from) {
			runs = append(runs, *r)
		}
	}
	if complete = h.complete; complete.Before(from) {
		complete = from
	}
	return runs, complete
}
