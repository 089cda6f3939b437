package appwrapper_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/appwrapper"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view/viewtest"
)

var parse = viewtest.Parse

var setting = &plan.Setting{Config: &plan.Config{Topology: true}}

func TestPodSets(t *testing.T) {
	const template = "template: {spec: {nodeSelector: {a: b}}}"
	tests := map[string]struct {
		component, status string
		want              []string
	}{
		"pod":         {component: "{template: {apiVersion: v1, kind: Pod, spec: {nodeSelector: {a: b}}}}", want: []string{"aw-0:1"}},
		"deployment":  {component: "{template: {apiVersion: apps/v1, kind: Deployment, spec: {replicas: 3, " + template + "}}}", want: []string{"aw-0:3"}},
		"statefulset": {component: "{template: {apiVersion: apps/v1, kind: StatefulSet, spec: {" + template + "}}}", want: []string{"aw-0:1"}},
		"job":         {component: "{template: {apiVersion: batch/v1, kind: Job, spec: {parallelism: 4, completions: 2, " + template + "}}}", want: []string{"aw-0:2"}},
		"jobset": {
			component: "{template: {apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [{replicas: 2, template: {spec: {parallelism: 3, " + template + "}}}, {template: {spec: {" + template + "}}}]}}}",
			want:      []string{"aw-0:6", "aw-1:1"},
		},
		"pytorch": {
			component: "{template: {apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {pytorchReplicaSpecs: {Worker: {replicas: 2, " + template + "}, Master: {" + template + "}}}}}",
			want:      []string{"aw-0:1", "aw-1:2"},
		},
		"ray cluster": {
			component: "{template: {apiVersion: ray.io/v1, kind: RayCluster, spec: {headGroupSpec: {" + template + "}, workerGroupSpecs: [{replicas: 2, " + template + "}]}}}",
			want:      []string{"aw-0:1", "aw-1:2"},
		},
		"ray cluster of hosts": {
			component: "{template: {apiVersion: ray.io/v1, kind: RayCluster, spec: {headGroupSpec: {" + template + "}, workerGroupSpecs: [{replicas: 2, numOfHosts: 4, " + template + "}, {suspend: true, " + template + "}]}}}",
			want:      []string{"aw-0:1", "aw-1:8", "aw-2:0"},
		},
		"ray job": {
			component: "{template: {apiVersion: ray.io/v1, kind: RayJob, spec: {rayClusterSpec: {headGroupSpec: {" + template + "}}}}}",
			want:      []string{"aw-0:1"},
		},
		"declared": {
			component: "{podSets: [{replicas: 5, path: 'template.spec.parts[1].template'}], template: {apiVersion: acme.io/v1, kind: X, spec: {parts: [{}, {" + template + "}]}}}",
			want:      []string{"aw-0:5"},
		},
		"found by the controller": {
			component: "{template: {apiVersion: acme.io/v1, kind: X, spec: {" + template + "}}}",
			status:    "{componentStatus: [{podSets: [{path: template.spec.template}]}]}",
			want:      []string{"aw-0:1"},
		},
		"found by the controller, without hosts": {
			component: "{template: {apiVersion: ray.io/v1, kind: RayCluster, spec: {headGroupSpec: {" + template + "}, workerGroupSpecs: [{replicas: 2, numOfHosts: 4, " + template + "}]}}}",
			status:    "{componentStatus: [{podSets: [{path: template.spec.headGroupSpec.template}, {replicas: 2, path: 'template.spec.workerGroupSpecs[0].template'}]}]}",
			want:      []string{"aw-0:1", "aw-1:8"},
		},
		"nowhere":        {component: "{podSets: [{path: 'template.spec.parts[1].template'}], template: {spec: {parts: [{}]}}}", want: []string{"spec.components[0]: the path template.spec.parts[1].template leads nowhere"}},
		"nothing in it":  {component: "{template: {apiVersion: v1, kind: Service}}"},
		"a strange path": {component: "{podSets: [{path: 'template.x[y]'}], template: {}}", want: []string{"spec.components[0]: the path template.x[y] leads nowhere"}},
	}
	for name, tc := range tests {
		o := parse(t, "{kind: X, metadata: {name: aw}, spec: {components: ["+tc.component+"]}, status: "+tc.status+"}")
		sets, err := appwrapper.Descriptor().PodSets(o, setting)
		var got []string
		for _, s := range sets {
			got = append(got, fmt.Sprintf("%s:%d", s.Name, s.Count))
			if s.Template.Spec.NodeSelector["a"] != "b" {
				t.Errorf("%s: pod set %s is %+v", name, s.Name, s)
			}
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
	}
}

func TestRanks(t *testing.T) {
	o := parse(t, `{kind: X, spec: {components: [{podSets: [{path: template.spec.template, annotations: {
  workload.codeflare.dev.appwrapper/tas-pod-index-label: i, workload.codeflare.dev.appwrapper/tas-sub-group-index-label: g,
  workload.codeflare.dev.appwrapper/tas-sub-group-count: "4"}}], template: {apiVersion: acme.io/v1, kind: X, spec: {template: {}}}}]}}`)
	sets, err := appwrapper.Descriptor().PodSets(o, setting)
	if err != nil {
		t.Fatal(err)
	}
	if r := sets[0].TopologyRequest; r == nil || *r.PodIndexLabel != "i" || *r.SubGroupIndexLabel != "g" || *r.SubGroupCount != 4 {
		t.Errorf("%+v", r)
	}
}

// TestInferredRanks: a wrapped object is placed by the labels by which it is placed on its own.
func TestInferredRanks(t *testing.T) {
	const template = "template: {spec: {}}"
	for name, tc := range map[string]struct{ component, want string }{
		"a declared job": {
			"{apiVersion: batch/v1, kind: Job, spec: {" + template + "}}, podSets: [{path: template.spec.template}]", "batch.kubernetes.io/job-completion-index",
		},
		"job":         {"{apiVersion: batch/v1, kind: Job, spec: {" + template + "}}", "batch.kubernetes.io/job-completion-index"},
		"statefulset": {"{apiVersion: apps/v1, kind: StatefulSet, spec: {" + template + "}}", "apps.kubernetes.io/pod-index"},
		"jobset": {
			"{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [{replicas: 2, template: {spec: {" + template + "}}}]}}",
			"batch.kubernetes.io/job-completion-index jobset.sigs.k8s.io/job-index 2",
		},
		"pytorch": {
			"{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {pytorchReplicaSpecs: {Worker: {" + template + "}}}}",
			"training.kubeflow.org/replica-index",
		},
		"deployment":  {"{apiVersion: apps/v1, kind: Deployment, spec: {" + template + "}}", ""},
		"ray cluster": {"{apiVersion: ray.io/v1, kind: RayCluster, spec: {headGroupSpec: {" + template + "}}}", ""},
	} {
		sets, err := appwrapper.Descriptor().PodSets(parse(t, "{kind: X, metadata: {name: aw}, spec: {components: [{template: "+tc.component+"}]}}"), setting)
		if err != nil || len(sets) != 1 {
			t.Fatalf("%s: %v, %v", name, sets, err)
		}
		got := ""
		if r := sets[0].TopologyRequest; r != nil {
			if got = *r.PodIndexLabel; r.SubGroupIndexLabel != nil {
				got += fmt.Sprint(" ", *r.SubGroupIndexLabel, " ", *r.SubGroupCount)
			}
		}
		if got != tc.want {
			t.Errorf("%s: numbered by %q, want %q", name, got, tc.want)
		}
	}
}

func TestStartAndRestore(t *testing.T) {
	const text = `{kind: X, metadata: {name: aw}, spec: {suspend: true, components: [
  {template: {apiVersion: v1, kind: Service}},
  {template: {apiVersion: v1, kind: Pod, spec: {nodeSelector: {zone: a}}}},
  {template: {apiVersion: v1, kind: Pod, spec: {}}}]}}`
	d := appwrapper.Descriptor()
	o := parse(t, text)
	infos := []plan.PodSetInfo{
		{NodeSelector: map[string]string{"pool": "h100"}, Labels: map[string]string{"l": "v"}}, {NodeSelector: map[string]string{"pool": "a100"}},
	}
	if err := d.Start(o, infos, setting); err != nil {
		t.Fatal(err)
	}
	want := parse(t, `{kind: X, metadata: {name: aw}, spec: {suspend: false, components: [
  {template: {apiVersion: v1, kind: Service}},
  {podSetInfos: [{labels: {l: v}, nodeSelector: {pool: h100}}], template: {apiVersion: v1, kind: Pod, spec: {nodeSelector: {zone: a}}}},
  {podSetInfos: [{nodeSelector: {pool: a100}}], template: {apiVersion: v1, kind: Pod, spec: {}}}]}}`)
	if diff := cmp.Diff(want.Object, o.Object); diff != "" {
		t.Errorf("started -want +got:\n%s", diff)
	}
	d.Suspend(o)
	if !d.Restore(o, nil) || d.Restore(o, nil) {
		t.Error("there is something to restore once")
	}
	if diff := cmp.Diff(parse(t, text).Object, o.Object); diff != "" {
		t.Errorf("restored -want +got:\n%s", diff)
	}
	if err := d.Start(o, infos[:1], setting); !errors.Is(err, podset.ErrPermanent) {
		t.Errorf("too few infos: %v", err)
	}
	infos[0].NodeSelector = map[string]string{"zone": "b"}
	if err := d.Start(o, infos, setting); !errors.Is(err, podset.ErrPermanent) {
		t.Errorf("a contradiction: %v", err)
	}
}

func TestFinished(t *testing.T) {
	tests := map[string]struct {
		status        string
		success, done bool
	}{
		"running":              {"{phase: Running}", false, false},
		"succeeded":            {"{phase: Succeeded}", true, true},
		"failed":               {"{phase: Failed}", false, true},
		"failed and not clean": {`{phase: Failed, conditions: [{type: ResourcesDeployed, status: "True"}]}`, false, false},
	}
	for name, tc := range tests {
		_, success, done := appwrapper.Descriptor().Finished(parse(t, "{kind: X, status: "+tc.status+"}"))
		if success != tc.success || done != tc.done {
			t.Errorf("%s: success %v, done %v", name, success, done)
		}
	}
}
