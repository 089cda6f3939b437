package job

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// InjectedAnnotation is, on a job that was started, what the start put into its pod templates: enough to take it out again
// where no Workload says what was there before (spec: 30 §6, Restore).
const InjectedAnnotation = "berth.dev/injected"

// WithoutInjected are pod sets that were taken from a job while it ran, less what its start put in.
func WithoutInjected(job metav1.Object, podSets []kueue.PodSet) []kueue.PodSet {
	if out := podset.WithoutInjected(job.GetAnnotations()[InjectedAnnotation], podSets); out != nil {
		return out
	}
	return podSets
}
