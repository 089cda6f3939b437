package convert

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// ExpectedRun returns the run time that an annotation of a job or Workload declares, or else a label, 0 for none. The error names the field.
func ExpectedRun(o metav1.Object) (workload.Instant, error) {
	return secondsOf(o, berthv1alpha1.ExpectedRunSecondsKey)
}

// MinRun returns the time that a job or Workload asks to run before it is preempted, by an annotation or else a label, 0 for none. The error
// names the field.
func MinRun(o metav1.Object) (workload.Instant, error) {
	return secondsOf(o, berthv1alpha1.MinRunSecondsKey)
}

// ValidateRunTimes returns the error of ExpectedRun or MinRun, nil for none.
func ValidateRunTimes(o metav1.Object) error {
	_, err := ExpectedRun(o)
	if err == nil {
		_, err = MinRun(o)
	}
	return err
}

func secondsOf(o metav1.Object, key string) (workload.Instant, error) {
	text, has := o.GetAnnotations()[key]
	field := "annotations"
	if !has {
		text, has = o.GetLabels()[key]
		field = "labels"
	}
	if !has {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("metadata.%s[%s]: %q must be a whole number of seconds above 0", field, key, text)
	}
	return workload.Instant(n) * workload.Instant(time.Second), nil
}

// minRun returns how long a Workload runs at least before it is preempted, 0 for no time.
func (r *Requests) minRun(w *kueue.Workload) workload.Instant {
	if r.MaxMinRun == 0 {
		return 0
	}
	asked, _ := MinRun(w) // the webhook refuses wrong ones on jobs
	return min(asked, r.MaxMinRun)
}

// runBound returns how long a Workload runs at most from its quota reservation on, 0 for no bound. While checks keep it from its admission, no
// bound is known.
func runBound(def *state.Workload, w *kueue.Workload) workload.Instant {
	limit := RunLimit(w)
	if !def.Reserved || limit == 0 {
		return limit
	}
	if !def.Admitted {
		return 0
	}
	admitted := lifecycle.Condition(w, kueue.WorkloadAdmitted)
	return max(0, workload.Instant(admitted.LastTransitionTime.UnixNano())-def.ReservedAt) + limit
}

// RunLimit returns how long a Workload may run yet from its admission on, at least a second, 0 for no limit.
func RunLimit(w *kueue.Workload) workload.Instant {
	most := w.Spec.MaximumExecutionTimeSeconds
	if most == nil {
		return 0
	}
	left := int64(*most)
	if past := w.Status.AccumulatedPastExecutionTimeSeconds; past != nil {
		left = max(1, left-int64(*past))
	}
	return workload.Instant(left) * workload.Instant(time.Second)
}
