package all_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/jobtest"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/job/kind/job"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/options"
	trainingplan "github.com/berth-project/berth/internal/training/plan"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// pod is a pod template's spec, for indentation by eight.
const pod = `
        nodeSelector: {zone: a}
        restartPolicy: Never
        tolerations: [{key: own, operator: Exists}]
        containers:
        - name: c
          image: busybox
          ports: [{containerPort: 80}]
          resources: {requests: {cpu: "1"}}
`

// rayCluster is the spec of a cluster.
var rayCluster = `
rayVersion: "2.9"
headGroupSpec:
  rayStartParams: {}
  template:
    spec:` + pod + `
workerGroupSpecs:
- groupName: small
  replicas: 1
  minReplicas: 3
  maxReplicas: 5
  template:
    metadata: {labels: {app: x}}
    spec:` + pod

// plainRuntime is the runtime of the TrainJob.
const plainRuntime = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: plain}
spec:
  mlPolicy: {numNodes: 1}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              spec:
                containers: [{name: node, image: busybox}]
                tolerations: [{key: own, operator: Exists}]`

// kinds is the test data of each kind.
var kinds = map[string]*jobtest.Kind{
	"batch/job": {
		Manifest: `
apiVersion: batch/v1
kind: Job
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {labels: {app: x}}
    spec:` + pod,
		PodSets: []string{"main:2"},
		Status: map[jobtest.State]string{
			jobtest.Active:  "{startTime: '2026-01-02T03:04:05Z', active: 2}",
			jobtest.Stopped: "{active: 0}",
			jobtest.Succeeded: `
active: 0
succeeded: 2
startTime: '2026-01-02T03:04:05Z'
completionTime: '2026-01-02T03:05:05Z'
conditions:
- {type: SuccessCriteriaMet, status: "True", lastTransitionTime: '2026-01-02T03:05:05Z'}
- {type: Complete, status: "True", message: done, lastTransitionTime: '2026-01-02T03:05:05Z'}`,
			jobtest.Failed: `
active: 0
failed: 2
conditions:
- {type: FailureTarget, status: "True", lastTransitionTime: '2026-01-02T03:05:05Z'}
- {type: Failed, status: "True", message: broken, lastTransitionTime: '2026-01-02T03:05:05Z'}`,
		},
	},
	"jobset.x-k8s.io/jobset": {
		Manifest: `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
spec:
  replicatedJobs:
  - name: leader
    replicas: 1
    template:
      spec:
        parallelism: 1
        completions: 1
        template:
          spec:` + indent(pod, 4) + `
  - name: workers
    replicas: 2
    template:
      spec:
        parallelism: 3
        completions: 2
        template:
          metadata: {labels: {app: x}, annotations: {b: c}}
          spec:` + indent(pod, 4),
		PodSets: []string{"leader:1", "workers:4"},
		Status: map[jobtest.State]string{
			jobtest.Active:    "replicatedJobsStatus: [{name: leader, active: 1, failed: 0, ready: 0, succeeded: 0, suspended: 0}]",
			jobtest.Stopped:   "replicatedJobsStatus: [{name: leader, active: 0, failed: 0, ready: 0, succeeded: 0, suspended: 1}]",
			jobtest.Succeeded: conditionText("Completed"),
			jobtest.Failed:    conditionText("Failed"),
		},
	},
	"crew.example.com/crew": {
		Manifest: "apiVersion: crew.example.com/v1\nkind: Crew\nspec:\n  roles:\n    cook:\n      template:\n        spec:" + indent(pod, 2) +
			"\n    sailor:\n      replicas: 3\n      template:\n        metadata: {labels: {app: x}}\n        spec:" + indent(pod, 2),
		PodSets: []string{"cook:1", "sailor:3"},
		Status: map[jobtest.State]string{
			jobtest.Active: "{active: 4}", jobtest.Stopped: "{active: 0}",
			jobtest.Succeeded: "{active: 0, phase: Done}", jobtest.Failed: "{active: 0, phase: Broken}",
		},
	},
	"sparkoperator.k8s.io/sparkapplication": {
		Manifest: `
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
spec:
  type: Scala
  mode: cluster
  image: spark
  driver: {memory: 1g, nodeSelector: {zone: a}, tolerations: [{key: own, operator: Exists}]}
  executor:
    instances: 2
    memory: 1g
    nodeSelector: {zone: a}
    template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, ports: [{containerPort: 80}]}]}}`,
		PodSets: []string{"driver:1", "executor:2"},
		Status: map[jobtest.State]string{
			jobtest.Active:    "applicationState: {state: RUNNING}",
			jobtest.Stopped:   "applicationState: {state: SUSPENDED}",
			jobtest.Succeeded: "applicationState: {state: COMPLETED}",
			jobtest.Failed:    "applicationState: {state: FAILED, errorMessage: broken}",
		},
	},
	"tekton.dev/pipelinerun": {
		Manifest: `
apiVersion: tekton.dev/v1
kind: PipelineRun
spec:
  pipelineRef: {name: build}
  taskRunTemplate: {podTemplate: {nodeSelector: {zone: a}}}`,
		PodSets:   []string{"tasks:1"},
		Ends:      true,
		Templates: pipelineRunTemplates, Ungated: true,
		Status: map[jobtest.State]string{
			jobtest.Active:    "{startTime: '2026-01-02T03:04:05Z', " + tektonCondition("Unknown") + "}",
			jobtest.Stopped:   "{completionTime: '2026-01-02T03:05:05Z', " + tektonCondition("False") + "}",
			jobtest.Succeeded: "{completionTime: '2026-01-02T03:05:05Z', " + tektonCondition("True") + "}",
			jobtest.Failed:    "{completionTime: '2026-01-02T03:05:05Z', " + tektonCondition("False") + "}",
		},
	},
	"kubeflow.org/jaxjob":     kubeflowKind("kubeflow.org/v1", "JAXJob", "jaxReplicaSpecs", "Worker", ""),
	"kubeflow.org/mpijob":     kubeflowKind("kubeflow.org/v2beta1", "MPIJob", "mpiReplicaSpecs", "Launcher", "Worker"),
	"kubeflow.org/paddlejob":  kubeflowKind("kubeflow.org/v1", "PaddleJob", "paddleReplicaSpecs", "Master", "Worker"),
	"kubeflow.org/pytorchjob": kubeflowKind("kubeflow.org/v1", "PyTorchJob", "pytorchReplicaSpecs", "Master", "Worker"),
	"kubeflow.org/tfjob":      kubeflowKind("kubeflow.org/v1", "TFJob", "tfReplicaSpecs", "Chief", "Worker"),
	"kubeflow.org/xgboostjob": kubeflowKind("kubeflow.org/v1", "XGBoostJob", "xgbReplicaSpecs", "Master", "Worker"),
	"pod": {
		Manifest: "apiVersion: v1\nkind: Pod\nspec:\n  automountServiceAccountToken: false" + indent(pod, -6),
		PodSets:  []string{"main:1"},
		Writes:   5, // the pod has a finalizer
		Deleted:  true,
		Status: map[jobtest.State]string{
			jobtest.Active:    "{phase: Running}",
			jobtest.Succeeded: "{phase: Succeeded}",
			jobtest.Failed:    "{phase: Failed}",
		},
	},
	"ray.io/raycluster": {
		Manifest: "apiVersion: ray.io/v1\nkind: RayCluster\nspec:\n" + indent(rayCluster, 2),
		PodSets:  []string{"head:1", "small:3"},
		Endless:  true,
		Status: map[jobtest.State]string{
			jobtest.Active: "{state: ready}", jobtest.Stopped: "{state: suspended}",
		},
	},
	"ray.io/rayjob": {
		Manifest: "apiVersion: ray.io/v1\nkind: RayJob\nspec:\n  entrypoint: x\n  shutdownAfterJobFinishes: true\n" +
			"  submitterPodTemplate:\n    spec:" + indent(pod, -2) + "\n  rayClusterSpec:\n" + indent(rayCluster, 4),
		PodSets: []string{"head:1", "small:3", "submitter:1"},
		Status: map[jobtest.State]string{
			jobtest.Active:    "{jobDeploymentStatus: Running, jobStatus: RUNNING}",
			jobtest.Stopped:   "{jobDeploymentStatus: Suspended, jobStatus: ''}",
			jobtest.Succeeded: "{jobDeploymentStatus: Complete, jobStatus: SUCCEEDED}",
			jobtest.Failed:    "{jobDeploymentStatus: Failed, jobStatus: FAILED}",
		},
	},
	"ray.io/rayservice": {
		Manifest: "apiVersion: ray.io/v1\nkind: RayService\nspec:\n  rayClusterConfig:\n" + indent(rayCluster, 4),
		PodSets:  []string{"head:1", "small:3"},
		Endless:  true,
		Status: map[jobtest.State]string{
			jobtest.Active: conditionText("Ready"), jobtest.Stopped: conditionText("Suspended"),
		},
	},
	"trainer.kubeflow.org/trainjob": {
		Manifest: `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
spec:
  runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: plain}
  trainer: {numNodes: 3}
  runtimePatches:
  - manager: acme.io/tuner
    trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {nodeSelector: {zone: a}}}}}}]}}}
  - manager: kueue.x-k8s.io/manager
    trainingRuntimeSpec: {template: {spec: {}}}`,
		PodSets:   []string{"node:3"},
		Objects:   []string{plainRuntime},
		Templates: trainJobTemplates,
		Status: map[jobtest.State]string{
			jobtest.Active:    "jobsStatus: [{name: node, active: 1, failed: 0, ready: 0, succeeded: 0, suspended: 0}]",
			jobtest.Stopped:   "jobsStatus: [{name: node, active: 0, failed: 0, ready: 0, succeeded: 0, suspended: 1}]",
			jobtest.Succeeded: conditionText("Complete"),
			jobtest.Failed:    conditionText("Failed"),
		},
	},
	"workload.codeflare.dev/appwrapper": {
		Manifest: `
apiVersion: workload.codeflare.dev/v1beta2
kind: AppWrapper
spec:
  components:
  - template:
      apiVersion: v1
      kind: Service
      metadata: {name: s}
  - template:
      apiVersion: kubeflow.org/v1
      kind: PyTorchJob
      metadata: {name: p}
      spec:
        pytorchReplicaSpecs:
          Master:
            template:
              spec:` + indent(pod, 8) + `
          Worker:
            replicas: 3
            template:
              spec:` + indent(pod, 8),
		PodSets:   []string{"train-0:1", "train-1:3"},
		Templates: appWrapperTemplates,
		Status: map[jobtest.State]string{
			jobtest.Active:    conditionText("QuotaReserved"),
			jobtest.Stopped:   "{phase: Suspended, conditions: []}",
			jobtest.Succeeded: "{phase: Succeeded, conditions: []}",
			jobtest.Failed:    "{phase: Failed, conditions: []}",
		},
	},
}

func tektonCondition(status string) string {
	return "conditions: [{type: Succeeded, status: '" + status + "', reason: R, message: m}]"
}

// pipelineRunTemplates has the template of the pods of all its tasks.
func pipelineRunTemplates(_ *testing.T, o plan.Object) []corev1.PodTemplateSpec {
	out := map[string]string{}
	for key, value := range view.Map(view.Of(o).Object, "spec", "taskRunTemplate", "podTemplate", "nodeSelector") {
		out[key], _ = value.(string)
	}
	return []corev1.PodTemplateSpec{{Spec: corev1.PodSpec{NodeSelector: out}}}
}

// appWrapperTemplates are the templates of the PyTorchJob in an AppWrapper with the infos beside them, as its controller merges them.
func appWrapperTemplates(t *testing.T, o plan.Object) []corev1.PodTemplateSpec {
	var out []corev1.PodTemplateSpec
	for _, c := range view.Maps(view.Of(o).Object, "spec", "components") {
		for i, tree := range view.Maps(c, "podSetInfos") {
			var template corev1.PodTemplateSpec
			raw := view.Map(c, "template", "spec", "pytorchReplicaSpecs", []string{"Master", "Worker"}[i], "template")
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &template); err != nil {
				t.Fatal(err)
			}
			var info plan.PodSetInfo
			if text, err := yaml.Marshal(tree); err != nil || yaml.Unmarshal(text, &info) != nil {
				t.Fatalf("%v: %v", tree, err)
			}
			if err := info.MergeInto(&template); err != nil {
				t.Fatal(err)
			}
			out = append(out, template)
		}
	}
	return out
}

// trainJobTemplates are the pod templates of the JobSet of a TrainJob, with its patches.
func trainJobTemplates(t *testing.T, o plan.Object) []corev1.PodTemplateSpec {
	var job trainerv1alpha1.TrainJob
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(view.Of(o).Object, &job); err != nil {
		t.Fatal(err)
	}
	var r trainerv1alpha1.ClusterTrainingRuntime
	if err := yaml.Unmarshal([]byte(plainRuntime), &r); err != nil {
		t.Fatal(err)
	}
	built, err := trainingplan.Build(&trainingplan.Input{TrainJob: &job, Runtime: trainingplan.ClusterRuntime(&r), Config: trainingplan.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	var out []corev1.PodTemplateSpec
	for _, s := range built.PodSets {
		out = append(out, *s.Template)
		if n := len(s.Template.Spec.Tolerations); n != 2 {
			t.Errorf("%d tolerations, want that of the runtime and that of the flavor", n)
		}
	}
	return out
}

// kubeflowKind is a job of the training operator, or like it, with two roles.
func kubeflowKind(apiVersion, kind, replicas, first, second string) *jobtest.Kind {
	role := func(name string) string {
		return "\n    " + name + ":\n      replicas: 1\n      template:\n        metadata: {labels: {app: x}}\n        spec:" + indent(pod, 2)
	}
	text := "apiVersion: " + apiVersion + "\nkind: " + kind + "\nspec:\n  runPolicy: {cleanPodPolicy: None}\n  " + replicas + ":" + role(first)
	k := &jobtest.Kind{
		PodSets: []string{strings.ToLower(first) + ":1"},
		Status: map[jobtest.State]string{
			jobtest.Active:    "replicaStatuses: {" + first + ": {active: 1}}",
			jobtest.Stopped:   "replicaStatuses: {" + first + ": {active: 0}}",
			jobtest.Succeeded: conditionText("Succeeded"),
			jobtest.Failed:    conditionText("Failed"),
		},
	}
	if second != "" {
		text += role(second)
		k.PodSets = append(k.PodSets, strings.ToLower(second)+":1")
	}
	k.Manifest = text
	return k
}

// conditionText is a status with a true condition.
func conditionText(kind string) string {
	return "conditions: [{type: " + kind + `, status: "True", reason: R, message: m, lastTransitionTime: '2026-01-02T03:05:05Z'}]`
}

// descriptors are all kinds, and the declared kind of the example.
func descriptors(t *testing.T) []*plan.Descriptor {
	t.Helper()
	o, err := options.Load("../../../../docs/examples/declared-kinds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return all.DescriptorsWith(&o)
}

// with is the test data of a kind, or nil: from the list here, or from testdata/KIND.yaml in the folder of the kind.
func with(t *testing.T, d *plan.Descriptor) *jobtest.Kind {
	t.Helper()
	var kind jobtest.Kind
	if known := kinds[d.Framework]; known != nil {
		kind = *known
	} else {
		files, err := filepath.Glob("../*/testdata/" + strings.ToLower(d.GVK.Kind) + ".yaml")
		if err != nil || len(files) != 1 {
			return nil
		}
		text, err := os.ReadFile(files[0])
		if err == nil {
			err = yaml.UnmarshalStrict(text, &kind)
		}
		if err != nil {
			t.Fatalf("%s: %v", files[0], err)
		}
	}
	kind.Descriptor = d
	return &kind
}

func TestConformance(t *testing.T) {
	for _, d := range descriptors(t) {
		t.Run(d.Framework, func(t *testing.T) {
			if d.Serving {
				t.Skip("it has no Workload: its pods are queued")
			}
			kind := with(t, d)
			if kind == nil {
				t.Fatal("the suite knows no job of this kind: describe one in testdata/KIND.yaml of its folder")
			}
			jobtest.Run(t, kind, job.Descriptor())
		})
	}
}

func TestUnmanagedNamespace(t *testing.T) {
	var kinds []*plan.Descriptor
	for _, d := range descriptors(t) {
		if !d.Serving || d.Sets != nil {
			kinds = append(kinds, d)
		}
	}
	jobtest.RunUnmanaged(t, kinds)
}

func TestWebhooks(t *testing.T) {
	var list []*jobtest.Kind
	for _, d := range descriptors(t) {
		kind := with(t, d)
		switch {
		case d.Serving && d.Sets == nil:
			kind = &jobtest.Kind{Descriptor: d}
		case kind == nil || d.Serving:
			continue
		}
		list = append(list, kind)
	}
	jobtest.RunWebhooks(t, list)
}

// indent moves lines to the right, or to the left.
func indent(text string, by int) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		switch {
		case strings.TrimSpace(line) == "":
		case by < 0:
			lines[i] = line[-by:]
		default:
			lines[i] = strings.Repeat(" ", by) + line
		}
	}
	return strings.Join(lines, "\n")
}
