package conversion

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
)

// Configure completes the manifest of a CRD before it is installed: with its conversion webhook, as the generated manifests do not know the
// manager's address, and with the versions that are served: v1beta1 only if it is asked for and, where it needs the webhook, this runs. The
// client stays even without: an apply cannot remove a conversion strategy after the manager has added its authority.
func Configure(crd *unstructured.Unstructured, client apiextensionsv1.WebhookClientConfig, v1beta1, webhooks bool) error {
	needed := slices.Contains(CRDs(), crd.GetName())
	if !v1beta1 || needed && !webhooks {
		if err := withhold(crd); err != nil {
			return err
		}
	}
	if !needed {
		return nil
	}
	conversion, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: &client, ConversionReviewVersions: []string{"v1"}},
	})
	if err != nil {
		return err
	}
	return unstructured.SetNestedMap(crd.Object, conversion, "spec", "conversion")
}

// withhold has v1beta1 not served.
func withhold(crd *unstructured.Unstructured) error {
	versions, found, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil || !found {
		return err
	}
	for _, v := range versions {
		if version, ok := v.(object); ok && version["name"] == kueuev1beta1.GroupVersion.Version {
			version["served"] = false
		}
	}
	return unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")
}
