package install

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/admission"
)

// handOver removes the webhook configurations of JobSets if another controller handles JobSets from now on: calls to Berth's webhooks
// would fail, and so refuse every JobSet. An upstream controller's configurations of the same names stay.
func handOver(ctx context.Context, c client.Client, groups Groups) error {
	if groups.Has(JobSet) && groups.Has(Webhooks) {
		return nil
	}
	mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	for name, o := range map[string]client.Object{admission.JobSetMutatingName: mutating, admission.JobSetValidatingName: validating} {
		err := c.Get(ctx, client.ObjectKey{Name: name}, o)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil && leadsHere(mutating, validating) {
			err = c.Delete(ctx, o)
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("handing over webhook configuration %s: %w", name, err)
		}
		mutating.Webhooks, validating.Webhooks = nil, nil
	}
	return nil
}

// leadsHere reports whether a webhook calls Berth's webhooks of JobSets.
func leadsHere(m *admissionv1.MutatingWebhookConfiguration, v *admissionv1.ValidatingWebhookConfiguration) bool {
	for i := range m.Webhooks {
		if admission.IsOfJobSets(&m.Webhooks[i].ClientConfig) {
			return true
		}
	}
	for i := range v.Webhooks {
		if admission.IsOfJobSets(&v.Webhooks[i].ClientConfig) {
			return true
		}
	}
	return false
}
