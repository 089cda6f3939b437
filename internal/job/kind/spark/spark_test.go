package spark

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/job/plan/view/viewtest"
)

func parse(t *testing.T, spec string) view.Object {
	t.Helper()
	text := "{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: " + spec + "}"
	if strings.HasPrefix(spec, "\n") {
		text = "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nspec:" + spec
	}
	return viewtest.Parse(t, text)
}

func setting() *plan.Setting {
	return &plan.Setting{Config: &plan.Config{Topology: true}}
}

// The requests of each role's main container, as cpu/memory with limits after it.
func TestRequests(t *testing.T) {
	for name, test := range map[string]struct {
		spec     string
		overhead bool
		want     string
	}{
		"nothing said":         {"{}", false, "driver:1 1/1Gi executor:0 1/1Gi"},
		"example 70":           {"{driver: {memory: 1Gi}, executor: {instances: 1, memory: 1Gi}}", false, "driver:1 1/1Gi executor:1 1/1Gi"},
		"cores":                {"{driver: {cores: 2}, executor: {cores: 3, coreRequest: 500m, coreLimit: '4'}}", false, "driver:1 2/1Gi executor:0 500m/1Gi limit 4/0"},
		"overhead":             {"{driver: {memory: 512m, memoryOverhead: 256m}, executor: {memory: 2G, memoryLimit: 3g}}", false, "driver:1 1/768Mi executor:0 1/2Gi limit 0/3Gi"},
		"implicit overhead":    {"{driver: {memory: 1g}, executor: {memory: 10g}}", true, "driver:1 1/1408Mi executor:0 1/11Gi"},
		"of Python":            {"{type: Python, driver: {memory: 10g}, executor: {memory: 10g, memoryOverhead: '0'}}", true, "driver:1 1/14Gi executor:0 1/10Gi"},
		"by a factor":          {"{memoryOverheadFactor: '0.5', driver: {memory: 10g}}", true, "driver:1 1/15Gi executor:0 1/1536Mi"},
		"a number of mebibyte": {"{driver: {memory: '1024'}, executor: {memory: 2048k}}", false, "driver:1 1/1Gi executor:0 1/2Mi"},
		"no size":              {"{driver: {memory: much}}", false, `spec.driver.memory "much" is no size such as 512m or 2g`},
		"no quantity":          {"{driver: {coreRequest: x}}", false, `spec.driver.coreRequest "x" is no quantity`},
		"no template":          {"{executor: {template: {spec: 3}}}", false, "spec.executor.template is no pod template"},
	} {
		t.Run(name, func(t *testing.T) {
			sets, err := Descriptor(test.overhead).PodSets(parse(t, test.spec), setting())
			got := ""
			if err != nil {
				got = err.Error()
			}
			for _, s := range sets {
				r := s.Template.Spec.Containers[0].Resources
				got += fmt.Sprintf(" %s:%d %s/%s", s.Name, s.Count, r.Requests.Cpu(), r.Requests.Memory())
				if r.Limits != nil {
					got += fmt.Sprintf(" limit %s/%s", r.Limits.Cpu(), r.Limits.Memory())
				}
			}
			if !strings.HasPrefix(strings.TrimSpace(got), test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

const full = `
mode: cluster
image: spark
nodeSelector: {zone: a}
volumes: [{name: v, emptyDir: {}}]
driver:
  labels: {role: d}
  gpu: {name: nvidia.com/gpu, quantity: 2}
  priorityClassName: high
  initContainers: [{name: i}]
  sidecars: [{name: s}]
  volumeMounts: [{name: v, mountPath: /v}]
  affinity: {nodeAffinity: {}}
executor:
  instances: 4
  annotations: {a: b}
  template:
    metadata: {labels: {role: e, app: x}}
    spec: {nodeSelector: {disk: ssd}, containers: [{name: other}, {name: spark-kubernetes-executor, image: old}]}
`

func TestPods(t *testing.T) {
	sets, err := Descriptor(false).PodSets(parse(t, "\n"+indent(full)), setting())
	if err != nil {
		t.Fatal(err)
	}
	d, e := &sets[0].Template, &sets[1].Template
	names := func(list []corev1.Container) (out string) {
		for _, c := range list {
			out += c.Name + ":" + c.Image + " "
		}
		return out
	}
	for what, ok := range map[string]bool{
		"driver's labels":      cmp.Equal(d.Labels, map[string]string{"role": "d"}),
		"driver's selector":    cmp.Equal(d.Spec.NodeSelector, map[string]string{"zone": "a"}),
		"driver's containers":  names(d.Spec.Containers) == "spark-kubernetes-driver:spark s: " && names(d.Spec.InitContainers) == "i: ",
		"driver's class":       d.Spec.PriorityClassName == "high" && d.Spec.Affinity != nil,
		"driver's volumes":     len(d.Spec.Volumes) == 1 && len(d.Spec.Containers[0].VolumeMounts) == 1,
		"driver's gpus":        d.Spec.Containers[0].Resources.Requests.Name("nvidia.com/gpu", "").Value() == 2,
		"executor's labels":    cmp.Equal(e.Labels, map[string]string{"role": "e", "app": "x"}) && e.Annotations["a"] == "b",
		"executor's selector":  cmp.Equal(e.Spec.NodeSelector, map[string]string{"zone": "a", "disk": "ssd"}),
		"executor's container": names(e.Spec.Containers) == "other: spark-kubernetes-executor:spark ",
		"executor's requests":  e.Spec.Containers[0].Resources.Requests == nil && e.Spec.Containers[1].Resources.Requests.Memory().String() == "1Gi",
	} {
		if !ok {
			t.Errorf("%s are wrong:\n%+v\n%+v", what, d, e)
		}
	}
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
}

// A start merges the selector of the application into both roles; a restore removes the values of the start.
func TestStartAndRestore(t *testing.T) {
	d := Descriptor(false)
	o := parse(t, "\n"+indent(full))
	d.Suspend(o)
	sets, err := d.PodSets(o, setting())
	if err != nil {
		t.Fatal(err)
	}
	info := plan.PodSetInfo{
		Labels: map[string]string{"podset": "x"}, Annotations: map[string]string{}, NodeSelector: map[string]string{"pool": "h100"},
		Tolerations: []corev1.Toleration{{Key: "gpu", Operator: "Exists"}}, SchedulingGates: []corev1.PodSchedulingGate{{Name: "topology"}},
	}
	if err := d.Start(o, []plan.PodSetInfo{info}, setting()); err == nil {
		t.Error("started with one pod set")
	}
	before := o.DeepCopy()
	if err := d.Start(o, []plan.PodSetInfo{info, info}, setting()); err != nil {
		t.Fatal(err)
	}
	executor := view.Map(o.Object, "spec", "executor")
	want := map[string]any{
		"labels": map[string]any{"podset": "x"}, "annotations": map[string]any{"a": "b"}, "instances": int64(4),
		"nodeSelector": map[string]any{"pool": "h100", "zone": "a"}, "tolerations": []any{map[string]any{"key": "gpu", "operator": "Exists"}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"role": "e", "app": "x"}},
			"spec": map[string]any{
				"nodeSelector": map[string]any{"disk": "ssd"}, "schedulingGates": []any{map[string]any{"name": "topology"}},
				"containers": []any{map[string]any{"name": "other"}, map[string]any{"name": "spark-kubernetes-executor", "image": "old"}},
			},
		},
	}
	if diff := cmp.Diff(want, executor); diff != "" {
		t.Errorf("executor -want +got:\n%s", diff)
	}
	if view.Get(o.Object, "spec", "nodeSelector") != nil || d.IsSuspended(o) {
		t.Errorf("spec %v", o.Object["spec"])
	}
	view.Set(o.Object, int64(2), "spec", "executor", "instances")
	d.Suspend(o)
	if !d.Restore(o, sets) || d.Restore(o, sets) {
		t.Error("a restore changes something once")
	}
	for _, role := range []string{"driver", "executor"} { // the selector stays with the roles
		view.Set(before.Object, map[string]any{"zone": "a"}, "spec", role, "nodeSelector")
	}
	delete(view.Map(before.Object, "spec"), "nodeSelector")
	if diff := cmp.Diff(before.Object, o.Object); diff != "" {
		t.Errorf("restored -want +got:\n%s", diff)
	}
	if d.Restore(o, sets[:1]) {
		t.Error("restored from another number of pod sets")
	}
}

func TestStates(t *testing.T) {
	d := Descriptor(false)
	for name, test := range map[string]struct {
		spec, status                     string
		active, done, success, podsReady bool
	}{
		"new":                      {"{}", "{}", false, false, false, false},
		"submitted":                {"{}", "{applicationState: {state: SUBMITTED}}", true, false, false, false},
		"running":                  {"{executor: {instances: 2}}", "{applicationState: {state: RUNNING}, executorState: {a: RUNNING, b: PENDING}}", true, false, false, false},
		"ready":                    {"{executor: {instances: 2}}", "{applicationState: {state: RUNNING}, executorState: {a: RUNNING, b: COMPLETED}}", true, false, false, true},
		"suspending":               {"{}", "{applicationState: {state: SUSPENDING}}", true, false, false, false},
		"suspended":                {"{}", "{applicationState: {state: SUSPENDED}}", false, false, false, false},
		"succeeding":               {"{}", "{applicationState: {state: SUCCEEDING}}", true, false, false, false},
		"completed":                {"{}", "{applicationState: {state: COMPLETED}}", false, true, true, false},
		"failed":                   {"{}", "{applicationState: {state: FAILED}}", false, true, false, false},
		"not submitted":            {"{}", "{applicationState: {state: SUBMISSION_FAILED}}", false, true, false, false},
		"not submitted, always":    {"{restartPolicy: {type: Always}}", "{applicationState: {state: SUBMISSION_FAILED}}", false, false, false, false},
		"not submitted, once more": {"{restartPolicy: {type: OnFailure, onSubmissionFailureRetries: 2}}", "{applicationState: {state: SUBMISSION_FAILED}, submissionAttempts: 2}", false, false, false, false},
		"not submitted, enough":    {"{restartPolicy: {type: OnFailure, onSubmissionFailureRetries: 2}}", "{applicationState: {state: SUBMISSION_FAILED}, submissionAttempts: 3}", false, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := parse(t, test.spec+", status: "+test.status)
			_, success, done := d.Finished(o)
			got := []bool{d.IsActive(o), done, success, d.PodsReady(o, setting())}
			if diff := cmp.Diff([]bool{test.active, test.done, test.success, test.podsReady}, got); diff != "" {
				t.Errorf("active, done, success, ready -want +got:\n%s", diff)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	d := Descriptor(false)
	for name, test := range map[string]struct {
		spec, queue string
		want        []string
	}{
		"fits":            {"{mode: cluster}", "lq", nil},
		"client mode":     {"{mode: client}", "lq", []string{"spec.mode"}},
		"grows by itself": {"{mode: cluster, dynamicAllocation: {enabled: true}}", "lq", []string{"spec.dynamicAllocation.enabled"}},
		"everything":      {"{dynamicAllocation: {enabled: true}, driver: {memory: x}}", "lq", []string{"spec.mode", "spec.dynamicAllocation.enabled", "spec.driver"}},
		"not queued":      {"{mode: client, driver: {memory: x}}", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := parse(t, test.spec)
			if test.queue != "" {
				o.SetLabels(map[string]string{kueue.QueueNameLabel: test.queue})
			}
			var got []string
			for _, e := range d.Validate(o, nil, setting()) {
				got = append(got, e.Field)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
