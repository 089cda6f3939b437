package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// manifests returns the files of all CRDs.
func manifests(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../crd/*_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("config/crd has %d manifests (error %v)", len(files), err)
	}
	for _, file := range files {
		names = append(names, filepath.Base(file))
	}
	return names
}

func read(t *testing.T, name string) ([]byte, *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("../crd", name))
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(manifest, crd); err != nil {
		t.Fatal(err)
	}
	return manifest, crd
}

// TestEveryKindHasCRD: every registered kind has a generated CRD, and every CRD a registered kind.
func TestEveryKindHasCRD(t *testing.T) {
	scheme, err := types()
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for kind, goType := range scheme.AllKnownTypes() {
		if strings.HasPrefix(goType.PkgPath(), ours) && !strings.HasSuffix(kind.Kind, "List") {
			want = append(want, kind.String())
		}
	}
	for _, name := range manifests(t) {
		_, crd := read(t, name)
		for _, version := range crd.Spec.Versions {
			kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
			got = append(got, kind.String())
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("registered kinds and kinds with a CRD differ (-registered +CRD), run `make generate`:\n%s", d)
	}
}

// TestServerAcceptsCRDs runs the API server's own validation: structural schemas, defaults that satisfy their schema, rules
// that compile and whose estimated cost is within the limits.
func TestServerAcceptsCRDs(t *testing.T) {
	for _, name := range manifests(t) {
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
	for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
		found = append(found, err.Error())
	}
	return found
}

// TestServerRefusesBadCRDs shows that the test above can fail.
func TestServerRefusesBadCRDs(t *testing.T) {
	rule := func(text string) func(*apiextensionsv1.JSONSchemaProps) {
		return func(spec *apiextensionsv1.JSONSchemaProps) {
			spec.XValidations = append(spec.XValidations, apiextensionsv1.ValidationRule{Rule: text})
		}
	}
	tests := map[string]struct {
		spoil func(spec *apiextensionsv1.JSONSchemaProps)
		want  string
	}{
		"rule that does not compile": {rule("self.nope == 1"), "undefined field 'nope'"},
		"rule that costs too much": {
			rule("self.replicatedJobs.all(a, self.replicatedJobs.all(b, self.replicatedJobs.all(c, a.name != b.name || b.name != c.name)))"),
			"exceeds budget",
		},
		"default that does not fit": {
			func(spec *apiextensionsv1.JSONSchemaProps) {
				spec.Default = &apiextensionsv1.JSON{Raw: []byte(`{"suspend":"later"}`)}
			},
			`must be of type boolean: "string"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, crd := read(t, "jobset.x-k8s.io_jobsets.yaml")
			spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
			test.spoil(&spec)
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
			if found := strings.Join(problems(t, crd), "\n"); !strings.Contains(found, test.want) {
				t.Errorf("want a problem with %q, found %q", test.want, found)
			}
		})
	}
}

// TestTrimmed: the CRDs in the tree are finished, and finishing is idempotent.
func TestTrimmed(t *testing.T) {
	for _, name := range manifests(t) {
		t.Run(name, func(t *testing.T) {
			manifest, crd := read(t, name)
			again, err := trim(manifest)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(manifest, again) {
				t.Error("config/crd holds what controller-gen wrote, not what crdtrim makes of it: run `make generate`")
			}
			if crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Description == "" {
				t.Error("the description of the kind, which is ours, is gone")
			}
		})
	}
}

// TestRuntimeTemplateFreezes: the JobSet inside a runtime has the rules of a JobSet, and its transition rules advise a new runtime (50 §2.4).
func TestRuntimeTemplateFreezes(t *testing.T) {
	rules := func(name string, path ...string) (texts []string) {
		_, crd := read(t, name)
		collect := func(s *apiextensionsv1.JSONSchemaProps) {
			for _, rule := range s.XValidations {
				texts = append(texts, rule.Message)
			}
		}
		if !at(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, path, func(s *apiextensionsv1.JSONSchemaProps) { collect(s); below(s, collect) }) {
			t.Fatalf("%s: no field %v", name, path)
		}
		slices.Sort(texts)
		return texts
	}
	want := rules("jobset.x-k8s.io_jobsets.yaml", "spec")
	frozen := 0
	for i, text := range want {
		if strings.Contains(text, "create a new JobSet") {
			frozen++
			want[i] = strings.Replace(text, "create a new JobSet", "create a new runtime", 1)
		}
	}
	if frozen != 6 {
		t.Errorf("JobSet has %d rules that compare with the old value, want 6", frozen)
	}
	slices.Sort(want)
	for _, name := range []string{"trainer.kubeflow.org_trainingruntimes.yaml", "trainer.kubeflow.org_clustertrainingruntimes.yaml"} {
		if got := rules(name, "spec", "template", "spec"); !slices.Equal(want, got) {
			t.Errorf("%s: rules\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestTrimRemoves: our descriptions and rules stay, Kubernetes' are removed.
func TestTrimRemoves(t *testing.T) {
	_, crd := read(t, "kueue.x-k8s.io_workloads.yaml")
	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	spoil := func(text string) func(*apiextensionsv1.JSONSchemaProps) {
		return func(s *apiextensionsv1.JSONSchemaProps) {
			s.Description = text
			s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{Rule: "self == oldSelf", Message: text})
		}
	}
	for _, path := range []string{"spec", "spec podSets", "spec podSets template"} {
		at(root, strings.Fields(path), spoil("ours"))
	}
	for _, path := range []string{"spec podSets template spec", "spec podSets template spec containers name", "status conditions type"} {
		if !at(root, strings.Fields(path), spoil("theirs")) {
			t.Fatalf("no field %s", path)
		}
	}
	in, err := marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	out, err := trim(in)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(in, []byte("theirs")); n != 6 {
		t.Fatalf("the input has %d texts of Kubernetes, want 6", n)
	}
	if ours, theirs := bytes.Count(out, []byte(": ours\n")), bytes.Count(out, []byte(": theirs\n")); ours != 6 || theirs != 0 {
		t.Errorf("left %d texts of ours and %d of Kubernetes, want 6 and 0", ours, theirs)
	}
}

// TestTrimRefuses: trim refuses kinds without a known type.
func TestTrimRefuses(t *testing.T) {
	const manifest = "spec:\n  group: GROUP\n  names: {kind: Thing, plural: things}\n  scope: Cluster\n  versions:\n  - {name: v1beta2, served: true, storage: true}\n"
	for name, group := range map[string]string{"unknown group": "other.io", "unknown kind": "kueue.x-k8s.io"} {
		t.Run(name, func(t *testing.T) {
			_, err := trim([]byte(strings.Replace(manifest, "GROUP", group, 1)))
			if err == nil || !strings.Contains(err.Error(), "Thing") {
				t.Errorf("error %v, want one that names Thing", err)
			}
		})
	}
}

// TestEveryPropertyRoundTrips: an object with every property of a CRD survives the conversion to its Go type and back.
func TestEveryPropertyRoundTrips(t *testing.T) {
	scheme, err := types()
	if err != nil {
		t.Fatal(err)
	}
	set := 0
	for _, name := range manifests(t) {
		t.Run(name, func(t *testing.T) {
			_, crd := read(t, name)
			want := sample(crd.Spec.Versions[0].Schema.OpenAPIV3Schema).(map[string]any)
			want["metadata"] = map[string]any{"name": "lark"}
			set += leaves(want)
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
	if set < 4000 {
		t.Errorf("the samples set %d fields: the test no longer sees the schemas", set)
	}
}

// sample returns a value with every property of a schema.
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
