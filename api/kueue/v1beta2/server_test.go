package v1beta2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestServer applies the CRDs to a real API server and talks to it as a client does.
func TestServer(t *testing.T) {
	server := newServer(t)
	t.Run("rules", server.testRules)
	t.Run("defaults", server.testDefaults)
	t.Run("full objects", server.testFullObjects)
	t.Run("field selector", server.testFieldSelector)
	t.Run("field managers", server.testFieldManagers)
}

// ruleCase is one entry of testdata/rules.yaml, which explains the fields.
type ruleCase struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	By       string   `json:"by"`
	Object   object   `json:"object"`
	Status   object   `json:"status"`
	Accepted []object `json:"accepted"`
	Refused  []struct {
		Change  object `json:"change"`
		Field   string `json:"field"`
		Message string `json:"message"`
	} `json:"refused"`
}

func (s *server) testRules(t *testing.T) {
	var cases []ruleCase
	readYAML(t, "testdata/rules.yaml", &cases)
	refusals := map[string][]metav1.StatusCause{} // by kind
	for i, tc := range cases {
		t.Run(tc.Name, func(t *testing.T) {
			if len(tc.Accepted) == 0 || len(tc.Refused) == 0 {
				t.Fatal("a rule needs a change that it accepts and one that it refuses")
			}
			name := fmt.Sprintf("rule-%d", i)
			base := s.create(t, tc.Kind, name, tc.Object, tc.Status)
			for _, change := range tc.Accepted {
				if err := s.try(t.Context(), tc.By, base, change); err != nil {
					t.Errorf("refused: %v\nchange: %s", err, show(t, change))
				}
			}
			for _, r := range tc.Refused {
				err := s.try(t.Context(), tc.By, base, r.Change)
				if err == nil {
					t.Errorf("accepted\nchange: %s", show(t, r.Change))
				} else if problem := invalid(err, r.Field, r.Message); problem != "" {
					t.Errorf("%s\nanswer: %v\nchange: %s", problem, err, show(t, r.Change))
				}
				refusals[tc.Kind] = append(refusals[tc.Kind], causes(err)...)
			}
		})
	}
	for kind, crd := range s.crds {
		for _, rule := range celRules(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, "") {
			if !slices.ContainsFunc(refusals[kind], rule.made) {
				t.Errorf("no case of testdata/rules.yaml is refused by the rule of %s about %s: %s", kind, rule.field, rule.message)
			}
		}
	}
}

// celRule is a CEL rule of a CRD, by the field it blames, without list indexes, and its message.
type celRule struct{ field, message string }

var listIndex = regexp.MustCompile(`\[\d+\]`)

// made reports whether a refusal comes from this rule. The server puts the value in front of the message.
func (r celRule) made(cause metav1.StatusCause) bool {
	return listIndex.ReplaceAllString(cause.Field, "") == r.field && strings.HasSuffix(cause.Message, r.message)
}

// celRules returns the CEL rules of a schema.
func celRules(schema *apiextensionsv1.JSONSchemaProps, path string) []celRule {
	var rules []celRule
	for _, rule := range schema.XValidations {
		rules = append(rules, celRule{strings.TrimPrefix(path+rule.FieldPath, "."), rule.Message})
	}
	if schema.Items != nil {
		rules = append(rules, celRules(schema.Items.Schema, path)...)
	}
	for name, property := range schema.Properties {
		rules = append(rules, celRules(&property, path+"."+name)...)
	}
	return rules
}

// testDefaults creates each object of testdata/defaults.yaml and compares the stored objects, without
// added metadata, with the expected ones.
func (s *server) testDefaults(t *testing.T) {
	var cases []struct {
		Name   string `json:"name"`
		Kind   string `json:"kind"`
		Object object `json:"object"`
		Want   object `json:"want"`
	}
	readYAML(t, "testdata/defaults.yaml", &cases)
	for i, tc := range cases {
		t.Run(tc.Name, func(t *testing.T) {
			got := s.create(t, tc.Kind, fmt.Sprintf("default-%d", i), tc.Object, nil).Object
			for _, part := range []string{"apiVersion", "kind", "metadata"} {
				delete(got, part)
			}
			if diff := cmp.Diff(tc.Want, plain(t, got)); diff != "" {
				t.Errorf("stored object (-want +got):\n%s", diff)
			}
		})
	}
}

// testFullObjects writes objects with every field and compares the stored objects with the sent ones: nothing is pruned.
func (s *server) testFullObjects(t *testing.T) {
	for i, want := range fullObjects(t) {
		kind, _ := want["kind"].(string)
		t.Run(kind, func(t *testing.T) {
			status, _ := want["status"].(object)
			got := plain(t, s.create(t, kind, fmt.Sprintf("full-%d", i), want, status).Object)
			delete(got, "apiVersion")
			delete(got, "metadata")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("stored object (-want +got):\n%s", diff)
			}
		})
	}
}

// testFieldSelector lists Workloads by status.admission.clusterQueue.
func (s *server) testFieldSelector(t *testing.T) {
	podSets := object{"podSets": []any{object{"template": object{"spec": object{"containers": []any{}}}}}}
	admission := func(queue string) object { return object{"admission": object{"clusterQueue": queue}} }
	s.create(t, "Workload", "selected", object{"spec": podSets}, admission("here"))
	s.create(t, "Workload", "not-selected", object{"spec": podSets}, admission("there"))
	list, err := s.resource("Workload").List(t.Context(), metav1.ListOptions{FieldSelector: "status.admission.clusterQueue=here"})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].GetName() != "selected" {
		t.Errorf("field selector found %d Workloads, want only selected", len(list.Items))
	}
}

// testFieldManagers: a pod spec has one field manager, however many fields it has, and an apply of another one replaces it as a whole.
func (s *server) testFieldManagers(t *testing.T) {
	with := func(pod object) object {
		return object{"spec": object{"podSets": []any{object{"name": "main", "template": object{"metadata": object{"labels": object{"a": "b"}}, "spec": pod}}}}}
	}
	first := with(object{"hostname": "h", "containers": []any{object{"name": "c", "env": []any{object{"name": "A", "value": "b"}}}}})
	created := s.create(t, "Workload", "managed", first, nil)
	fields := created.GetManagedFields()[0].FieldsV1.GetRawString()
	if !strings.Contains(fields, `"f:spec":{}`) || !strings.Contains(fields, `"f:a"`) || strings.Contains(fields, "f:containers") {
		t.Errorf("fields of the pod spec have managers: %s", fields)
	}
	second := newObject(t, "Workload", "managed", with(object{"containers": []any{object{"name": "d"}}}))
	got, err := s.resource("Workload").Apply(t.Context(), "managed", second, metav1.ApplyOptions{FieldManager: "other", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	sets, _, _ := unstructured.NestedSlice(got.Object, "spec", "podSets")
	template, _, _ := unstructured.NestedMap(sets[0].(object), "template")
	if spec, _, _ := unstructured.NestedMap(template, "spec"); len(spec["containers"].([]any)) != 1 || spec["hostname"] != nil {
		t.Errorf("the applied pod spec is %v", spec)
	}
}

// server is an API server that serves the CRDs of this package.
type server struct {
	client dynamic.Interface
	crds   map[string]*apiextensionsv1.CustomResourceDefinition // by kind
}

func newServer(t *testing.T) *server {
	t.Helper()
	client, err := dynamic.NewForConfig(embeddedtest.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{client: client, crds: map[string]*apiextensionsv1.CustomResourceDefinition{}}
	files, err := filepath.Glob(crdGlob)
	if err != nil {
		t.Fatal(err)
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, file := range files {
		manifest := &unstructured.Unstructured{}
		readYAML(t, file, &manifest.Object)
		if _, err := crds.Apply(t.Context(), manifest.GetName(), manifest, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		crd := readCRD(t, file)
		s.crds[crd.Spec.Names.Kind] = crd
	}
	for kind := range s.crds {
		wait.Until(t, kind+" is served", func() error {
			_, err := s.resource(kind).List(t.Context(), metav1.ListOptions{Limit: 1})
			return err
		})
	}
	return s
}

func (s *server) resource(kind string) dynamic.ResourceInterface {
	crd := s.crds[kind]
	resource := s.client.Resource(GroupVersion.WithResource(crd.Spec.Names.Plural))
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		return resource.Namespace("default")
	}
	return resource
}

// create stores content as an object of that kind and name, then its status, and returns what the server has.
func (s *server) create(t *testing.T, kind, name string, content, status object) *unstructured.Unstructured {
	t.Helper()
	u := newObject(t, kind, name, content)
	got, err := s.resource(kind).Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create %s %s: %v", kind, name, err)
	}
	if status == nil {
		return got
	}
	patch, err := json.Marshal(object{"status": status})
	if err != nil {
		t.Fatal(err)
	}
	got, err = s.resource(kind).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatalf("write status of %s %s: %v", kind, name, err)
	}
	return got
}

// try makes a change as a dry run and returns the answer of the server.
func (s *server) try(ctx context.Context, by string, base *unstructured.Unstructured, change object) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	resource, dryRun := s.resource(base.GetKind()), []string{metav1.DryRunAll}
	switch by {
	case "create":
		raw, err := base.MarshalJSON()
		if err != nil {
			return err
		}
		merged, err := jsonpatch.MergePatch(raw, patch)
		if err != nil {
			return err
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(merged); err != nil {
			return err
		}
		u.SetName(base.GetName() + "-copy")
		u.SetResourceVersion("")
		_, err = resource.Create(ctx, u, metav1.CreateOptions{DryRun: dryRun})
		return err
	case "update":
		_, err = resource.Patch(ctx, base.GetName(), types.MergePatchType, patch, metav1.PatchOptions{DryRun: dryRun})
		return err
	case "status":
		_, err = resource.Patch(ctx, base.GetName(), types.MergePatchType, patch, metav1.PatchOptions{DryRun: dryRun}, "status")
		return err
	}
	return fmt.Errorf("by is %q, want create, update or status", by)
}

// invalid returns the fault of a refusal that must be 422 for that field with these words; empty without a fault.
func invalid(err error, field, message string) string {
	for _, cause := range causes(err) {
		if cause.Field == field && strings.Contains(cause.Message, message) {
			return ""
		}
	}
	return fmt.Sprintf("not 422 with field %s and the words %q", field, message)
}

// causes returns why the server answered 422, and nothing for other answers.
func causes(err error) []metav1.StatusCause {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Code != http.StatusUnprocessableEntity || status.ErrStatus.Details == nil {
		return nil
	}
	return status.ErrStatus.Details.Causes
}

func newObject(t *testing.T, kind, name string, content object) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: plain(t, content)}
	u.SetGroupVersionKind(GroupVersion.WithKind(kind))
	u.SetName(name)
	return u
}

// plain returns a copy of o with the types that JSON decoding gives.
func plain(t *testing.T, o object) object {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var out object
	decode(t, raw, &out)
	return out
}

func show(t *testing.T, o object) string {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
