package crd

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
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

// BenchmarkWorkload checks a Workload that runs, as berth preflight does for each.
func BenchmarkWorkload(b *testing.B) {
	s := Find(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "Workload"})
	w := parse(b, `{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w", "namespace": "n"}, "spec": {"queueName": "q", "active": true,
		"podSets": [{"name": "main", "count": 3, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}}]},
		"status": {"admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}}]}, "conditions": [
		{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"},
		{"type": "Admitted", "status": "True", "reason": "Admitted", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`)
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
