package metrics

import (
	"strconv"
	"time"

	"github.com/berth-project/berth/internal/state"
)

// Phases of the scheduler.
const (
	PhaseEvents   = "events"   // events are applied to the state
	PhaseDecide   = "decide"   // scheduling cycles
	PhaseDispatch = "dispatch" // decisions are passed to the writers
	PhaseWrite    = "write"    // one decision is written
)

// locked runs f under the lock, not on a nil Recorder.
func (r *Recorder) locked(f func()) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// with runs f with the label of the role, under the lock.
func (r *Recorder) with(f func(role []string)) {
	r.locked(func() { f([]string{r.options.role()}) })
}

// Cycles counts the scheduling cycles of a step that took the given time in all: with and without an admission.
func (r *Recorder) Cycles(successes, failures int, took time.Duration) {
	if successes+failures == 0 {
		return
	}
	r.with(func(role []string) {
		each := took.Seconds() / float64(successes+failures)
		for result, n := range map[string]int{"success": successes, "inadmissible": failures} {
			if n > 0 {
				r.scheduler.attempts.add(float64(n), []string{result}, role)
			}
			for range n {
				r.scheduler.attemptTime.observe(each, []string{result}, role)
			}
		}
	})
}

// Phase observes the duration of a phase.
func (r *Recorder) Phase(phase string, took time.Duration) {
	r.with(func(role []string) { r.scheduler.phases.observe(took.Seconds(), []string{phase}, role) })
}

// ObserveTurn observes the duration of a turn of the engine.
func (r *Recorder) ObserveTurn(took time.Duration) {
	r.with(func(role []string) { r.scheduler.turns.observe(took.Seconds(), role) })
}

// PreemptionSkips sets the number of preemptors of a ClusterQueue that were passed over in the last scheduling cycle with any, since
// others preempt their victims. A deleted queue has no series, even if its last cycle is reported late; so it is with other methods of queues.
func (r *Recorder) PreemptionSkips(queue string, n int) {
	r.locked(func() {
		if r.queues[queue] != nil {
			r.skips[queue] = n
		}
	})
}

// Recomputed counts a recomputation of victims in one cycle. result is a cycle.Recomputed. spec: 10 §5.4.
func (r *Recorder) Recomputed(queue, result string) {
	r.with(func(role []string) {
		if r.queues[queue] != nil {
			r.scheduler.recomputations.add(1, []string{queue, result}, r.queueValues(queue), role)
		}
	})
}

// Preempted counts a victim once its eviction is written: the ClusterQueue of the preemptor, its own, and the reason.
func (r *Recorder) Preempted(by, of, reason string) {
	r.with(func(role []string) {
		if r.queues[by] == nil {
			return
		}
		r.scheduler.preempted.add(1, []string{by, reason}, r.queueValues(by), role)
		if r.queues[of] != nil {
			r.scheduler.preemptedOf.add(1, []string{by, of, reason}, role)
		}
	})
}

// WorkloadCreated observes the delay between the creation of a job and that of its Workload. Only generation 1 counts.
func (r *Recorder) WorkloadCreated(jobKind string, generation int64, namespace, localQueue string, after time.Duration) {
	if generation > 1 {
		return
	}
	r.with(func(role []string) {
		r.scheduler.creation.observe(after.Seconds(), []string{jobKind}, r.localQueueValues(state.Name{Namespace: namespace, Name: localQueue}), role)
	})
}

// GateRemoved observes the delay between the admission of a Workload and the removal of a scheduling gate of its pod. group is true for a
// pod group.
func (r *Recorder) GateRemoved(gate, queue string, group bool, after time.Duration) {
	isGroup := "false"
	if group {
		isGroup = "true"
	}
	r.with(func(role []string) {
		if r.queues[queue] != nil {
			r.scheduler.ungating.observe(after.Seconds(), []string{gate, queue, isGroup}, r.queueValues(queue), role)
		}
	})
}

// EventsShed counts events that were not sent because the budget was exhausted.
func (r *Recorder) EventsShed(reason string, n int) {
	r.with(func(role []string) { r.scheduler.shed.add(float64(n), []string{reason}, role) })
}

// ProgressReported counts an answer to a progress report of training code.
func (r *Recorder) ProgressReported(code int) {
	r.with(func(role []string) { r.scheduler.reports.add(1, []string{strconv.Itoa(code)}, role) })
}

// PatchConflict counts a write of a TrainJob in which managers of runtime patches contradict each other.
func (r *Recorder) PatchConflict(policy string) {
	r.with(func(role []string) { r.scheduler.patchConflicts.add(1, []string{policy}, role) })
}

// PatchDenied counts a write of a TrainJob that was refused for its runtime patches.
func (r *Recorder) PatchDenied(reason string) {
	r.with(func(role []string) { r.scheduler.patchesDenied.add(1, []string{reason}, role) })
}

// Dispatched counts a Workload that was created on a worker cluster.
func (r *Recorder) Dispatched(queue, cluster string) {
	r.with(func(role []string) { r.scheduler.dispatched.add(1, []string{queue, cluster}, role) })
}

// RemotelyAdmitted counts a Workload that a worker cluster admitted.
func (r *Recorder) RemotelyAdmitted(queue, cluster string) {
	r.with(func(role []string) { r.scheduler.remotelyAdmitted.add(1, []string{queue, cluster}, role) })
}
