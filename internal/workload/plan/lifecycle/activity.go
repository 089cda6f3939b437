package lifecycle

import (
	"strings"
	"time"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// CountLastHour adds what happened to a Workload in the last hour.
func CountLastHour(into *berthv1alpha1.Activity, w *kueue.Workload, now time.Time) {
	lately := func(condition string) bool { return now.Sub(TrueSince(w, condition)) < time.Hour }
	if lately(kueue.WorkloadAdmitted) {
		into.Admitted++
	}
	if lately(kueue.WorkloadEvicted) && !IsFinished(w) {
		into.Evicted++
	}
	switch {
	case !lately(kueue.WorkloadFinished):
	case strings.HasPrefix(Condition(w, kueue.WorkloadFinished).Reason, kueue.ReasonFailed):
		into.Failed++
	default:
		into.Finished++
	}
}
