package main

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/install"
)

// withoutWebhooks removes what an installation adds to the cost of every write: webhooks and their configurations, and all versions of its
// APIs but the newest, with their conversions. What is left is what two managers of the same API have in common.
func withoutWebhooks(ctx context.Context, cfg *rest.Config) error {
	c, err := client.New(cfg, client.Options{Scheme: install.Scheme()})
	if err != nil {
		return err
	}
	for _, configuration := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		if err := c.DeleteAllOf(ctx, configuration); err != nil {
			return err
		}
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(ctx, &definitions); err != nil {
		return err
	}
	for i := range definitions.Items {
		d := &definitions.Items[i]
		if d.Spec.Group != kueue.GroupVersion.Group {
			continue
		}
		before := client.MergeFrom(d.DeepCopy())
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		for i := range d.Spec.Versions {
			d.Spec.Versions[i].Served = d.Spec.Versions[i].Storage
		}
		if err := c.Patch(ctx, d, before); err != nil {
			return err
		}
	}
	return nil
}
