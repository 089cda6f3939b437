package forecaster

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// observe learns from a Workload that is new or changed. before is nil for a new one.
func (f *Forecaster) observe(before, w *kueue.Workload) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before = f.same(before, w)
	k := f.known[w.UID]
	job := jobOf(w)
	if k != nil && before != nil && before.Generation == w.Generation { // most changes are of the status
		job.Shape = k.job.Shape
	} else {
		job.Shape = shapeOf(w.Spec.PodSets)
	}
	if is(kueue.WorkloadFinished, w) {
		if before == nil || !is(kueue.WorkloadFinished, before) {
			if run, at, ran := ranFor(w); ran {
				f.learner.Learn(&job, run, at)
			}
		}
		f.drop(w.UID)
		return
	}
	pending := !is(kueue.WorkloadQuotaReserved, w)
	if k == nil {
		k = &known{}
		f.known[w.UID] = k
		if pending && f.arrivals.Keeps(workload.Instant(w.CreationTimestamp.UnixNano())) {
			if def := convert.Workload(w, f.Requests); def.Queueable && def.VariantOf == "" {
				f.arrivals.Add(&def, &job)
			}
		}
	}
	if pending != k.pending {
		k.pending = pending
		f.pending += map[bool]int{true: 1, false: -1}[pending]
	}
	job.Ran = max(k.job.Ran, ranBefore(before, w), ranOnce(w))
	k.job = job
}

// same returns before, or nil if it is another Workload, whose deletion was missed: it is dropped.
func (f *Forecaster) same(before, w *kueue.Workload) *kueue.Workload {
	if before == nil || before.UID == w.UID {
		return before
	}
	f.drop(before.UID)
	return nil
}

// forget drops a deleted Workload.
func (f *Forecaster) forget(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(uid)
}

func (f *Forecaster) drop(uid types.UID) {
	if k := f.known[uid]; k != nil && k.pending {
		f.pending--
	}
	delete(f.known, uid)
}

func is(condition string, w *kueue.Workload) bool {
	return apimeta.IsStatusConditionTrue(w.Status.Conditions, condition)
}

// ranFor returns how long a finished Workload held quota, and when it ended; false if it did not run to its end.
func ranFor(w *kueue.Workload) (run, at workload.Instant, ran bool) {
	finished, reserved := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished), apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if reserved == nil || reserved.Status != metav1.ConditionTrue || (finished.Reason != kueue.ReasonSucceeded && finished.Reason != kueue.ReasonFailed) {
		return 0, 0, false
	}
	return workload.Instant(finished.LastTransitionTime.Sub(reserved.LastTransitionTime.Time)), instant(finished.LastTransitionTime.Time), true
}

// ranBefore returns how long a Workload was admitted that has lost its quota, 0 for others.
func ranBefore(before, w *kueue.Workload) workload.Instant {
	if before == nil || !is(kueue.WorkloadAdmitted, before) || is(kueue.WorkloadQuotaReserved, w) {
		return 0
	}
	lost := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if lost == nil {
		return 0
	}
	return workload.Instant(max(0, lost.LastTransitionTime.Sub(apimeta.FindStatusCondition(before.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime.Time)))
}

// ranOnce returns how long a Workload was admitted before, once at least, as its status tells also after a restart of the manager: that has the
// sum of these times, and the number of evictions.
func ranOnce(w *kueue.Workload) workload.Instant {
	past := w.Status.AccumulatedPastExecutionTimeSeconds
	if past == nil {
		return 0
	}
	evictions := workload.Instant(0)
	if stats := w.Status.SchedulingStats; stats != nil {
		for i := range stats.Evictions {
			evictions += workload.Instant(stats.Evictions[i].Count)
		}
	}
	return workload.Instant(*past) * workload.Instant(time.Second) / max(1, evictions)
}

// jobOf returns what a Workload says about its run time, without its shape.
func jobOf(w *kueue.Workload) foresight.Job {
	j := foresight.Job{Kind: "Workload", LocalQueue: w.Namespace + "/" + string(w.Spec.QueueName)}
	if owner := metav1.GetControllerOfNoCopy(w); owner != nil {
		j.Kind = owner.Kind
	}
	j.Limit = convert.RunLimit(w)
	j.Expected, _ = convert.ExpectedRun(w) // the webhook refuses wrong ones on jobs
	return j
}

// shapeOf returns a number that is equal for equal pod sets, as far as their sizes go.
func shapeOf(podSets []kueue.PodSet) uint64 {
	h := fnv.New64a()
	for i := range podSets {
		ps := &podSets[i]
		fmt.Fprintf(h, "%s/%d/", ps.Name, ps.Count)
		for k := range ps.Template.Spec.Containers {
			r := &ps.Template.Spec.Containers[k].Resources
			for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
				for _, name := range slices.Sorted(maps.Keys(list)) {
					q := list[name]
					fmt.Fprintf(h, "%s=%s,", name, q.String())
				}
				fmt.Fprint(h, ";")
			}
		}
	}
	return h.Sum64()
}
