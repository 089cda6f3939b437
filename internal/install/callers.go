package install

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-project/berth/internal/admission/conversion"
)

// Callers returns the Manifests that tell the API server how to call the manager. CRDs contain only their conversion section: reading all
// schemas is half of a manager's start, and the manager does not need them.
func Callers(o *Options) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, name := range conversion.CRDs() {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name},
		}}
		if err := conversion.Configure(u, o.conversionClient(), !o.OnlyV1beta2, o.Groups.Has(Webhooks)); err != nil {
			return nil, fmt.Errorf("CRD %s: %w", name, err)
		}
		out = append(out, u)
	}
	api, err := visibilityObjects(o)
	if err != nil {
		return nil, err
	}
	out = append(out, api...)
	if o.Groups.Has(Webhooks) {
		if out, err = toUnstructured(out, webhookConfigurations(o)...); err != nil {
			return nil, err
		}
	}
	for _, u := range out {
		rename(u, PrefixOf(o.service()))
	}
	return out, nil
}
