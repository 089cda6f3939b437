package conversion

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
)

// Configure completes the manifest of a CRD with its conversion webhook before it is installed; the generated manifests do not know the
// manager's address. Without a served webhook v1beta1 is not served either. The client stays even then: an apply cannot remove a
// conversion strategy after the manager has added its authority. CRDs that need no webhook are left unchanged.
func Configure(crd *unstructured.Unstructured, client apiextensionsv1.WebhookClientConfig, served bool) error {
	if !slices.Contains(CRDs(), crd.GetName()) {
		return nil
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return err
	}
	for _, v := range versions {
		if version, ok := v.(object); ok && version["name"] == kueuev1beta1.GroupVersion.Version {
			version["served"] = served
		}
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		return err
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
