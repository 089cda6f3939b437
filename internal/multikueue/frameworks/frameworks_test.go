package frameworks

import (
	"strings"
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
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/options/transform"
)

// discovery serves one group and version.
type discovery struct{ kinds map[string]string }

func (d discovery) ServerResourcesForGroupVersion(gv string) (*metav1.APIResourceList, error) {
	if gv == "broken.dev/v1" {
		return nil, apierrors.NewServiceUnavailable("its API server is down")
	}
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
		got, _, err := External([]*transform.Framework{framework}, nil, served, time.Now, logr.Discard())
		if err != nil || got[0].GVK.Kind != tc.kind || got[0].Resource != tc.resource {
			t.Errorf("%s: got %s %s, %v", name, got[0].GVK.Kind, got[0].Resource, err)
		}
	}
}

// TestWarnings: each name that differs from the served kinds has a warning with its field and advice (spec: 40 §3).
func TestWarnings(t *testing.T) {
	served := discovery{map[string]string{"pipelineruns": "PipelineRun", "taskruns": "TaskRun", "oddies": "Odd", "odds": "ODD"}}
	of := func(group, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
	}
	for name, tc := range map[string]struct {
		configured, used schema.GroupVersionKind
		want             string // empty is no warning
	}{
		"as served":                     {of("tekton.dev", "PipelineRun"), of("tekton.dev", "PipelineRun"), ""},
		"in lower case":                 {of("tekton.dev", "taskrun"), of("tekton.dev", "TaskRun"), "taskrun.v1.tekton.dev is used as TaskRun.v1.tekton.dev: correct the case"},
		"in lower case, served later":   {of("tekton.dev", "taskrun"), of("tekton.dev", "taskrun"), "is not used, since the kind is TaskRun.v1.tekton.dev: correct its case, and restart"},
		"two that are alike":            {of("tekton.dev", "odd"), of("tekton.dev", "odd"), "odd.v1.tekton.dev is not served by this cluster"},
		"no such kind":                  {of("tekton.dev", "Thing"), of("tekton.dev", "Thing"), "Thing.v1.tekton.dev is not served by this cluster, and not used until it is: install its CRD, or"},
		"no such group":                 {of("later.dev", "Thing"), of("later.dev", "Thing"), "Thing.v1.later.dev is not served by this cluster"},
		"a group that cannot be listed": {of("broken.dev", "Thing"), of("broken.dev", "Thing"), "it is not known whether this cluster serves the kind"},
	} {
		got := strings.Join(Warnings([]Name{{"f[0].name", tc.configured, tc.used}}, served), "; ")
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) || (got != "" && !strings.HasPrefix(got, "f[0].name: ")) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// TestExternalClashes: a kind in another case is the same kind, and a group with a failed discovery is not served yet.
func TestExternalClashes(t *testing.T) {
	served := discovery{map[string]string{"pipelineruns": "PipelineRun"}}
	of := func(group, kind string) *transform.Framework {
		return &transform.Framework{GVK: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}}
	}
	own := &job.Descriptor{GVK: of("tekton.dev", "PipelineRun").GVK, Remote: &job.Remote{}}
	for name, tc := range map[string]struct {
		list  []*transform.Framework
		known []*job.Descriptor
		ok    bool
	}{
		"twice":                  {[]*transform.Framework{of("tekton.dev", "PipelineRun"), of("tekton.dev", "pipelinerun")}, nil, false},
		"with an adapter":        {[]*transform.Framework{of("tekton.dev", "pipelinerun")}, []*job.Descriptor{own}, false},
		"known here only":        {[]*transform.Framework{of("tekton.dev", "pipelinerun")}, []*job.Descriptor{{GVK: own.GVK}}, true},
		"a group that is broken": {[]*transform.Framework{of("broken.dev", "Thing"), of("tekton.dev", "PipelineRun")}, nil, true},
	} {
		got, _, err := External(tc.list, tc.known, served, time.Now, logr.Discard())
		if (err == nil) != tc.ok || (tc.ok && len(got) != len(tc.list)) {
			t.Errorf("%s: %d, %v", name, len(got), err)
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

// configured compiles the configuration of one external framework.
func configured(t *testing.T, text string) (*job.Descriptor, *plan.Config) {
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
	descriptors, known, err := External(frameworks, nil, served, time.Now, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	return descriptors[0], &plan.Config{Origin: "hub", External: known}
}

// TestExternalCopy is spec 40 §7.46: only spec, labels and annotations are copied.
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
	if err != nil || step.Do != plan.PatchStatus || !cmp.Equal(step.Object.Object["status"], remote.Object["status"]) {
		t.Errorf("the status: %+v, %v", step, err)
	}
}

// TestStatusWhen: the condition of copying may read the resulting job, and whole numbers of the admission.
func TestStatusWhen(t *testing.T) {
	d, cfg := configured(t, `
name: PipelineRun.v1.tekton.dev
statusSync: {when: "object.status.pods == workload.status.admission.podSetAssignments[0].count && object.status.pods / 2 == 1"}`)
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl"}}
	w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Count: new(int32(3))}}}
	local := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": map[string]any{"name": "r", "namespace": "ns"},
	}}
	for pods, want := range map[int64]bool{2: false, 3: true} {
		remote, err := cfg.NewJob(d, local, w, nil)
		if err != nil {
			t.Fatal(err)
		}
		remote.Object["status"] = map[string]any{"pods": pods}
		step, err := cfg.SyncJob(d, local, remote, w, map[string]any{}, true)
		if err != nil || (step.Do == plan.PatchStatus) != want || step.Deferred == want {
			t.Errorf("%d pods: %+v, %v", pods, step, err)
		}
	}
}

// TestEarlierRun is spec 40 §4.6: a copy with the UID of another object belongs to an earlier run. A framework with only a name does not set
// the UID on copies.
func TestEarlierRun(t *testing.T) {
	for name, tc := range map[string]struct {
		entry, origin string
		want          plan.JobVerb
	}{
		"of this object":             {"{name: PipelineRun.v1.tekton.dev, copyFields: [spec]}", "u", plan.PatchStatus},
		"of another object":          {"{name: PipelineRun.v1.tekton.dev, copyFields: [spec]}", "before", plan.DeleteJob},
		"it does not say":            {"{name: PipelineRun.v1.tekton.dev, copyFields: [spec]}", "", plan.PatchStatus},
		"somebody's, by a name only": {"{name: PipelineRun.v1.tekton.dev}", "before", plan.PatchStatus},
	} {
		d, cfg := configured(t, tc.entry)
		local := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": map[string]any{"name": "r", "namespace": "ns", "uid": "u"}, "spec": map[string]any{},
		}}
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl"}}
		remote, err := cfg.NewJob(d, local, w, nil)
		if err != nil {
			t.Fatal(err)
		}
		remote.Object["status"] = map[string]any{"phase": "Done"}
		remote.SetAnnotations(map[string]string{})
		if tc.origin != "" {
			remote.SetAnnotations(map[string]string{kueue.MultiKueueOriginUIDAnnotation: tc.origin})
		}
		if step, err := cfg.SyncJob(d, local, remote, w, nil, true); err != nil || step.Do != tc.want || step.Deferred != (tc.want == plan.DeleteJob) {
			t.Errorf("%s: %v, deferred %v, %v", name, step.Do, step.Deferred, err)
		}
	}
}

// TestLargeCopy: the limit applies to copies without mutations, including our labels and annotations (spec: 40 §4.13.2).
func TestLargeCopy(t *testing.T) {
	local := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": map[string]any{"name": "r", "namespace": "ns", "uid": "u"},
		"spec": map[string]any{"text": strings.Repeat("x", 1000)},
	}}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl"}}
	for entry, want := range map[string]string{
		"{name: PipelineRun.v1.tekton.dev, limits: {maxObjectBytes: 1150}}": "TransformedObjectTooLarge", // fewer without our labels and annotations
		"{name: PipelineRun.v1.tekton.dev, limits: {maxObjectBytes: 2000}}": "",
		"{name: PipelineRun.v1.tekton.dev}":                                 "",
	} {
		d, cfg := configured(t, entry)
		_, err := cfg.NewJob(d, local, w, map[string]any{"name": "w1"})
		if got := external.As(err); (err != nil) != (want != "") || want != "" && (got.Code != want || !strings.Contains(got.Text, `creation on "w1"`)) {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

// TestSpecPaths is spec 40 §7.58: a mutation of a running copy changes only the allowed paths.
func TestSpecPaths(t *testing.T) {
	for path, allowed := range map[string]bool{
		"/spec/status": true, "/spec/status/deeper": true, "/spec/statusText": false, "/spec/params": false, "/spec/params/0": false, "/metadata/labels/a": false, "/status": false,
	} {
		d, cfg := configured(t, `
name: PipelineRun.v1.tekton.dev
specSync:
  allowedPaths: [/spec/status]
  mutations: [{name: m, patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "`+path+`", value: "new"}]'}}]`)
		local := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": map[string]any{"name": "r", "namespace": "ns", "uid": "u", "labels": map[string]any{"b": "c"}},
			"spec": map[string]any{"params": []any{"x"}, "status": map[string]any{"was": "old"}},
		}}
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl"}}
		remote, err := cfg.NewJob(d, local, w, nil)
		if err != nil {
			t.Fatal(err)
		}
		step, err := cfg.SyncJob(d, local, remote, w, map[string]any{"name": "w1"}, true)
		if err != nil || (step.Spec != nil) != allowed {
			t.Errorf("%s: %v, %v", path, step.Spec, err)
		}
		if fault := external.As(step.SpecFault); (fault != nil) == allowed || (fault != nil && fault.Code != "SpecSyncFailed") {
			t.Errorf("%s: fault %v", path, step.SpecFault)
		}
	}
}
