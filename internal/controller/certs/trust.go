package certs

import (
	"bytes"
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,verbs=get;list;watch;update

// Trust makes the API server trust the authority: it is written into the webhook
// configurations of the given names, as far as they exist.
func Trust(ctx context.Context, c client.Client, mutating, validating []string, ca []byte) error {
	for _, name := range mutating {
		if err := trustMutating(ctx, c, name, ca); err != nil {
			return err
		}
	}
	for _, name := range validating {
		if err := trustValidating(ctx, c, name, ca); err != nil {
			return err
		}
	}
	return nil
}

func trustMutating(ctx context.Context, c client.Client, name string, ca []byte) error {
	var m admissionv1.MutatingWebhookConfiguration
	return update(ctx, c, &m, name, func() bool {
		changed := false
		for i := range m.Webhooks {
			changed = trust(&m.Webhooks[i].ClientConfig, ca) || changed
		}
		return changed
	})
}

func trustValidating(ctx context.Context, c client.Client, name string, ca []byte) error {
	var v admissionv1.ValidatingWebhookConfiguration
	return update(ctx, c, &v, name, func() bool {
		changed := false
		for i := range v.Webhooks {
			changed = trust(&v.Webhooks[i].ClientConfig, ca) || changed
		}
		return changed
	})
}

func trust(c *admissionv1.WebhookClientConfig, ca []byte) bool {
	if bytes.Equal(c.CABundle, ca) {
		return false
	}
	c.CABundle = ca
	return true
}

func update(ctx context.Context, c client.Client, o client.Object, name string, change func() bool) error {
	err := c.Get(ctx, client.ObjectKey{Name: name}, o)
	if err == nil && change() {
		err = c.Update(ctx, o)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("making the certificate known in webhook configuration %s: %w", name, err)
	}
	return nil
}
