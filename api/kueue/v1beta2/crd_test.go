package v1beta2

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

const crdGlob = "../../../config/crd/" + GroupName + "_*.yaml"

// TestCRDsAreValid runs the checks that an API server makes before it serves a CustomResourceDefinition: the schema is
// structural, defaults fit it, and CEL rules compile and stay within the cost limits.
func TestCRDsAreValid(t *testing.T) {
	files, err := filepath.Glob(crdGlob)
	if err != nil {
		t.Fatal(err)
	}
	const kinds = 11
	if len(files) != kinds {
		t.Errorf("%d files match %s, want one for each of %d kinds: run `make generate`", len(files), crdGlob, kinds)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			for _, e := range validateCRD(t, readCRD(t, file)) {
				t.Error(e)
			}
		})
	}
}

// TestValidateCRDRefuses proves that TestCRDsAreValid can fail.
func TestValidateCRDRefuses(t *testing.T) {
	file := filepath.Join(filepath.Dir(crdGlob), GroupName+"_localqueues.yaml")
	tests := map[string]func(*apiextensionsv1.JSONSchemaProps){
		"a rule that does not compile": func(schema *apiextensionsv1.JSONSchemaProps) {
			schema.XValidations[0].Rule = "self.spec.nothing == 1"
		},
		"a rule over unbounded lists": func(schema *apiextensionsv1.JSONSchemaProps) {
			schema.XValidations[0].Rule = "self.status.conditions.all(a, self.status.conditions.all(b, self.status.conditions.all(c, a.message + b.message != c.message)))"
		},
		"a default that does not fit": func(schema *apiextensionsv1.JSONSchemaProps) {
			spec := schema.Properties["spec"]
			spec.Default = &apiextensionsv1.JSON{Raw: []byte(`{"stopPolicy":"Later"}`)}
			schema.Properties["spec"] = spec
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			crd := readCRD(t, file)
			spoil(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
			if errs := validateCRD(t, crd); len(errs) == 0 {
				t.Error("accepted")
			}
		})
	}
}

func readCRD(t *testing.T, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(raw, crd); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return crd
}

func validateCRD(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiextensions.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	scheme.Default(crd)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := scheme.Convert(crd, internal, nil); err != nil {
		t.Fatal(err)
	}
	// The API server fills this in before it validates.
	internal.Status.StoredVersions = []string{GroupVersion.Version}
	return validation.ValidateCustomResourceDefinition(t.Context(), internal)
}
