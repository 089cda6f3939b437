package crd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// TestFind: every version of every CRD has a schema whose rules compile, and nothing else has one.
func TestFind(t *testing.T) {
	versions := 0
	for name, of := range Definitions() { //berth:unordered each is checked alone
		for _, v := range of.Spec.Versions {
			versions++
			if Find(schema.GroupVersionKind{Group: of.Spec.Group, Version: v.Name, Kind: of.Spec.Names.Kind}) == nil {
				t.Errorf("%s has no schema of %s", name, v.Name)
			}
		}
	}
	if versions < 20 {
		t.Errorf("only %d versions: the test lost its way", versions)
	}
	for _, gvk := range []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}, {Group: "kueue.x-k8s.io", Version: "v9", Kind: "Workload"}, {Group: "batch", Version: "v1beta2", Kind: "Workload"}} {
		if Find(gvk) != nil {
			t.Errorf("there is a schema of %s", gvk)
		}
	}
}

func parse(t testing.TB, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := utiljson.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSchema(t *testing.T) {
	s := Find(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "ClusterQueue"})
	q := parse(t, `{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q", "labels": {"a": "b"}}, "color": 1,
		"spec": {"queueingStrategy": "Random", "shape": {"round": true}, "preemption": {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}}}`)
	unknown := s.Prune(q)
	slices.Sort(unknown)
	if diff := cmp.Diff([]string{"color", "spec.shape"}, unknown); diff != "" {
		t.Errorf("unknown fields (-want +got):\n%s", diff)
	}
	s.Default(q)
	if spec := q["spec"].(map[string]any); spec["stopPolicy"] != "None" {
		t.Errorf("no defaults: %v", spec)
	}
	var fields []string
	for _, err := range s.Validate(t.Context(), q) {
		fields = append(fields, err.Field+": "+Detail(err))
	}
	slices.Sort(fields)
	if len(fields) != 2 || !strings.HasPrefix(fields[0], "spec.preemption") || !strings.HasPrefix(fields[1], "spec.queueingStrategy") {
		t.Errorf("errors: %q", fields)
	}
	if s.Prune(q) != nil {
		t.Error("unknown fields stay")
	}
}

// running is a Workload with the status of an admission.
const running = `{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w", "namespace": "n"}, "spec": {"queueName": "q", "active": true,
	"podSets": [{"name": "main", "count": 3, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}}]},
	"status": {"admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}}]}, "conditions": [
	{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"},
	{"type": "Admitted", "status": "True", "reason": "Admitted", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`

// BenchmarkWorkload checks a Workload that runs, as berth preflight does for each.
func BenchmarkWorkload(b *testing.B) {
	s := Find(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "Workload"})
	w := parse(b, running)
	b.ReportAllocs()
	for b.Loop() {
		if unknown := s.Prune(w); len(unknown) > 0 {
			b.Fatal(unknown)
		}
		s.Default(w)
		if errs := s.Validate(b.Context(), w); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

// BenchmarkStatus makes the parts of a write of a status that the CRD decides on, as the API server does: an admission of a Workload with a
// few containers, or many environment variables.
func BenchmarkStatus(b *testing.B) {
	s := Find(workloads)
	statusValidator := newSchema(new(Definitions()["workloads.kueue.x-k8s.io"].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"])).validator
	for _, variables := range []int{0, 160} {
		before := parse(b, running)
		status := before["status"]
		delete(before, "status")
		containers := before["spec"].(map[string]any)["podSets"].([]any)[0].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
		env := []any{}
		for i := range variables {
			env = append(env, map[string]any{"name": fmt.Sprint("NAME_", i), "value": "a value"})
		}
		containers[0].(map[string]any)["env"] = env
		manager := fieldManager(b)
		live, err := manager.Update(&unstructured.Unstructured{Object: map[string]any{"apiVersion": before["apiVersion"], "kind": before["kind"]}}, &unstructured.Unstructured{Object: before}, "creator")
		if err != nil {
			b.Fatal(err)
		}
		before = live.(*unstructured.Unstructured).Object
		after := runtime.DeepCopyJSON(before)
		after["status"] = status
		both := func() *common.CorrelatedObject {
			return common.NewCorrelatedObject(after, before, &model.Structural{Structural: s.structural})
		}
		part := func(name string, work func() error) {
			b.Run(fmt.Sprintf("variables=%d/%s", variables, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := work(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		part("decode", func() error {
			s.Prune(after)
			s.Default(after)
			return nil
		})
		part("schema", func() error {
			return validation.ValidateCustomResourceUpdate(nil, status, nil, statusValidator, validation.WithRatcheting(both().Key("status"))).ToAggregate()
		})
		part("rules", func() error {
			errs, _ := s.rules.Validate(b.Context(), nil, s.structural, after, before, celconfig.RuntimeCELCostBudget, cel.WithRatcheting(both()))
			return errs.ToAggregate()
		})
		part("fields", func() error {
			_, err := manager.Apply(live, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": before["apiVersion"], "kind": before["kind"], "metadata": map[string]any{"name": "w", "namespace": "n"}, "status": status,
			}}, "kueue-admission", true)
			return err
		})
		part("json", func() error {
			text, err := utiljson.Marshal(after)
			if err == nil {
				var out map[string]any
				err = utiljson.Unmarshal(text, &out)
			}
			return err
		})
	}
}

var workloads = schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "Workload"}

// fieldManager is the API server's keeper of the managed fields of Workloads.
func fieldManager(t testing.TB) *managedfields.FieldManager {
	t.Helper()
	api, err := builder.BuildOpenAPIV3(Definitions()["workloads.kueue.x-k8s.io"], workloads.Version, builder.Options{})
	if err != nil {
		t.Fatal(err)
	}
	types, err := managedfields.NewTypeConverter(api.Components.Schemas, false)
	if err != nil {
		t.Fatal(err)
	}
	scheme := oneVersion{}
	m, err := managedfields.NewDefaultCRDFieldManager(types, scheme, scheme, scheme, workloads, workloads.GroupVersion(), "status", nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// oneVersion is the scheme of a kind with one version.
type oneVersion struct{}

func (oneVersion) Convert(_, _, _ any) error { return errors.New("there is one version") }

func (oneVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (oneVersion) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (oneVersion) Default(runtime.Object) {}

func (oneVersion) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(kind)
	return out, nil
}
