package metrics

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// countTransitions counts the transitions between two consecutive versions of a Workload.
func (r *Recorder) countTransitions(before, after *kueue.Workload) {
	if lifecycle.IsFinished(before) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := transition{r, before, after, []string{r.options.role()}}
	turned := func(is func(*kueue.Workload) bool) bool { return !is(before) && is(after) }
	if turned(lifecycle.IsReserved) {
		t.reserved()
	}
	if turned(lifecycle.IsAdmitted) {
		t.admitted()
	}
	if turned(isReady) && lifecycle.Condition(after, kueue.WorkloadPodsReady).Reason == kueue.ReasonStarted {
		t.ready()
	}
	if turned(lifecycle.IsEvicted) {
		t.evicted()
	}
	if lifecycle.IsReserved(before) && !lifecycle.IsReserved(after) && lifecycle.IsEvicted(after) && !lifecycle.IsFinished(after) {
		t.released()
	}
	if lifecycle.IsFinished(after) {
		t.finished()
	}
}

func isReady(w *kueue.Workload) bool {
	c := lifecycle.Condition(w, kueue.WorkloadPodsReady)
	return c != nil && c.Status == metav1.ConditionTrue
}

// transition is one change of a Workload.
type transition struct {
	*Recorder
	before, after *kueue.Workload
	role          []string
}

// holder returns the version of the Workload with the admission of the change: the one before or, if one change made and ended the
// admission, the one after; nil for none.
func (t *transition) holder() *kueue.Workload {
	for _, w := range []*kueue.Workload{t.before, t.after} {
		if w.Status.Admission != nil {
			return w
		}
	}
	return nil
}

// each calls f for the ClusterQueue and for the LocalQueue of a Workload, if they have series: with the families, the labels that
// identify the queue, and the values of its custom labels.
func (t *transition) each(w *kueue.Workload, f func(life *lifeFamilies, queue, custom []string)) {
	name := localQueueOf(w)
	if queue := t.queueOf(w); queue != "" {
		f(&t.queue.lifeFamilies, []string{queue}, t.queueValues(queue))
	}
	if l := t.localQueues[name]; l != nil && l.shown {
		f(&t.localQueue.lifeFamilies, []string{name.Name, name.Namespace}, l.values)
	}
}

// withWorkload adds the custom labels of the Workload to the families of LocalQueues that have them.
func (t *transition) withWorkload(life *lifeFamilies, custom []string) []string {
	if life != &t.localQueue.lifeFamilies {
		return custom
	}
	return append(slices.Clip(custom), t.custom.values(fromWorkload, t.after)...)
}

// queueOf returns the ClusterQueue of a Workload's reservation, otherwise of its LocalQueue; empty if it does not exist.
func (r *Recorder) queueOf(w *kueue.Workload) string {
	queue := ""
	if a := w.Status.Admission; a != nil {
		queue = string(a.ClusterQueue)
	} else if l := r.localQueues[localQueueOf(w)]; l != nil {
		queue = l.queue
	}
	if r.queues[queue] == nil {
		return ""
	}
	return queue
}

func localQueueOf(w *kueue.Workload) state.Name {
	return state.Name{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}
}

func (t *transition) class() []string {
	name := ""
	if ref := t.after.Spec.PriorityClassRef; ref != nil {
		name = ref.Name
	}
	if !t.classes[name] {
		if len(t.classes) >= maxClasses {
			return []string{untracked}
		}
		t.classes[name] = true
	}
	return []string{name}
}

// A Workload may name any priority class, also one that does not exist. Those after the first maxClasses have one series together.
const maxClasses = 256

// turnedAt returns when a condition got its status.
func turnedAt(w *kueue.Workload, condition string) time.Time {
	return lifecycle.Condition(w, condition).LastTransitionTime.Time
}

func (t *transition) reserved() {
	waited := turnedAt(t.after, kueue.WorkloadQuotaReserved).Sub(lifecycle.InLineSince(t.after)).Seconds()
	t.each(t.after, func(life *lifeFamilies, queue, custom []string) {
		life.reserved.add(1, queue, t.class(), custom, t.role)
		life.reservedWait.observe(waited, queue, t.class(), custom, t.role)
	})
}

func (t *transition) admitted() {
	at := turnedAt(t.after, kueue.WorkloadAdmitted)
	waited := at.Sub(lifecycle.InLineSince(t.after)).Seconds()
	t.each(t.after, func(life *lifeFamilies, queue, custom []string) {
		more := t.withWorkload(life, custom)
		life.admitted.add(1, queue, t.class(), more, t.role)
		life.admittedWait.observe(waited, queue, t.class(), more, t.role)
		if len(t.after.Status.AdmissionChecks) > 0 && lifecycle.IsReserved(t.after) {
			checked := at.Sub(turnedAt(t.after, kueue.WorkloadQuotaReserved)).Seconds()
			life.checksWait.observe(checked, queue, t.class(), custom, t.role)
		}
	})
	for _, name := range t.tree.ancestors(t.queueOf(t.after)) {
		t.families.cohort.admitted.add(1, []string{name}, t.class(), t.cohortValues(name), t.role)
	}
}

func (t *transition) ready() {
	at := turnedAt(t.after, kueue.WorkloadPodsReady)
	t.each(t.after, func(life *lifeFamilies, queue, custom []string) {
		life.readyWait.observe(at.Sub(lifecycle.InLineSince(t.after)).Seconds(), queue, t.class(), custom, t.role)
		if lifecycle.IsAdmitted(t.after) {
			life.admittedUntilReady.observe(at.Sub(turnedAt(t.after, kueue.WorkloadAdmitted)).Seconds(), queue, t.class(), custom, t.role)
		}
	})
}

// evicted counts an eviction of a Workload with a reservation. spec: 10 §4.11.
func (t *transition) evicted() {
	holder := t.holder()
	if holder == nil {
		return
	}
	reason, cause, first := t.why()
	why := []string{reason, cause}
	t.each(holder, func(life *lifeFamilies, queue, custom []string) {
		life.evicted.add(1, queue, why, t.class(), custom, t.role)
	})
	queue := t.queueOf(holder)
	if queue == "" {
		return
	}
	custom := t.queueValues(queue)
	if first {
		t.queue.evictedOnce.add(1, []string{queue}, why, t.class(), custom, t.role)
	}
	if isReady(t.before) {
		ran := turnedAt(t.after, kueue.WorkloadEvicted).Sub(turnedAt(t.before, kueue.WorkloadPodsReady)).Seconds()
		t.queue.readyToEvicted.observe(ran, []string{queue}, why, custom, t.role)
	}
}

// why returns the reason and cause of an eviction, and whether it is the first with them: the count in the statistics that grew. Other
// controllers may evict without statistics: then the condition decides.
func (t *transition) why() (reason, cause string, first bool) {
	if stats := t.after.Status.SchedulingStats; stats != nil {
		for _, e := range stats.Evictions {
			if e.Count > evictions(t.before, e.Reason, e.UnderlyingCause) {
				return e.Reason, e.UnderlyingCause, e.Count == 1
			}
		}
	}
	reason, cause = splitReason(lifecycle.Condition(t.after, kueue.WorkloadEvicted).Reason)
	return reason, cause, lifecycle.Condition(t.before, kueue.WorkloadEvicted) == nil
}

func evictions(w *kueue.Workload, reason, cause string) int32 {
	if w.Status.SchedulingStats != nil {
		for _, e := range w.Status.SchedulingStats.Evictions {
			if e.Reason == reason && e.UnderlyingCause == cause {
				return e.Count
			}
		}
	}
	return 0
}

// splitReason undoes lifecycle.FullReason.
func splitReason(full string) (reason, cause string) {
	if cause, found := strings.CutPrefix(full, kueue.ReasonDeactivated+"DueTo"); found {
		return kueue.ReasonDeactivated, cause
	}
	return full, ""
}

// released observes how long an evicted Workload kept its quota.
func (t *transition) released() {
	reserved := lifecycle.Condition(t.after, kueue.WorkloadQuotaReserved)
	queue := t.queueOf(t.before)
	if reserved == nil || queue == "" {
		return // the condition was removed, and its time with it; or its queue was deleted
	}
	evicted := lifecycle.Condition(t.after, kueue.WorkloadEvicted)
	reason, _ := splitReason(evicted.Reason)
	took := reserved.LastTransitionTime.Sub(evicted.LastTransitionTime.Time).Seconds()
	t.queue.evictionLatency.observe(took, []string{queue}, []string{reason}, t.queueValues(queue), t.role)
}

func (t *transition) finished() {
	last := cmp.Or(t.holder(), t.before)
	t.each(last, func(life *lifeFamilies, queue, custom []string) {
		life.finished.add(1, queue, t.class(), custom, t.role)
		if lifecycle.IsAdmitted(last) {
			life.executions.observe(t.executed(last), queue, t.class(), custom, t.role)
		}
	})
	queue := t.queueOf(last)
	if queue != "" && lifecycle.Condition(t.after, kueue.WorkloadFinished).Reason == kueue.ReasonWorkloadSliceReplaced {
		t.scheduler.replaced.add(1, []string{queue}, t.queueValues(queue), t.role)
	}
}

// executed returns for how many seconds a finished Workload was admitted, over all admissions.
func (t *transition) executed(last *kueue.Workload) float64 {
	spent := turnedAt(t.after, kueue.WorkloadFinished).Sub(turnedAt(last, kueue.WorkloadAdmitted)).Seconds()
	if past := last.Status.AccumulatedPastExecutionTimeSeconds; past != nil {
		spent += float64(*past)
	}
	return spent
}
