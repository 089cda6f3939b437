package lookup

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// Flavors returns the flavors of the admission of a Workload that exist.
func Flavors(ctx context.Context, reader client.Reader, w *kueue.Workload, options ...client.GetOption) (job.Flavors, error) {
	out := job.Flavors{}
	if w.Status.Admission == nil {
		return out, nil
	}
	for _, a := range w.Status.Admission.PodSetAssignments {
		for _, name := range a.Flavors {
			if out[name] != nil {
				continue
			}
			var flavor kueue.ResourceFlavor
			switch err := reader.Get(ctx, client.ObjectKey{Name: string(name)}, &flavor, options...); {
			case err == nil:
				out[name] = &flavor
			case client.IgnoreNotFound(err) != nil:
				return nil, fmt.Errorf("reading flavor %s: %w", name, err)
			}
		}
	}
	return out, nil
}
