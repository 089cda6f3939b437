package main

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// withoutWebhooks removes what an installation adds to the cost of every write: webhooks and their configurations, and all versions of its
// APIs but the newest, with their conversions. What is left is what two managers of the same API have in common.
func withoutWebhooks(ctx context.Context, cfg *rest.Config) error {
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(all); err != nil {
			return err
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: all})
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
