package convert

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/workload"
)

// ExpectedRun returns the run time that an annotation of a job or Workload declares, or else a label, 0 for none. The error names the field.
func ExpectedRun(o metav1.Object) (workload.Instant, error) {
	text, has := o.GetAnnotations()[berthv1alpha1.ExpectedRunSecondsKey]
	field := "annotations"
	if !has {
		text, has = o.GetLabels()[berthv1alpha1.ExpectedRunSecondsKey]
		field = "labels"
	}
	if !has {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("metadata.%s[%s]: %q must be a whole number of seconds above 0", field, berthv1alpha1.ExpectedRunSecondsKey, text)
	}
	return workload.Instant(n) * workload.Instant(time.Second), nil
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
