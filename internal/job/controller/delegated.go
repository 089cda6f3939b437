package controller

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/decide"
)

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks,verbs=get;list;watch

// delegated finds the MultiKueue checks among the checks of the Workloads. Gates cannot be added back to a pod, so the API server
// is asked about an unknown check.
func (r *reconciler) delegated(ctx context.Context, o *job.Observed) error {
	if !r.cfg.Load().MultiKueue {
		return nil
	}
	o.Delegated = map[kueue.AdmissionCheckReference]bool{}
	for _, w := range append(slices.Clone(o.Workloads), o.Prebuilt) {
		if w == nil {
			continue
		}
		for _, state := range w.Status.AdmissionChecks {
			if _, known := o.Delegated[state.Name]; known {
				continue
			}
			var check kueue.AdmissionCheck
			err := r.cache.Get(ctx, client.ObjectKey{Name: string(state.Name)}, &check)
			if apierrors.IsNotFound(err) {
				err = r.live.Get(ctx, client.ObjectKey{Name: string(state.Name)}, &check)
			}
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("reading admission check %s: %w", state.Name, err)
			}
			o.Delegated[state.Name] = err == nil && check.Spec.ControllerName == kueue.MultiKueueControllerName
		}
	}
	return nil
}

// addRemoteWorkloads adds the Workloads that the manager of another cluster made for a remote object: they have no owner yet.
func (r *sets) addRemoteWorkloads(ctx context.Context, o *decide.ObservedSets) error {
	if !job.IsRemote(o.Job) {
		return nil
	}
	found := make(map[string]bool, len(o.Workloads))
	for _, w := range o.Workloads {
		found[w.Name] = true
	}
	for _, name := range decide.NamesOfParts(r.cfg.Load(), r.d, o.Job) {
		if found[name] {
			continue
		}
		var w kueue.Workload
		err := r.cache.Get(ctx, client.ObjectKey{Namespace: o.Job.GetNamespace(), Name: name}, &w)
		switch {
		case err == nil && job.IsRemote(&w):
			o.Workloads = append(o.Workloads, &w)
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("reading workload %s/%s: %w", o.Job.GetNamespace(), name, err)
		}
	}
	return nil
}
