package visibility

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Starts is what is known of when pending Workloads start, and how long they run.
type Starts interface {
	// Forecast returns the last forecast, nil before the first one.
	Forecast() *foresight.Forecast
	// RunTime returns what is expected of the run time of a Workload.
	RunTime(uid string) foresight.Estimate
}

// stuck are the reasons to wait that no release of quota removes.
var stuck = []trace.Reason{trace.ExceedsMaxQuota, trace.NoMatchingFlavor, trace.Misconfigured, trace.Suspended}

// StartOf returns when a Workload is expected to start; nil for one that is in no line. model is the engine's.
func StartOf(starts Starts, model *state.Model, w *kueue.Workload, requests convert.Requests) *berthv1alpha1.ExpectedStart {
	queue, _ := model.PointsTo(w.Namespace, string(w.Spec.QueueName))
	if _, exists := model.Waiting(queue); !exists || !lifecycle.IsPending(w) || !lifecycle.MayQueue(w, requests.Gated) {
		return nil
	}
	reason := ""
	if c := lifecycle.Unreserved(w); c != nil {
		reason = c.Reason
	}
	return startOf(starts, string(w.UID), queue, reason)
}

// PositionOf returns the ClusterQueue in whose line a Workload is, and how many are before it there; false if it is in no line. model is the
// engine's.
func PositionOf(model *state.Model, w *kueue.Workload, requests convert.Requests) (queue string, before int, known bool) {
	if !lifecycle.IsPending(w) || !lifecycle.MayQueue(w, requests.Gated) {
		return "", 0, false
	}
	queue, _ = model.PointsTo(w.Namespace, string(w.Spec.QueueName))
	priority, since := requests.InLine(w)
	_, before, known = model.Find(queue, string(w.UID), priority, since)
	return queue, before, known && before >= 0
}

// EndOf returns when a Workload that holds quota is expected to end, zero if that is unknown. One that runs longer than 9 of 10 like it is
// expected to end now.
func EndOf(starts Starts, w *kueue.Workload, now time.Time) time.Time {
	c := lifecycle.Condition(w, kueue.WorkloadQuotaReserved)
	if c == nil || c.Status != metav1.ConditionTrue {
		return time.Time{}
	}
	of := starts.RunTime(string(w.UID))
	if of.Source == foresight.Unknown {
		return time.Time{}
	}
	for _, length := range []workload.Instant{of.P50, of.P90} {
		if end := c.LastTransitionTime.Add(time.Duration(length)); end.After(now) {
			return end
		}
	}
	return now
}

// startOf returns when a workload in the line of a ClusterQueue starts, nil without forecasts. reason is why it waits.
func startOf(starts Starts, uid, queue, reason string) *berthv1alpha1.ExpectedStart {
	if starts == nil {
		return nil
	}
	if slices.Contains(stuck, trace.Reason(reason)) {
		return &berthv1alpha1.ExpectedStart{Unknown: "it cannot start, whatever ends, until its reason to wait is removed"}
	}
	f := starts.Forecast()
	if f == nil {
		return &berthv1alpha1.ExpectedStart{Unknown: "no forecast has been made yet"}
	}
	out := &berthv1alpha1.ExpectedStart{Until: at(f.At + f.Horizon), Endless: int32(f.Endless(queue))}
	start, why, known := f.Of(uid, queue)
	if !known {
		out.Unknown = why
		return out
	}
	out.P10, out.P50, out.P90 = at(start.P10), at(start.P50), at(start.P90)
	return out
}

// at returns a time, nil for [foresight.Never].
func at(t workload.Instant) *metav1.Time {
	if t == foresight.Never {
		return nil
	}
	return new(metav1.NewTime(time.Unix(0, int64(t)).UTC()))
}
