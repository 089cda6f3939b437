package v1beta2

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

type object = map[string]any

const crdGlob = "../../../config/crd/" + GroupName + "_*.yaml"

// TestJSONRoundTrip decodes an object with every field into its Go type and encodes it again.
func TestJSONRoundTrip(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, want := range fullObjects(t) {
		kind, _ := want["kind"].(string)
		t.Run(kind, func(t *testing.T) {
			typed, err := scheme.New(GroupVersion.WithKind(kind))
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			decode(t, raw, typed)
			encoded, err := json.Marshal(typed.DeepCopyObject())
			if err != nil {
				t.Fatal(err)
			}
			var got object
			decode(t, encoded, &got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFullObjectsAreFull fails when a field of a CRD is set in no object of testdata/full.yaml.
func TestFullObjectsAreFull(t *testing.T) {
	files, err := filepath.Glob(crdGlob)
	if err != nil {
		t.Fatal(err)
	}
	objects := fullObjects(t)
	for _, file := range files {
		crd := readCRD(t, file)
		var values []any
		for _, o := range objects {
			if o["kind"] == crd.Spec.Names.Kind {
				values = append(values, o)
			}
		}
		for _, path := range unset(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, values, crd.Spec.Names.Kind) {
			t.Errorf("%s is set in no object of testdata/full.yaml", path)
		}
	}
}

// unset returns the paths of properties of the schema that none of the values has. It does not look into pod templates
// and node selectors, which are Kubernetes' own types, and standard metadata.
func unset(schema *apiextensionsv1.JSONSchemaProps, values []any, path string) []string {
	var paths []string
	if schema.Items != nil {
		var items []any
		for _, v := range values {
			list, _ := v.([]any)
			items = append(items, list...)
		}
		return unset(schema.Items.Schema, items, path+"[]")
	}
	for name, property := range schema.Properties {
		switch name {
		case "apiVersion", "metadata", "template", "tolerations":
			continue
		}
		var children []any
		for _, v := range values {
			if m, ok := v.(object); ok && m[name] != nil {
				children = append(children, m[name])
			}
		}
		if len(children) == 0 {
			paths = append(paths, path+"."+name)
			continue
		}
		paths = append(paths, unset(&property, children, path+"."+name)...)
	}
	return paths
}

func fullObjects(t *testing.T) []object {
	t.Helper()
	var objects []object
	readYAML(t, "testdata/full.yaml", &objects)
	return objects
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

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	raw, err = yaml.YAMLToJSONStrict(raw)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	decode(t, raw, into)
}

// decode reads JSON strictly and keeps integers exact.
func decode(t *testing.T, raw []byte, into any) {
	t.Helper()
	unknown, err := kjson.UnmarshalStrict(raw, into)
	if err := errors.Join(append(unknown, err)...); err != nil {
		t.Fatal(err)
	}
}
