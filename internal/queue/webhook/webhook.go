// Package webhook guards ClusterQueues, LocalQueues, Cohorts and ResourceFlavors:
// the rules beyond schema and CEL, and the finalizer that holds an object in use
// (spec: 10 §3).
package webhook

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/review"
)

// Options are options of the checks.
type Options struct {
	// StrictOnFlavors refuses every unknown flavor in an admission check strategy: gate
	// RejectUpdatesToCQWithInvalidOnFlavors.
	StrictOnFlavors bool
}

// Webhooks returns the webhooks of queues, Cohorts and flavors, in a fixed order.
func Webhooks(o Options) []review.Webhook {
	of := kueue.GroupVersion.WithKind
	clusterQueue := review.Webhook{GVK: of("ClusterQueue"), Resources: []string{"clusterqueues"}, New: func() client.Object { return &kueue.ClusterQueue{} }}
	flavor := review.Webhook{GVK: of("ResourceFlavor"), Resources: []string{"resourceflavors"}, New: func() client.Object { return &kueue.ResourceFlavor{} }}
	held := func(h review.Webhook) review.Webhook {
		h.Defaults = holdUntilUnused
		return h
	}
	checked := func(h review.Webhook, check review.Validator) review.Webhook {
		h.Updates, h.Validate, h.Warn = true, check, notYet
		return h
	}
	return []review.Webhook{
		held(clusterQueue), checked(clusterQueue, o.validateClusterQueue),
		checked(review.Webhook{
			GVK: of("Cohort"), Resources: []string{"cohorts"}, New: func() client.Object { return &kueue.Cohort{} },
		}, validateCohort),
		checked(review.Webhook{
			GVK: of("LocalQueue"), Resources: []string{"localqueues"}, New: func() client.Object { return &kueue.LocalQueue{} },
			Advises: true, When: review.OnlyIf("has(object.spec.fairSharing)"),
		}, advise),
		held(flavor), checked(flavor, validateResourceFlavor),
	}
}

// holdUntilUnused adds the finalizer that keeps an object until nothing depends on it.
func holdUntilUnused(_ context.Context, _ *admission.Request, object client.Object) error {
	controllerutil.AddFinalizer(object, kueue.ResourceInUseFinalizer)
	return nil
}

// advise refuses nothing: LocalQueues get only the warnings of notYet.
func advise(context.Context, *admission.Request, client.Object, client.Object) error { return nil }

// notYet warns of fields that this version ignores. Remove a case with the feature that reads the field.
func notYet(object client.Object) []string {
	var paths []string
	switch o := object.(type) {
	case *kueue.ClusterQueue:
		if scope := o.Spec.AdmissionScope; scope != nil && scope.AdmissionMode == kueue.UsageBasedAdmissionFairSharing {
			paths = append(paths, "spec.admissionScope")
		}
		if o.Spec.ConcurrentAdmissionPolicy != nil {
			paths = append(paths, "spec.concurrentAdmissionPolicy")
		}
	case *kueue.LocalQueue: // the weight counts in admission fair sharing only
		if o.Spec.FairSharing != nil {
			paths = append(paths, "spec.fairSharing")
		}
	}
	return review.NotYet(paths...)
}
