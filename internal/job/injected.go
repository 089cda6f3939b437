package job

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// InjectedAnnotation records, on a started job, the values that the start merged into its pod templates, so that they can be
// removed where no Workload has the original pod sets (spec: 30 §6, Restore).
const InjectedAnnotation = "berth.dev/injected"

// WithoutInjected returns the pod sets of a running job, less the values that its start merged in.
func WithoutInjected(job metav1.Object, podSets []kueue.PodSet) []kueue.PodSet {
	if out := podset.WithoutInjected(job.GetAnnotations()[InjectedAnnotation], podSets); out != nil {
		return out
	}
	return podSets
}
