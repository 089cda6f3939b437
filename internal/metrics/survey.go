package metrics

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// surveyed are the counts of Workloads that the engine does not know.
type surveyed struct {
	finished     map[string]int // finished Workloads that still exist, by ClusterQueue
	finishedIn   map[state.Name]int
	unadmitted   map[string]map[why]int // by ClusterQueue
	unadmittedIn map[state.Name]map[whyIn]int
}

// why are the reasons of the conditions Admitted and QuotaReserved of a Workload that is not admitted.
type why struct{ reason, cause string }

// whyIn is why, with the ClusterQueue of the LocalQueue.
type whyIn struct {
	why
	queue string
}

// survey counts the Workloads of the cache in one pass.
func survey(workloads Workloads, localQueues map[state.Name]*localQueueObject, o *Options) *surveyed {
	out := &surveyed{
		finished: map[string]int{}, finishedIn: map[state.Name]int{},
		unadmitted: map[string]map[why]int{}, unadmittedIn: map[state.Name]map[whyIn]int{},
	}
	if workloads == nil {
		return out
	}
	for _, object := range workloads.List() {
		w := object.(*kueue.Workload)
		name, queue := localQueueOf(w), ""
		if l := localQueues[name]; l != nil {
			queue = l.queue
		}
		if a := w.Status.Admission; a != nil {
			queue = string(a.ClusterQueue)
		}
		switch {
		case lifecycle.IsFinished(w):
			out.finished[queue]++
			out.finishedIn[name]++
			continue
		case w.DeletionTimestamp != nil:
			continue
		}
		if o.Unadmitted && queue != "" && !lifecycle.IsAdmitted(w) && !isVariant(w) {
			reason := whyUnadmitted(w)
			count(out.unadmitted, queue, reason)
			count(out.unadmittedIn, name, whyIn{reason, queue})
		}
	}
	return out
}

func count[K, W comparable](counts map[K]map[W]int, key K, reason W) {
	if counts[key] == nil {
		counts[key] = map[W]int{}
	}
	counts[key][reason]++
}

// whyUnadmitted returns the reasons of the conditions, with defaults for missing ones. spec: 10 §5.4.
func whyUnadmitted(w *kueue.Workload) why {
	out := why{kueue.ReasonNoReservation, kueue.ReasonPendingEvaluation}
	if c := lifecycle.Condition(w, kueue.WorkloadAdmitted); c != nil {
		out.reason = c.Reason
	}
	if c := lifecycle.Condition(w, kueue.WorkloadQuotaReserved); c != nil {
		out.cause = c.Reason
		if c.Status == metav1.ConditionTrue {
			out.cause = ""
		}
	}
	return out
}

// isVariant reports whether a Workload is a variant: its parent is counted. spec: 20 §4.12.
func isVariant(w *kueue.Workload) bool {
	owner := metav1.GetControllerOfNoCopy(w)
	return owner != nil && owner.Kind == "Workload"
}

// findWorkload returns a Workload, a nil interface if there is none.
func findWorkload(workloads Workloads, key string) metav1.Object {
	if workloads != nil {
		if object, exists, err := workloads.GetByKey(key); err == nil && exists {
			return object.(*kueue.Workload)
		}
	}
	return nil
}
