package metrics

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// surveyed is what gauges need of the Workloads that the engine does not look at.
type surveyed struct {
	finished     map[string]int // that still exist, by ClusterQueue
	finishedIn   map[state.Name]int
	unadmitted   map[string]map[why]int // by ClusterQueue
	unadmittedIn map[state.Name]map[whyIn]int
	backedOff    []string // UIDs of those that wait for a time
}

// why is why a Workload is not admitted: the reason of Admitted, and that of QuotaReserved.
type why struct{ reason, cause string }

// whyIn is the same with the ClusterQueue, as of a LocalQueue.
type whyIn struct {
	why
	queue string
}

// survey passes over all Workloads once.
func survey(workloads Workloads, lanes map[state.Name]*laneObject, o *Options) *surveyed {
	out := &surveyed{
		finished: map[string]int{}, finishedIn: map[state.Name]int{},
		unadmitted: map[string]map[why]int{}, unadmittedIn: map[state.Name]map[whyIn]int{},
	}
	if workloads == nil {
		return out
	}
	for _, object := range workloads.List() {
		w := object.(*kueue.Workload)
		lane, queue := laneOf(w), ""
		if l := lanes[lane]; l != nil {
			queue = l.queue
		}
		if a := w.Status.Admission; a != nil {
			queue = string(a.ClusterQueue)
		}
		switch {
		case lifecycle.IsFinished(w):
			out.finished[queue]++
			out.finishedIn[lane]++
			continue
		case w.DeletionTimestamp != nil:
			continue
		case lifecycle.IsRequeueBlocked(w) && lifecycle.IsPending(w) && lifecycle.MayQueue(w, o.Gates): // spec: 10 §4.4
			out.backedOff = append(out.backedOff, string(w.UID))
		}
		if o.Unadmitted && queue != "" && !lifecycle.IsAdmitted(w) && !isVariant(w) {
			reason := whyUnadmitted(w)
			count(out.unadmitted, queue, reason)
			count(out.unadmittedIn, lane, whyIn{reason, queue})
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

// whyUnadmitted reads the reasons off the conditions; those that are not there have their
// defaults. spec: 10 §5.4.
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

// isVariant reports whether a Workload is one of several for one job: its parent counts.
// spec: 20 §4.12.
func isVariant(w *kueue.Workload) bool {
	owner := metav1.GetControllerOfNoCopy(w)
	return owner != nil && owner.Kind == "Workload"
}

// findWorkload looks a Workload up, nil if there is none. The nil is one of the interface.
func findWorkload(workloads Workloads, key string) metav1.Object {
	if workloads != nil {
		if object, exists, err := workloads.GetByKey(key); err == nil && exists {
			return object.(*kueue.Workload)
		}
	}
	return nil
}
