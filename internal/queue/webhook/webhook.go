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
	// UsageSharing: the configuration has admissionFairSharing.
	UsageSharing bool
	// Variants: feature gate ConcurrentAdmission.
	Variants bool
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
		h.Updates, h.Validate, h.Warn = true, check, o.warn
		return h
	}
	return []review.Webhook{
		held(clusterQueue), checked(clusterQueue, o.validateClusterQueue),
		checked(review.Webhook{
			GVK: of("Cohort"), Resources: []string{"cohorts"}, New: func() client.Object { return &kueue.Cohort{} },
		}, validateCohort),
		checked(review.Webhook{
			GVK: of("LocalQueue"), Resources: []string{"localqueues"}, New: func() client.Object { return &kueue.LocalQueue{} },
			When: review.OnlyIf("has(object.spec) && has(object.spec.fairSharing)"),
		}, validateLocalQueue),
		held(flavor), checked(flavor, validateResourceFlavor),
	}
}

// holdUntilUnused adds the finalizer that keeps an object until nothing depends on it.
func holdUntilUnused(_ context.Context, _ *admission.Request, object client.Object) error {
	controllerutil.AddFinalizer(object, kueue.ResourceInUseFinalizer)
	return nil
}

// validateLocalQueue checks the weight as that of a ClusterQueue.
func validateLocalQueue(_ context.Context, _ *admission.Request, object, _ client.Object) error {
	return review.Refuse(validateWeight(object.(*kueue.LocalQueue).Spec.FairSharing))
}

// warn warns of fields without an effect in this configuration.
func (o Options) warn(object client.Object) (texts []string) {
	const noSharing, noVariants = "the configuration of the manager has no admissionFairSharing", "the feature gate ConcurrentAdmission is off"
	unused := func(path, why string, is bool) {
		if is {
			texts = append(texts, path+" has no effect: "+why)
		}
	}
	switch q := object.(type) {
	case *kueue.ClusterQueue:
		scope := q.Spec.AdmissionScope
		unused("spec.admissionScope", noSharing, !o.UsageSharing && scope != nil && scope.AdmissionMode == kueue.UsageBasedAdmissionFairSharing)
		unused("spec.concurrentAdmissionPolicy", noVariants, !o.Variants && q.Spec.ConcurrentAdmissionPolicy != nil)
	case *kueue.LocalQueue: // the weight counts in admission fair sharing only
		unused("spec.fairSharing", noSharing, !o.UsageSharing && q.Spec.FairSharing != nil)
	}
	return texts
}
