// Package webhook guards Workloads and their status (spec: 10 §3).
package webhook

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/review"
)

// Options are options of the checks.
type Options struct {
	// NonNegative refuses negative requests in Workloads: gate WorkloadValidateResourcesAreNonNegative.
	NonNegative bool
	// PodSetMetadata checks labels and annotations of pod sets: gate WorkloadValidationForPodSetMetadata.
	PodSetMetadata bool
	// SliceSize checks the form of topology requests for slices: gate TASValidateWorkloadSliceSize.
	SliceSize bool
	// PriorityBoost checks the priority boost annotation.
	PriorityBoost bool
}

type server struct {
	Options
	jobs *job.Config
}

// Webhooks returns the webhooks of Workloads, in a fixed order. jobs is the configuration of their jobs.
func Webhooks(o Options, jobs *job.Config) []review.Webhook {
	s := &server{o, jobs}
	gvk, empty := kueue.GroupVersion.WithKind("Workload"), func() client.Object { return &kueue.Workload{} }
	return []review.Webhook{
		{GVK: gvk, Resources: []string{"workloads"}, New: empty, When: review.OnlyIf(defaulted), Defaults: s.defaultWorkload},
		{
			GVK: gvk, Resources: []string{"workloads", "workloads/status"}, New: empty, Updates: true, When: review.OnlyIf(judged), Validate: s.validateWorkload,
			Warn: func(o client.Object) []string {
				return review.WarnElastic(o, jobs)
			},
		},
	}
}
