package webhook

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/deployment"
	batchjob "github.com/berth-project/berth/internal/job/kind/job"
	"github.com/berth-project/berth/internal/job/kind/leaderworkerset"
	"github.com/berth-project/berth/internal/job/kind/pod"
	"github.com/berth-project/berth/internal/job/kind/statefulset"
	"github.com/berth-project/berth/internal/review/reviewtest"
)

// bases are the smallest objects of the kinds that marked is about.
var bases = map[string]struct {
	d    *job.Descriptor
	base string
}{
	"Pod":             {pod.Descriptor(), `{"spec": {"containers": []}}`},
	"Job":             {batchjob.Descriptor(), `{"spec": {"template": {"metadata": {}, "spec": {"containers": []}}}}`},
	"Deployment":      {deployment.Descriptor(), `{"spec": {"template": {"metadata": {}, "spec": {"containers": []}}}}`},
	"StatefulSet":     {statefulset.Descriptor(), `{"spec": {"template": {"metadata": {}, "spec": {"containers": []}}}}`},
	"LeaderWorkerSet": {leaderworkerset.Descriptor(), `{"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "spec": {"leaderWorkerTemplate": {"leaderTemplate": {"spec": {"containers": []}}, "workerTemplate": {"spec": {"containers": []}}}}}`},
}

// marks are keys that the webhooks match, and one that they do not.
var marks = []string{
	kueue.QueueNameLabel, kueue.ManagedLabel, kueue.PodGroupNameLabel, kueue.PodGroupTotalCountAnnotation, kueue.PrebuiltWorkloadLabel,
	kueue.PodSuspendingParentAnnotation, kueue.MaxExecTimeSecondsLabel, kueue.ElasticJobAnnotation, kueue.AdmissionGatedByAnnotation,
	kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetGroupNameAnnotation,
	kueue.RetriableInGroupAnnotation, kueue.PriorityClassLabel, "example.com/any",
}

// drawMarks puts marks with any value on an object and on its pod templates.
func drawMarks(t *rapid.T, d *job.Descriptor, base string) map[string]any {
	object := map[string]any{}
	if err := json.Unmarshal([]byte(base), &object); err != nil {
		t.Fatal(err)
	}
	places := [][]string{{"metadata"}}
	if len(d.Open.Templates) == 1 {
		places = append(places, []string{"spec", "template", "metadata"})
	}
	if d.GVK.Kind == "LeaderWorkerSet" {
		places = [][]string{{"metadata"}, {"spec", "leaderWorkerTemplate", "leaderTemplate", "metadata"}, {"spec", "leaderWorkerTemplate", "workerTemplate", "metadata"}}
	}
	for _, place := range places {
		for _, names := range []string{"labels", "annotations"} {
			values := map[string]any{}
			for _, key := range rapid.SliceOfN(rapid.SampledFrom(marks), 0, 2).Draw(t, names) {
				values[key] = rapid.SampledFrom([]string{"a", "true", "false", "0", "A_", d.Framework}).Draw(t, key)
			}
			if len(values) == 0 {
				continue
			}
			if err := unstructured.SetNestedMap(object, values, append(append([]string{}, place...), names)...); err != nil {
				t.Fatal(err)
			}
		}
	}
	return object
}

// A webhook is not called for a pod or for an object that serves only if it would not change it, refuse it or warn of it.
func TestMarkedMissesNothing(t *testing.T) {
	cfg := &job.Config{Topology: true, AdmissionGatedBy: true, AnnotationIdentifiers: true}
	for name, of := range bases {
		t.Run(name, func(t *testing.T) {
			called := reviewtest.Condition(t, marked(&Options{Jobs: cfg}, of.d))
			decode := func(t *rapid.T, tree map[string]any) job.Object {
				raw, err := json.Marshal(tree)
				if err != nil {
					t.Fatal(err)
				}
				object := of.d.New()
				if err := json.Unmarshal(raw, object); err != nil {
					t.Fatal(err)
				}
				return object
			}
			rapid.Check(t, func(t *rapid.T) {
				tree, before := drawMarks(t, of.d, of.base), map[string]any(nil)
				if rapid.Bool().Draw(t, "update") {
					before = drawMarks(t, of.d, of.base)
				}
				if called(t, tree, before) {
					return
				}
				object := decode(t, tree)
				rules := jobRules{cfg: cfg, d: of.d, job: object}
				errs := rules.create()
				var old job.Object
				if before != nil {
					old = decode(t, before)
					rules.old = old
					errs = append(errs, rules.update()...)
				}
				in := &job.Setting{Config: cfg, Mode: job.Ignored}
				if of.d.Validate != nil {
					errs = append(errs, of.d.Validate(object, old, in)...)
				}
				if len(errs) > 0 {
					t.Fatalf("not called, and would refuse: %v", errs)
				}
				if of.d.Once != nil && of.d.Once.Warn != nil && len(of.d.Once.Warn(object, old, cfg)) > 0 {
					t.Fatal("not called, and would warn")
				}
				if job.QueueName(object) != "" || (of.d.Claimed != nil && of.d.Claimed(object)) {
					t.Fatal("not called for what is queued")
				}
				sent := object.DeepCopyObject()
				if of.d.Default != nil {
					of.d.Default(object, false, in)
				}
				if diff := cmp.Diff(sent, object); diff != "" {
					t.Fatalf("not called, and would change:\n%s", diff)
				}
			})
		})
	}
}

func TestMarked(t *testing.T) {
	queue := map[string]any{kueue.QueueNameLabel: "q"}
	with := func(labels map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{}}
	}
	none := map[string]any{"metadata": map[string]any{}, "spec": map[string]any{}}
	for name, tc := range map[string]struct {
		object, old map[string]any
		want        bool
	}{
		"none":           {object: none},
		"a queue":        {object: with(queue), want: true},
		"other labels":   {object: with(map[string]any{"app": "a"})},
		"a queue before": {object: none, old: with(queue), want: true},
		"none before":    {object: none, old: none},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reviewtest.Condition(t, marked(&Options{Jobs: &job.Config{}}, bases["Deployment"].d))(t, tc.object, tc.old); got != tc.want {
				t.Errorf("called: %v", got)
			}
		})
	}
	gated := func(gate string) map[string]any {
		return map[string]any{"metadata": map[string]any{}, "spec": map[string]any{"schedulingGates": []any{map[string]any{"name": gate}}}}
	}
	called := reviewtest.Condition(t, marked(&Options{Jobs: &job.Config{}}, bases["Pod"].d))
	if !called(t, none, gated(kueue.AdmissionSchedulingGate)) || called(t, none, gated("example.com/gate")) {
		t.Error("not called for a pod without marks that loses the gate, or for another gate")
	}
	if got := marked(&Options{Jobs: &job.Config{ManageAll: true}}, bases["Pod"].d); got != "" {
		t.Errorf("where every pod is queued, some are left out: %s", got)
	}
}

// Where only pods of parents are queued, a pod of a parent is checked also when it no longer says so.
func TestPodsOfParents(t *testing.T) {
	s := &server{o: &Options{Jobs: &job.Config{PodsOfParentsOnly: true}}}
	plain, claimed := &corev1.Pod{}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"}}}
	for name, tc := range map[string]struct {
		object, old client.Object
		want        bool
	}{
		"plain": {plain, nil, true}, "of a parent": {claimed, nil, false}, "stays plain": {plain, plain, true}, "leaves its parent": {plain, claimed, false},
	} {
		if got := s.isFree(bases["Pod"].d, tc.object, tc.old); got != tc.want {
			t.Errorf("%s: free of all rules: %t", name, got)
		}
	}
}
