package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// manifests are the CRDs that this command finishes.
var manifests = []string{
	"jobset.x-k8s.io_jobsets.yaml",
	"trainer.kubeflow.org_trainjobs.yaml",
	"trainer.kubeflow.org_trainingruntimes.yaml",
	"trainer.kubeflow.org_clustertrainingruntimes.yaml",
}

func read(t *testing.T, name string) ([]byte, *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("../../../../config/crd", name))
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(manifest, crd); err != nil {
		t.Fatal(err)
	}
	return manifest, crd
}

// TestServerAcceptsCRDs runs the API server's own validation: structural schemas, defaults that satisfy their schema, rules
// that compile and whose estimated cost is within the limits.
func TestServerAcceptsCRDs(t *testing.T) {
	for _, name := range manifests {
		t.Run(name, func(t *testing.T) {
			_, crd := read(t, name)
			for _, problem := range problems(t, crd) {
				t.Error(problem)
			}
		})
	}
}

func problems(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) (found []string) {
	t.Helper()
	crd = crd.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
		t.Fatal(err)
	}
	for _, err := range validation.ValidateCustomResourceDefinition(context.Background(), internal) {
		found = append(found, err.Error())
	}
	return found
}

// TestServerRefusesBadCRDs shows that the test above can fail.
func TestServerRefusesBadCRDs(t *testing.T) {
	tests := map[string]struct {
		rule string
		want string
	}{
		"rule that does not compile": {"self.nope == 1", "undefined field 'nope'"},
		"rule that costs too much":   {"self.replicatedJobs.all(a, self.replicatedJobs.all(b, self.replicatedJobs.all(c, a.name != b.name || b.name != c.name)))", "exceeds budget"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, crd := read(t, "jobset.x-k8s.io_jobsets.yaml")
			spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
			spec.XValidations = append(spec.XValidations, apiextensionsv1.ValidationRule{Rule: test.rule})
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
			if found := strings.Join(problems(t, crd), "\n"); !strings.Contains(found, test.want) {
				t.Errorf("want a problem with %q, found %q", test.want, found)
			}
		})
	}
}

// TestTrimmed shows that the CRDs in the tree are finished, and that finishing them again changes nothing.
func TestTrimmed(t *testing.T) {
	for _, name := range manifests {
		t.Run(name, func(t *testing.T) {
			manifest, crd := read(t, name)
			again, err := trim(manifest)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(manifest, again) {
				t.Error("config/crd holds what controller-gen wrote, not what crdtrim makes of it: run `make generate`")
			}
			if d := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Description; d == "" {
				t.Error("the description of spec, which is ours, is gone")
			}
		})
	}
}

// TestRuntimeTemplateIsLoose holds the two runtimes to 50 §2.4: no rule of the JobSet inside compares with the old value, and
// the others are still there.
func TestRuntimeTemplateIsLoose(t *testing.T) {
	transitions := func(name string, path ...string) (n, all int) {
		_, crd := read(t, name)
		count := func(s *apiextensionsv1.JSONSchemaProps) {
			for _, rule := range s.XValidations {
				all++
				if strings.Contains(rule.Rule, "oldSelf") {
					n++
				}
			}
		}
		if !at(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, path, func(s *apiextensionsv1.JSONSchemaProps) { count(s); below(s, count) }) {
			t.Fatalf("%s: no field %v", name, path)
		}
		return n, all
	}
	n, all := transitions("jobset.x-k8s.io_jobsets.yaml", "spec")
	if n != 6 {
		t.Errorf("JobSet has %d rules that compare with the old value, want 6", n)
	}
	for _, name := range []string{"trainer.kubeflow.org_trainingruntimes.yaml", "trainer.kubeflow.org_clustertrainingruntimes.yaml"} {
		old, rest := transitions(name, "spec", "template", "spec")
		if old != 0 || rest != all-n {
			t.Errorf("%s: %d rules that compare with the old value and %d others, want 0 and %d", name, old, rest-old, all-n)
		}
	}
}

// TestTrimLeavesOthersAlone holds trim to the groups that it knows.
func TestTrimLeavesOthersAlone(t *testing.T) {
	in := []byte("spec:\n  group: other.io\n  names: {kind: Thing, plural: things}\n  scope: Cluster\n  versions:\n  - {name: v1, served: true, storage: true}\n")
	out, err := trim(in)
	if err != nil || !bytes.Equal(in, out) {
		t.Errorf("trim changed a CRD of another group to %s (error %v)", out, err)
	}
	missing := strings.Replace(string(in), "other.io", trainerv1alpha1.GroupVersion.Group, 1)
	if _, err := trim([]byte(missing)); err == nil || !strings.Contains(err.Error(), "Thing") {
		t.Errorf("a CRD without a Go type gives error %v, want one that names Thing", err)
	}
}

// TestEveryPropertyRoundTrips sets every property that a CRD allows, reads the object into the Go type and writes it again:
// nothing may be unknown, lost or renamed.
func TestEveryPropertyRoundTrips(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{jobsetv1alpha2.AddToScheme, trainerv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range manifests {
		t.Run(name, func(t *testing.T) {
			_, crd := read(t, name)
			want := sample(crd.Spec.Versions[0].Schema.OpenAPIV3Schema).(map[string]any)
			want["metadata"] = map[string]any{"name": "lark"}
			if n := leaves(want); n < 100 {
				t.Fatalf("the sample sets %d fields: the test no longer sees the schema", n)
			}
			in, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Kind: crd.Spec.Names.Kind}
			object, err := scheme.New(kind)
			if err != nil {
				t.Fatal(err)
			}
			unknown, err := kjson.UnmarshalStrict(in, object)
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range unknown {
				t.Error(u)
			}
			out, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err = json.Unmarshal(out, &got); err != nil {
				t.Fatal(err)
			}
			if err = json.Unmarshal(in, &want); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("read and written again (-want +got):\n%s", d)
			}
		})
	}
}

// sample makes a value in which every property of a schema is set.
func sample(s *apiextensionsv1.JSONSchemaProps) any {
	switch {
	case s.XIntOrString && s.Pattern != "": // a quantity
		return "1"
	case s.XIntOrString:
		return "http"
	case len(s.Enum) > 0:
		return strings.Trim(string(s.Enum[0].Raw), `"`)
	}
	switch s.Type {
	case "object":
		object := map[string]any{}
		for name, property := range s.Properties {
			object[name] = sample(&property)
		}
		if s.AdditionalProperties != nil {
			object["key"] = sample(s.AdditionalProperties.Schema)
		}
		return object
	case "array":
		return []any{sample(s.Items.Schema)}
	case "boolean":
		return true
	case "integer", "number":
		return 7
	}
	if s.Format == "date-time" {
		return "2026-01-02T03:04:05Z"
	}
	return "text"
}

// leaves counts the scalars in a value.
func leaves(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += leaves(e)
		}
	case []any:
		for _, e := range v {
			n += leaves(e)
		}
	default:
		n = 1
	}
	return n
}
