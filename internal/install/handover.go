package install

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/admission"
)

// handOver removes the webhook configurations of JobSets and of training if another controller handles these from now on: calls to
// Berth's webhooks would fail, and so refuse every JobSet or training runtime. An upstream controller's configurations of the same names
// stay.
func handOver(ctx context.Context, c client.Client, o *Options) error {
	for _, of := range []struct {
		group                Group
		mutating, validating string
		isOurs               func(*admissionv1.WebhookClientConfig) bool
	}{
		{JobSet, admission.JobSetMutatingName, admission.JobSetValidatingName, admission.IsOfJobSets},
		{Training, admission.TrainingMutatingName, admission.TrainingValidatingName, o.isOwnTraining},
	} {
		if o.Groups.Has(of.group) && o.Groups.Has(Webhooks) {
			continue
		}
		mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
		for name, config := range map[string]client.Object{of.mutating: mutating, of.validating: validating} {
			err := c.Get(ctx, client.ObjectKey{Name: name}, config)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err == nil && leadsHere(config, of.isOurs) {
				err = c.Delete(ctx, config)
			}
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("handing over webhook configuration %s: %w", name, err)
			}
		}
	}
	return nil
}

// leadsHere reports whether a webhook of a configuration is Berth's.
func leadsHere(config client.Object, isOurs func(*admissionv1.WebhookClientConfig) bool) bool {
	switch config := config.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range config.Webhooks {
			if isOurs(&config.Webhooks[i].ClientConfig) {
				return true
			}
		}
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range config.Webhooks {
			if isOurs(&config.Webhooks[i].ClientConfig) {
				return true
			}
		}
	}
	return false
}

// isOwnTraining reports whether a client configuration of a webhook of training calls Berth: it has upstream's path, but upstream has a Service
// in another namespace, and no URL.
func (o *Options) isOwnTraining(c *admissionv1.WebhookClientConfig) bool {
	return c.URL != nil || (c.Service != nil && c.Service.Namespace == o.namespace() && c.Service.Name == o.service())
}
