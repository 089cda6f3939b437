package multikueue

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/options/transform"
	"github.com/berth-project/berth/internal/plan/dispatch"
	"github.com/berth-project/berth/internal/plan/job"
)

// discovery serves one group and version.
type discovery struct{ kinds map[string]string }

func (d discovery) ServerResourcesForGroupVersion(gv string) (*metav1.APIResourceList, error) {
	if gv != "tekton.dev/v1" {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, gv)
	}
	out := &metav1.APIResourceList{}
	for name, kind := range d.kinds {
		out.APIResources = append(out.APIResources, metav1.APIResource{Name: name, Kind: kind})
	}
	return out, nil
}

func TestExternalNames(t *testing.T) {
	served := discovery{map[string]string{"pipelineruns": "PipelineRun", "pipelineruns/status": "PipelineRun", "taskruns": "TaskRun", "oddies": "Odd", "odds": "ODD"}}
	for name, tc := range map[string]struct{ gvk, kind, resource string }{
		"as written":         {"tekton.dev/v1/PipelineRun", "PipelineRun", "pipelineruns"},
		"in lower case":      {"tekton.dev/v1/taskrun", "TaskRun", "taskruns"},
		"two that are alike": {"tekton.dev/v1/odd", "odd", "odds"},
		"not served yet":     {"later.dev/v1/Thing", "Thing", "things"},
	} {
		group, rest, _ := cut(tc.gvk)
		version, kind, _ := cut(rest)
		framework := &transform.Framework{GVK: schema.GroupVersionKind{Group: group, Version: version, Kind: kind}}
		got, _, err := External([]*transform.Framework{framework}, served, time.Now, logr.Discard())
		if err != nil || got[0].GVK.Kind != tc.kind || got[0].Resource != tc.resource {
			t.Errorf("%s: got %s %s, %v", name, got[0].GVK.Kind, got[0].Resource, err)
		}
	}
}

func cut(s string) (before, after string, ok bool) {
	for i := range s {
		if s[i] == '/' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// configured is what a configuration says about one external framework.
func configured(t *testing.T, text string) (*job.Descriptor, *dispatch.Config) {
	t.Helper()
	var entry configv1beta2.MultiKueueExternalFramework
	if err := yaml.UnmarshalStrict([]byte(text), &entry); err != nil {
		t.Fatal(err)
	}
	frameworks, errs := transform.Compile([]configv1beta2.MultiKueueExternalFramework{entry}, true, nil)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	served := discovery{map[string]string{"pipelineruns": "PipelineRun", "pipelineruns/status": "PipelineRun"}}
	descriptors, external, err := External(frameworks, served, time.Now, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	return descriptors[0], &dispatch.Config{Origin: "hub", External: external}
}

// TestExternalCopy is spec 40 §7.46: spec, labels and annotations go along, and nothing else does.
func TestExternalCopy(t *testing.T) {
	d, cfg := configured(t, "{name: PipelineRun.v1.tekton.dev}")
	local := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
		"metadata": map[string]any{
			"name": "r", "namespace": "ns", "uid": "u", "resourceVersion": "5", "finalizers": []any{"f"}, "labels": map[string]any{"a": "b"},
			"ownerReferences": []any{map[string]any{"name": "o"}}, "annotations": map[string]any{"c": "d"},
		},
		"spec":   map[string]any{"managedBy": kueue.MultiKueueControllerName, "params": []any{"x"}},
		"status": map[string]any{"old": true}, "other": map[string]any{"kept": "here"},
	}}
	if d.ManagedBy(local) != kueue.MultiKueueControllerName {
		t.Error("managedBy is not read")
	}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl"}}
	got, err := cfg.NewJob(d, local, w, nil)
	want := map[string]any{
		"apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
		"metadata": map[string]any{"name": "r", "namespace": "ns", "labels": map[string]any{
			"a": "b", kueue.MultiKueueOriginLabel: "hub", kueue.PrebuiltWorkloadLabel: "wl",
		}, "annotations": map[string]any{"c": "d"}},
		"spec": map[string]any{"params": []any{"x"}},
	}
	if diff := cmp.Diff(want, got.Object); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	remote := got.DeepCopy()
	remote.Object["status"] = map[string]any{"conditions": []any{"done"}}
	step, err := cfg.SyncJob(d, local, remote, w, nil, true)
	if err != nil || step.Do != dispatch.PatchStatus || !cmp.Equal(step.Object.Object["status"], remote.Object["status"]) {
		t.Errorf("the status: %+v, %v", step, err)
	}
}
