package declared_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	_ "github.com/berth-project/berth/internal/job/kind/all" // the catalogue of frameworks
	"github.com/berth-project/berth/internal/job/kind/declared"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view/viewtest"
	"github.com/berth-project/berth/internal/options"
)

// example are the kinds of the documentation: a Crew and a PipelineRun.
func example(t *testing.T) (crew, run *plan.Descriptor) {
	t.Helper()
	o, err := options.Load("../../../../docs/examples/declared-kinds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := declared.Descriptors(&o)
	return d[0], d[1]
}

var parse = viewtest.Parse

const crewText = `
apiVersion: crew.example.com/v1
kind: Crew
metadata: {name: c, uid: u, namespace: n, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  suspend: true
  roles:
    cook: {template: {spec: {containers: [{name: c}]}}}
`

var setting = &plan.Setting{Config: &plan.Config{Topology: true, ReclaimablePods: true, FinishOrphans: true}}

func TestTemplates(t *testing.T) {
	crew, run := example(t)
	for name, test := range map[string]struct{ text, want string }{
		"no template": {"{apiVersion: crew.example.com/v1, kind: Crew, spec: {roles: {cook: {replicas: 1}}}}", "cook has the path spec.roles.cook.template, where the job has no pod template"},
		"no roles":    {"{apiVersion: crew.example.com/v1, kind: Crew, spec: {}}", "no such key: roles"},
		"not one":     {"{apiVersion: crew.example.com/v1, kind: Crew, spec: {roles: {cook: {template: {spec: 3}}}}}", "cook has no pod template"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := crew.PodSets(parse(t, test.text), setting)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	// Fields of a job may be of a later version; templates of an expression are read strictly.
	later := parse(t, "{apiVersion: crew.example.com/v1, kind: Crew, spec: {roles: {cook: {template: {spec: {containers: [{name: c}], novel: true}}}}}}")
	if _, err := crew.PodSets(later, setting); err != nil {
		t.Error(err)
	}
	odd := parse(t, "{apiVersion: tekton.dev/v1, kind: PipelineRun, metadata: {}, spec: {taskRunTemplate: {podTemplate: {tolerations: [{keys: a}]}}}}")
	if _, err := run.PodSets(odd, setting); err == nil || !strings.Contains(err.Error(), `unknown field "spec.tolerations[0].keys"`) {
		t.Error(err)
	}
}

// A job that an expression does not fit stalls with an event, keeps its quota while it may run, and makes room all the same.
func TestUnreadableJob(t *testing.T) {
	crew, _ := example(t)
	now := metav1.Now()
	observed := func(status string, change func(*unstructured.Unstructured, *kueue.Workload)) *plan.Observed {
		o := parse(t, crewText)
		if err := unstructured.SetNestedMap(o.Object, parse(t, "{kind: x, status: "+status+"}").Object["status"].(map[string]any), "status"); err != nil {
			t.Fatal(err)
		}
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "w", Finalizers: []string{kueue.ResourceInUseFinalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o, crew.GVK)},
		}}
		setting.Lifecycle.Reserve(wl, &kueue.Admission{ClusterQueue: "cq"}, nil, now)
		if change != nil {
			change(o, wl)
		}
		return &plan.Observed{Job: o, Verdict: plan.Verdict{Mode: plan.Managed}, Workloads: []*kueue.Workload{wl}, Now: now}
	}
	running := func(o *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(o.Object, false, "spec", "suspend")
	}
	preempted := func(o *unstructured.Unstructured, wl *kueue.Workload) {
		running(o)
		setting.Lifecycle.Preempt(wl, kueue.ReasonInClusterQueue, "Preempted to make room", now)
	}
	for name, test := range map[string]struct {
		status string
		change func(*unstructured.Unstructured, *kueue.Workload)
		want   plan.Verb
		event  string
	}{
		"waits":              {"{active: many}", nil, plan.Stall, "ErrJobExpression"},
		"preempted":          {"{through: many}", preempted, plan.PatchJob, "Stopped"},
		"preempted, running": {"{active: many}", func(o *unstructured.Unstructured, wl *kueue.Workload) { preempted(o, wl); crew.Suspend(o) }, plan.Stall, "ErrJobExpression"},
		"preempted, over":    {"{through: many}", func(o *unstructured.Unstructured, wl *kueue.Workload) { preempted(o, wl); crew.Suspend(o) }, plan.WriteStatus, ""},
		"finished":           {"{phase: Done, through: many}", nil, plan.WriteStatus, "FinishedWorkload"},
		"workload deleted": {"{through: many}", func(o *unstructured.Unstructured, wl *kueue.Workload) {
			running(o)
			wl.DeletionTimestamp = &now
		}, plan.PatchJob, "Stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			a := decide.Next(setting.Config, crew, observed(test.status, test.change))
			event := ""
			for _, e := range a.Events {
				event += e.Reason
			}
			if a.Verb != test.want || event != test.event {
				t.Errorf("verb %d, event %s (%v), want %d, %s", a.Verb, event, a.Err, test.want, test.event)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	crew, _ := example(t)
	queued, bad := parse(t, crewText), parse(t, crewText)
	unstructured.RemoveNestedField(bad.Object, "spec", "roles")
	free := bad.DeepCopy()
	free.SetLabels(nil)
	odd := parse(t, crewText)
	_ = unstructured.SetNestedField(odd.Object, "yes", "spec", "roles", "cook", "template", "metadata", "annotations", kueue.PodSetUnconstrainedTopologyAnnotation)
	for name, test := range map[string]struct {
		job, old plan.Object
		want     string
	}{
		"fits":             {queued, nil, ""},
		"does not":         {bad, nil, "spec: Invalid value: \"Crew\": Crew.v1.crew.example.com podSets (object.spec.roles.map(role, { \"name\": role, \"count\": object.…): no such key: roles"},
		"is changed":       {bad, queued, ""},
		"without a queue":  {free, nil, ""},
		"topology, always": {odd, queued, "spec.roles.cook.template.metadata.annotations[kueue.x-k8s.io/podset-unconstrained-topology]"},
	} {
		t.Run(name, func(t *testing.T) {
			err := crew.Validate(test.job, test.old, setting).ToAggregate()
			if (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// TestPlaces: pods of templates that are made up can be placed if inject passes on their gates, and the label and the annotation by which
// they are found. Otherwise a request for places is refused, and an admission with places is not started. spec: 20 §4.8.
func TestPlaces(t *testing.T) {
	const all = `"labels": podSets[0].labels, "annotations": podSets[0].annotations, "schedulingGates": podSets[0].schedulingGates`
	for name, test := range map[string]struct{ inject, want string }{
		"all":            {all, ""},
		"no gates":       {`"labels": podSets[0].labels, "annotations": podSets[0].annotations`, "inject of declared kind Run.v1.example.com does not pass podSets[0].schedulingGates"},
		"no labels":      {`"annotations": podSets[0].annotations, "schedulingGates": podSets[0].schedulingGates`, "inject of declared kind Run.v1.example.com does not pass podSets[0].labels"},
		"no annotations": {`"labels": podSets[0].labels, "schedulingGates": podSets[0].schedulingGates`, "inject of declared kind Run.v1.example.com does not pass podSets[0].annotations"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := options.Parse("c.yaml", []byte(`
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job]
  declaredKinds:
  - name: Run.v1.example.com
    suspend: {path: spec.suspend}
    podSets: '[{"name": "main", "count": 2, "template": {"metadata": {"annotations": object.metadata.annotations}, "spec": {"containers": [{"name": "c"}]}}}]'
    inject: '{"spec": {"pods": {`+test.inject+`}}}'
    started: "false"
    finished: "{}"
`), "")
			if err != nil {
				t.Fatal(err)
			}
			d := declared.Descriptors(&o)[0]
			job := parse(t, `{apiVersion: example.com/v1, kind: Run, metadata: {name: r, labels: {kueue.x-k8s.io/queue-name: lq},
				annotations: {kueue.x-k8s.io/podset-required-topology: rack}}, spec: {suspend: true}}`)
			check := func(what string, err error, want string) {
				t.Helper()
				if (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), want+test.want)) {
					t.Errorf("%s: %v, want %s%s", what, err, want, test.want)
				}
			}
			refusals := d.Validate(job, nil, setting).ToAggregate()
			check("created", refusals, "spec.metadata.annotations: Forbidden: pods of pod set main cannot be placed by topology: ")
			if err := d.Validate(job, job, setting).ToAggregate(); err != nil {
				t.Errorf("changed: %v", err)
			}
			info := plan.PodSetInfo{
				Labels: map[string]string{kueue.PodSetLabel: "main"}, Annotations: map[string]string{kueue.WorkloadAnnotation: "w"},
				SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}},
			}
			err = d.Start(job, []plan.PodSetInfo{info}, setting)
			check("started", err, "")
			if err != nil && !errors.Is(err, podset.ErrPermanent) {
				t.Error("the error is not permanent")
			}
		})
	}
}

func TestReclaimable(t *testing.T) {
	crew, _ := example(t)
	o := parse(t, crewText)
	_ = unstructured.SetNestedMap(o.Object, map[string]any{"cook": int64(1), "nobody": int64(3)}, "status", "through")
	if diff := cmp.Diff([]kueue.ReclaimablePod{{Name: "cook", Count: 1}}, crew.Reclaimable(o, setting)); diff != "" {
		t.Error(diff)
	}
}

// A job that its user stopped keeps the injected values until they are removed, before its quota is released.
func TestUserStopRestores(t *testing.T) {
	crew, _ := example(t)
	cfg := &plan.Config{HonourUserSuspend: true}
	o := parse(t, crewText)
	wanted, err := crew.PodSets(o, &plan.Setting{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	before := o.DeepCopy()
	info := plan.PodSetInfo{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{}, NodeSelector: map[string]string{"pool": "h100"}}
	if err := crew.Start(o, []plan.PodSetInfo{info}, &plan.Setting{Config: cfg}); err != nil {
		t.Fatal(err)
	}
	crew.Suspend(o)
	o.SetAnnotations(map[string]string{plan.UserStopAnnotation: "true"})
	before.SetAnnotations(o.GetAnnotations())
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: "w", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o, crew.GVK)}},
		Spec:       kueue.WorkloadSpec{QueueName: "lq", PodSets: wanted},
	}
	cfg.Lifecycle.Reserve(wl, &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "cook"}}}, nil, metav1.Now())
	observed := &plan.Observed{Job: o, Verdict: plan.Verdict{Mode: plan.Managed}, Workloads: []*kueue.Workload{wl}}
	a := decide.Next(cfg, crew, observed)
	if a.Verb != plan.PatchJob {
		t.Fatalf("verb %d: %v", a.Verb, a.Err)
	}
	if diff := cmp.Diff(before, a.Job); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	still := a.Job.DeepCopyObject().(*unstructured.Unstructured)
	_ = unstructured.SetNestedField(still.Object, int64(1), "status", "active")
	observed.Job = still
	if b := decide.Next(cfg, crew, observed); b.Verb != plan.Nothing {
		t.Errorf("verb %d while a pod is still there, want nothing: %v", b.Verb, b.Err)
	}
	observed.Job = a.Job
	if a = decide.Next(cfg, crew, observed); a.Verb != plan.WriteStatus {
		t.Errorf("verb %d, want the quota freed: %v", a.Verb, a.Err)
	}
}
