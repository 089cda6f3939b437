package lookup

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	"github.com/berth-project/berth/internal/workload/plan/variants"
)

// AsStarted reads the variant on which a Workload runs, and returns the Workload as its pods are started: see variants.AsStarted. A Workload
// that is no parent is returned as it is. Nil: the variant is not admitted, as far as is known (spec: 20 §4.13).
func AsStarted(ctx context.Context, reader client.Reader, w *kueue.Workload) (*kueue.Workload, error) {
	if !lifecycle.IsParent(w) || !lifecycle.IsReserved(w) || w.Status.Admission == nil {
		return w, nil
	}
	var found []*kueue.Workload
	named := false
	for _, a := range w.Status.Admission.PodSetAssignments {
		for _, flavor := range a.Flavors { //berth:unordered a variant has one flavor
			named = true
			v := &kueue.Workload{}
			switch err := reader.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: variants.Name(w, flavor)}, v); {
			case err == nil:
				found = append(found, v)
			case client.IgnoreNotFound(err) != nil:
				return nil, fmt.Errorf("reading the variant of %s/%s: %w", w.Namespace, w.Name, err)
			}
		}
	}
	if !named { // its pods request nothing, so no flavor names the variant, which has the labels of its parent
		var err error
		if found, err = controlled(ctx, reader, w, w.Labels[kueue.JobUIDLabel]); err != nil {
			return nil, err
		}
	}
	return variants.AsStarted(w, found), nil
}
