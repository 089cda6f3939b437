package kubeflow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/kubeflow"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/job/plan/view/viewtest"
)

var parse = viewtest.Parse

func find(t *testing.T, framework string) *plan.Descriptor {
	t.Helper()
	for _, d := range kubeflow.Descriptors() {
		if d.Framework == framework {
			return d
		}
	}
	t.Fatalf("no framework %s", framework)
	return nil
}

var setting = &plan.Setting{Config: &plan.Config{Topology: true}}

func TestPodSets(t *testing.T) {
	const template = `{template: {spec: {containers: [{name: c, image: x}]}}}`
	tests := map[string]struct {
		framework, spec string
		want            []string
	}{
		"pytorch": {"kubeflow.org/pytorchjob", "{pytorchReplicaSpecs: {Worker: {replicas: 3, template: {spec: {}}}, Master: " + template + "}}", []string{"master:1", "worker:3"}},
		"tensorflow": {
			"kubeflow.org/tfjob",
			strings.ReplaceAll("{tfReplicaSpecs: {Evaluator: T, Worker: T, PS: T, Chief: T, Master: T}}", "T", template),
			[]string{"chief:1", "master:1", "ps:1", "worker:1", "evaluator:1"},
		},
		"xgboost":               {"kubeflow.org/xgboostjob", "{xgbReplicaSpecs: {Worker: " + template + "}}", []string{"worker:1"}},
		"paddle":                {"kubeflow.org/paddlejob", "{paddleReplicaSpecs: {Master: " + template + "}}", []string{"master:1"}},
		"jax":                   {"kubeflow.org/jaxjob", "{jaxReplicaSpecs: {Worker: {replicas: 0, template: {spec: {}}}}}", []string{"worker:0"}},
		"mpi":                   {"kubeflow.org/mpijob", "{mpiReplicaSpecs: {Worker: " + template + ", Launcher: " + template + "}}", []string{"launcher:1", "worker:1"}},
		"roles of another kind": {"kubeflow.org/jaxjob", "{jaxReplicaSpecs: {Master: " + template + "}}", nil},
		"no template":           {"kubeflow.org/jaxjob", "{jaxReplicaSpecs: {Worker: {}}}", []string{"spec.jaxReplicaSpecs[Worker].template: Required value: a role needs a pod template"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := find(t, tc.framework)
			o := parse(t, "kind: X\nspec: "+tc.spec)
			sets, err := d.PodSets(o, setting)
			var got []string
			for _, s := range sets {
				got = append(got, fmt.Sprintf("%s:%d", s.Name, s.Count))
				if *s.TopologyRequest.PodIndexLabel != "training.kubeflow.org/replica-index" {
					t.Errorf("topology request %+v", s.TopologyRequest)
				}
			}
			if err != nil {
				got = append(got, err.Error())
				if errs := d.Validate(o, nil, setting); len(errs) != 1 {
					t.Errorf("refused with %v", errs)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPriorityClass(t *testing.T) {
	d := find(t, "kubeflow.org/pytorchjob")
	const roles = "pytorchReplicaSpecs: {Master: {template: {spec: {priorityClassName: M}}}, Worker: {template: {spec: {priorityClassName: W}}}}"
	for spec, want := range map[string]string{
		"{" + roles + "}": "M",
		"{runPolicy: {schedulingPolicy: {priorityClass: J}}, " + roles + "}": "J",
	} {
		o := parse(t, "kind: X\nspec: "+spec)
		sets, err := d.PodSets(o, setting)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := plan.ClassNames(d, o, sets); got != want {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
	}
}

func TestStatus(t *testing.T) {
	d := find(t, "kubeflow.org/tfjob")
	tests := map[string]struct {
		status string
		want   string
	}{
		"nothing":       {"{}", "false false false"},
		"active worker": {"{replicaStatuses: {Chief: {succeeded: 1}, Worker: {active: 2}}}", "true false false"},
		"running":       {`{conditions: [{type: Running, status: "True"}]}`, "false true false"},
		"ran":           {`{conditions: [{type: Running, status: "False"}, {type: Succeeded, status: "True"}]}`, "false false true"},
		"only counts":   {"{replicaStatuses: {Worker: {succeeded: 2}}}", "false false false"},
	}
	for name, tc := range tests {
		o := parse(t, "kind: X\nstatus: "+tc.status)
		_, _, finished := d.Finished(o)
		if got := fmt.Sprint(d.IsActive(o), d.PodsReady(o, setting), finished); got != tc.want {
			t.Errorf("%s: active, ready, finished: %s, want %s", name, got, tc.want)
		}
	}
}

func TestOffsetOfWorkers(t *testing.T) {
	d := find(t, "kubeflow.org/mpijob")
	const both = "mpiReplicaSpecs: {Launcher: {template: {metadata: {annotations: {A: b}}, spec: {}}}, Worker: {template: {spec: {}}}}"
	tests := map[string]struct {
		spec     string
		topology bool
		want     string
	}{
		"the launcher works":  {"{runLauncherAsWorker: true, " + both + "}", true, "1"},
		"it does not":         {"{" + both + "}", true, ""},
		"no topologies":       {"{runLauncherAsWorker: true, " + both + "}", false, ""},
		"no workers":          {"{runLauncherAsWorker: true, mpiReplicaSpecs: {Launcher: {template: {}}}}", true, ""},
		"placed with workers": {"{runLauncherAsWorker: true, " + strings.Replace(both, "A: b", kueue.PodSetGroupNameAnnotation+": g", 1) + "}", true, ""},
	}
	for name, tc := range tests {
		o := parse(t, "kind: X\nspec: "+tc.spec)
		for range 2 {
			d.Default(o, false, &plan.Setting{Config: &plan.Config{Topology: tc.topology}})
		}
		got := view.String(o.Object, "spec", "mpiReplicaSpecs", "Worker", "template", "metadata", "annotations", "kueue.x-k8s.io/pod-index-offset")
		if got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestGroups(t *testing.T) {
	mpi, torch := find(t, "kubeflow.org/mpijob"), find(t, "kubeflow.org/pytorchjob")
	role := func(replicas int, topology string) string {
		return fmt.Sprintf("{replicas: %d, template: {metadata: {annotations: {kueue.x-k8s.io/podset-group-name: g, kueue.x-k8s.io/podset-required-topology: %s}}, spec: {}}}", replicas, topology)
	}
	tests := map[string]struct {
		roles string
		want  int
	}{
		"good":                  {"Launcher: " + role(1, "rack") + ", Worker: " + role(3, "rack"), 0},
		"alone":                 {"Worker: " + role(3, "rack"), 1},
		"none is single":        {"Launcher: " + role(2, "rack") + ", Worker: " + role(3, "rack"), 1},
		"they want to be apart": {"Launcher: " + role(1, "rack") + ", Worker: " + role(3, "block"), 1},
		"nothing good about it": {"Launcher: " + role(2, "rack") + ", Worker: " + role(3, "block"), 2},
	}
	for name, tc := range tests {
		o := parse(t, "kind: X\nspec: {mpiReplicaSpecs: {"+tc.roles+"}}")
		if got := mpi.Validate(o, nil, setting); len(got) != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := torch.Validate(parse(t, "kind: X\nspec: {pytorchReplicaSpecs: {Worker: "+role(3, "rack")+"}}"), nil, setting); len(got) != 0 {
		t.Errorf("not checked for this kind, but %v", got)
	}
}

// TestCopiesHaveNoTTL: a worker must not delete a copy before its manager has observed the end (spec: 40 §6).
func TestCopiesHaveNoTTL(t *testing.T) {
	for _, d := range kubeflow.Descriptors() {
		o := parse(t, "{apiVersion: kubeflow.org/v1, kind: "+d.GVK.Kind+", spec: {runPolicy: {ttlSecondsAfterFinished: 5, backoffLimit: 1}}}")
		if d.Remote.Prepare != nil {
			d.Remote.Prepare(o.Object)
		}
		if diff := cmp.Diff(map[string]any{"backoffLimit": int64(1)}, view.Map(o.Object, "spec", "runPolicy")); diff != "" {
			t.Errorf("%s -want +got:\n%s", d.GVK.Kind, diff)
		}
	}
}
