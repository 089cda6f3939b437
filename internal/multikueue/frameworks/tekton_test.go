package frameworks

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
	externalplan "github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/options/transform"
)

// TestPipelineRun is the example of the documentation on one run (spec: 40 §4.13.8, §7.50, §7.57, §7.59).
func TestPipelineRun(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/examples/multicluster/tekton.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file configv1beta2.Configuration
	if err := yaml.UnmarshalStrict(raw, &file); err != nil {
		t.Fatal(err)
	}
	frameworks, errs := transform.Compile(file.MultiKueue.ExternalFrameworks, true, nil)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	descriptors, external, err := External(frameworks, nil, discovery{map[string]string{"pipelineruns": "PipelineRun"}}, time.Now, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	d, cfg := descriptors[0], &plan.Config{Origin: "hub", External: external}
	run := func(status string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
			"metadata": map[string]any{
				"name": "r", "namespace": "ns", "uid": "u", "annotations": map[string]any{"results.tekton.dev/record": "hub's", "chains.tekton.dev/signed": "true", "own": "x"},
			},
			"spec": map[string]any{"managedBy": kueue.MultiKueueControllerName, "status": status},
		}}
	}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl"}}
	cluster := map[string]any{"name": "w1"}
	remote, err := cfg.NewJob(d, run("StoppedRunFinally"), w, cluster)
	if err != nil {
		t.Fatal(err)
	}
	spec, _, _ := unstructured.NestedStringMap(remote.Object, "spec")
	if len(spec) != 1 || spec["status"] != "PipelineRunPending" || len(remote.GetAnnotations()) != 2 ||
		remote.GetAnnotations()["own"] != "x" || remote.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation] != "u" {
		t.Errorf("the copy: %+v", remote.Object)
	}
	delete(remote.Object["spec"].(map[string]any), "status")
	for status, want := range map[string]string{"Cancelled": "Cancelled", "PipelineRunPending": "", "": ""} {
		step, err := cfg.SyncJob(d, run(status), remote, w, cluster, true)
		if err != nil || (step.Spec != nil) != (want != "") || step.SpecFault != nil {
			t.Errorf("%q: %+v, %v", status, step, err)
			continue
		}
		if want == "" {
			continue
		}
		if got, _, _ := unstructured.NestedString(step.Spec.Object, "spec", "status"); got != want {
			t.Errorf("%q: %q", status, got)
		}
	}
	remote.SetUID("c")
	annotations := remote.GetAnnotations()
	annotations["results.tekton.dev/log"] = "worker's"
	remote.SetAnnotations(annotations)
	remote.Object["status"] = map[string]any{"startTime": "now"}
	step, err := cfg.SyncJob(d, run(""), remote, w, cluster, true)
	if err != nil || step.Do != plan.PatchStatus || !step.Metadata {
		t.Fatalf("%+v, %v", step, err)
	}
	got := step.Object.GetAnnotations()
	delete(got, externalplan.MirroredAnnotation)
	want := map[string]string{ // keys that the creation dropped stay
		"results.tekton.dev/record": "hub's", "results.tekton.dev/log": "worker's", "chains.tekton.dev/signed": "true", "own": "x",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("annotations: %s", diff)
	}
	tied := run("")
	tied.Object["spec"].(map[string]any)["workspaces"] = []any{map[string]any{"persistentVolumeClaim": map[string]any{"claimName": "c"}}}
	for o, want := range map[*unstructured.Unstructured]string{tied: "cannot move", run(""): ""} {
		scope, err := cfg.ExternalScope(d, o, nil, w, nil)
		if err != nil {
			t.Fatal(err)
		}
		if refused := external[d.GVK].Precondition(scope); (refused != nil) != (want != "") || refused != nil && !strings.Contains(refused.Text, want) {
			t.Errorf("want %q, got %+v", want, refused)
		}
	}
}
