package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

var epoch = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// fromYAML parses a value; unknown fields are errors of the test.
func fromYAML[T any](t testing.TB, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// trainJob returns a TrainJob with this spec; a runtimeRef is added unless there is one.
func trainJob(t testing.TB, spec string) *trainerv1alpha1.TrainJob {
	t.Helper()
	job := &trainerv1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "lark", Namespace: "lab", UID: "u1"}}
	job.Spec = *fromYAML[trainerv1alpha1.TrainJobSpec](t, spec)
	if job.Spec.RuntimeRef.Name == "" {
		job.Spec.RuntimeRef.Name = "custom"
	}
	return job
}

// runtimeOf returns a ClusterTrainingRuntime with this spec.
func runtimeOf(t testing.TB, spec string) *plan.Runtime {
	t.Helper()
	return plan.ClusterRuntime(&trainerv1alpha1.ClusterTrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{Name: "custom"}, Spec: *fromYAML[trainerv1alpha1.TrainingRuntimeSpec](t, spec),
	})
}

func request(job, old *trainerv1alpha1.TrainJob, r *plan.Runtime) *plan.Request {
	cfg := plan.DefaultConfig()
	return &plan.Request{Request: patch.Request{New: job, Old: old, Config: &cfg.Patches}, Config: cfg, Runtime: r}
}

func expect(t *testing.T, f plan.Findings, want ...string) {
	t.Helper()
	got := []string{}
	if f.Unsupported != nil {
		got = append(got, f.Unsupported.Error())
	}
	for _, e := range f.Errors {
		got = append(got, e.Error())
	}
	if len(got) != len(want) {
		t.Fatalf("want %d errors, got %d:\n%s", len(want), len(got), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("want an error with %q, got %q", want[i], got[i])
		}
	}
}

const anc = "trainer.kubeflow.org/trainjob-ancestor-step"

func simpleRuntime(policy string) string {
	return `
mlPolicy: {` + policy + `}
template:
  spec:
    replicatedJobs:
      - name: node
        template:
          metadata: {labels: {` + anc + `: trainer}}
          spec: {template: {spec: {containers: [{name: node}]}}}
      - name: dataset-initializer
        template: {spec: {template: {spec: {containers: [{name: dataset-initializer}]}}}}
      - name: fetch
        template:
          metadata: {labels: {` + anc + `: model-initializer}}
          spec: {template: {spec: {containers: [{name: model-initializer, volumeMounts: [{name: initializer, mountPath: /w}]}]}}}
`
}

// TestValidate is 50 §3.2 on creation, rule by rule.
func TestValidate(t *testing.T) {
	tests := map[string]struct {
		spec, runtime string
		builtin       string
		want          []string
		warning       string
	}{
		"V1 unknown kind":                      {spec: `{runtimeRef: {name: a, kind: Other, apiGroup: b.io}}`, want: []string{"unsupported runtime: Other.b.io"}},
		"V2 no runtime":                        {spec: `{runtimeRef: {name: gone}}`, want: []string{`spec.runtimeRef: Invalid value: "gone": ClusterTrainingRuntime gone does not exist; it must be created before the TrainJob`}},
		"V4 no job":                            {spec: `{initializer: {dataset: {}}}`, builtin: "torch-distributed", want: []string{"spec.runtimeRef: Invalid value: \"torch-distributed\": the runtime has no replicated job dataset-initializer"}},
		"V4 no mount":                          {spec: `{initializer: {dataset: {}}}`, runtime: simpleRuntime(""), want: []string{"does not mount a volume initializer"}},
		"V4 no mount, but a cache":             {spec: `{initializer: {dataset: {storageUri: "cache://a/b"}}}`, runtime: simpleRuntime("")},
		"V4 by label":                          {spec: `{initializer: {model: {}}}`, runtime: simpleRuntime("")},
		"V4 both":                              {spec: `{initializer: {model: {}, dataset: {}}}`, builtin: "torch-distributed", want: []string{"dataset-initializer", "model-initializer"}},
		"V4 built-in with cache":               {spec: `{initializer: {dataset: {storageUri: "cache://a/b"}}}`, builtin: "torch-distributed-with-cache"},
		"V6 reserved":                          {spec: `{trainer: {env: [{name: PET_NNODES}, {name: A}, {name: PET_MASTER_ADDR}]}}`, builtin: "torch-distributed", want: []string{`spec.trainer.env: Invalid value: "PET_MASTER_ADDR, PET_NNODES"`}},
		"V6 targets":                           {spec: `{}`, runtime: simpleRuntime("torch: {envInjection: {targets: [{jobName: node, containerNames: [x]}, {jobName: gone, containerNames: ['y']}]}}"), want: []string{"container x of replicated job node", "container y of replicated job gone"}},
		"V7 reserved":                          {spec: `{trainer: {env: [{name: OMPI_MCA_plm_rsh_args}]}}`, builtin: "deepspeed-distributed", want: []string{"spec.trainer.env"}},
		"V7 jobs":                              {spec: `{trainer: {numNodes: 2}}`, runtime: simpleRuntime("mpi: {runLauncherAsNode: true}"), want: []string{"spec.trainer.numNodes: Invalid value: 2: must be 1: the runtime has no replicated job launcher"}},
		"V7 one node":                          {spec: `{trainer: {}}`, runtime: simpleRuntime("mpi: {runLauncherAsNode: true}")},
		"V8":                                   {spec: `{trainer: {env: [{name: A}, {name: DMLC_TASK_ID}, {name: DMLC_TRACKER_URI}]}}`, builtin: "xgboost-distributed", want: []string{"spec.trainer.env[1]: Forbidden", "spec.trainer.env[2]: Forbidden"}},
		"V9":                                   {spec: `{trainer: {env: [{name: JAX_PROCESS_ID}]}}`, builtin: "jax-distributed", warning: "JAX_PROCESS_ID"},
		"V10":                                  {spec: `{}`, runtime: `{mlPolicy: {flux: {}}, template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {initContainers: [{name: flux-installer}], containers: [{name: node}]}}}}}]}}}`, want: []string{"spec.trainer.initContainers"}},
		"V11 queue":                            {spec: `{}`, runtime: `{podGroupPolicy: {volcano: {}}, template: {metadata: {annotations: {scheduling.volcano.sh/queue-name: ""}}}}`, want: []string{"spec.annotations[scheduling.volcano.sh/queue-name]"}},
		"V11 queue of a patch":                 {spec: `{runtimePatches: [{manager: a.io/x, trainingRuntimeSpec: {template: {metadata: {annotations: {scheduling.volcano.sh/queue-name: ""}}}}}]}`, runtime: `{podGroupPolicy: {volcano: {}}, template: {metadata: {annotations: {scheduling.volcano.sh/queue-name: q}}}}`, want: []string{"spec.annotations[scheduling.volcano.sh/queue-name]"}},
		"V11 class":                            {spec: `{}`, runtime: `{podGroupPolicy: {volcano: {}}, template: {spec: {replicatedJobs: [{name: a, template: {spec: {template: {spec: {priorityClassName: known}}}}}, {name: b, template: {spec: {template: {spec: {priorityClassName: gone}}}}}]}}}`, want: []string{`spec.templateSpec.priorityClassName: Invalid value: "gone"`}},
		"V11 critical ends it":                 {spec: `{}`, runtime: `{podGroupPolicy: {volcano: {}}, template: {spec: {replicatedJobs: [{name: a, template: {spec: {template: {spec: {priorityClassName: system-node-critical}}}}}, {name: b, template: {spec: {template: {spec: {priorityClassName: gone}}}}}]}}}`},
		"V12 model":                            {spec: `{trainer: {command: [tune, run]}}`, builtin: "torch-distributed", want: []string{"spec.runtimeRef.name"}},
		"V12 nodes":                            {spec: `{trainer: {command: [tune, run], numNodes: 2}}`, builtin: "torchtune-llama3.2-1b", want: []string{"spec.trainer.numNodes"}},
		"V12 QLoRA of Qwen, single":            {spec: `{trainer: {command: [tune, run], numProcPerNode: 1, args: ["model.quantize_base= True"]}}`, builtin: "torchtune-qwen2.5-1.5b", want: []string{"spec.runtimeRef.name"}},
		"V12 distributed QLoRA":                {spec: `{trainer: {command: [tune, run], args: [model.quantize_base=true]}}`, builtin: "torchtune-llama3.2-3b", want: []string{"spec.trainer.numProcPerNode", "spec.trainer.resourcesPerNode"}},
		"V12 QLoRA on one GPU":                 {spec: `{trainer: {command: [tune, run], args: [model.quantize_base=true], resourcesPerNode: {limits: {nvidia.com/gpu: 1}}}}`, builtin: "torchtune-llama3.2-3b"},
		"V12 DoRA is not QLoRA":                {spec: `{trainer: {command: [tune, run], args: [model.quantize_base=true, model.use_dora=TRUE]}}`, builtin: "torchtune-llama3.2-3b"},
		"V12 LoRA on several nodes":            {spec: `{trainer: {command: [tune, run], numNodes: 2, args: ["model.lora_attn_modules=[a]"]}}`, builtin: "torchtune-llama3.2-3b", want: []string{"spec.trainer.numNodes", "spec.trainer.numNodes"}},
		"V12 settings of the runtime":          {spec: `{trainer: {command: [tune, run], args: [a=b, output_dir=/x]}}`, builtin: "torchtune-llama3.2-3b", want: []string{"spec.trainer.args[1]"}},
		"V12 another command is not torchtune": {spec: `{trainer: {command: [tune, run, x], args: [output_dir=/x], numNodes: 7}}`, builtin: "torchtune-llama3.2-3b"},
		"a queue of the JobSet":                {spec: `{}`, runtime: `{template: {metadata: {labels: {kueue.x-k8s.io/queue-name: lq}}}}`, warning: "metadata.labels[kueue.x-k8s.io/queue-name]"},
		"a queue of the JobSet, by a patch":    {spec: `{runtimePatches: [{manager: a.io/x, trainingRuntimeSpec: {template: {metadata: {labels: {kueue.x-k8s.io/queue-name: lq}}}}}]}`, builtin: "torch-distributed", warning: "metadata.labels[kueue.x-k8s.io/queue-name]"},
		"patches":                              {spec: `{runtimePatches: [{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: nope}]}}}}]}`, builtin: "torch-distributed", want: []string{"spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[nope]"}},
		"patches of what MPI mounts": {
			spec:    `{runtimePatches: [{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: launcher, template: {spec: {template: {spec: {volumes: [{name: mpi-hostfile, emptyDir: {}}], containers: [{name: node, volumeMounts: [{name: mpi-hostfile, mountPath: /home/mpiuser/.ssh/}]}]}}}}}]}}}}]}`,
			builtin: "deepspeed-distributed", want: []string{"volumes[0].name: Forbidden", "volumeMounts[0].mountPath: Forbidden"},
		},
		"patches of what Flux mounts": {
			spec:    `{runtimePatches: [{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {volumes: [{name: lark-flux-entrypoint, emptyDir: {}}, {name: mine, emptyDir: {}}], containers: [{name: node, volumeMounts: [{name: mine, mountPath: /curve}]}]}}}}}]}}}}, {manager: b.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {volumes: [{name: shm, emptyDir: {medium: Memory}}], containers: [{name: node, volumeMounts: [{name: shm, mountPath: /dev/shm}]}]}}}}}]}}}}]}`,
			builtin: "flux-distributed", want: []string{"volumes[0].name: Forbidden", "volumeMounts[0].mountPath: Forbidden"},
		},
		"patches of the launcher's host file": {
			spec:    `{runtimePatches: [{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: launcher, template: {spec: {template: {spec: {volumes: [{name: mine, emptyDir: {}}], containers: [{name: node, volumeMounts: [{name: mine, mountPath: /etc/mpi}]}]}}}}}, {name: node, template: {spec: {template: {spec: {volumes: [{name: mine, emptyDir: {}}], containers: [{name: node, volumeMounts: [{name: mine, mountPath: /etc/mpi}]}]}}}}}]}}}}]}`,
			builtin: "deepspeed-distributed", want: []string{"replicatedJobs[launcher].template.spec.template.spec.containers[node].volumeMounts[0].mountPath: Forbidden"},
		},
		"patches of a pod group's mark": {
			spec:    `{runtimePatches: [{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {metadata: {labels: {scheduling.x-k8s.io/pod-group: x}}}}}}]}}}}]}`,
			runtime: `{podGroupPolicy: {coscheduling: {}}, template: {spec: {replicatedJobs: [{name: node}]}}}`, want: []string{"labels[scheduling.x-k8s.io/pod-group]: Forbidden"},
		},
		"patches of variables that torch injects": {
			spec:    `{runtimePatches: [{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{name: side, env: [{name: PET_NNODES}]}]}}}}}]}}}}]}`,
			runtime: `{mlPolicy: {torch: {envInjection: {targets: [{jobName: node, containerNames: [side]}]}}}, template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{name: side}]}}}}}]}}}`, want: []string{"env[0]: Forbidden"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := trainJob(t, tt.spec)
			var r *plan.Runtime
			switch {
			case tt.builtin != "":
				r = builtin(t, tt.builtin)
				job.Spec.RuntimeRef.Name = tt.builtin
			case tt.runtime != "":
				r = runtimeOf(t, tt.runtime)
			}
			req := request(job, nil, r)
			req.PriorityClasses = map[string]bool{"known": true}
			f := plan.Validate(req)
			expect(t, f, tt.want...)
			if tt.warning != "" && !strings.Contains(strings.Join(f.Warnings, "\n"), tt.warning) {
				t.Errorf("want a warning with %q, got %v", tt.warning, f.Warnings)
			}
			if tt.warning == "" && len(f.Warnings) > 0 {
				t.Errorf("warnings %v", f.Warnings)
			}
			if (f.Err() == nil) != (len(tt.want) == 0) {
				t.Errorf("the error is %v", f.Err())
			}
		})
	}
	t.Run("patches of what the progress server needs", func(t *testing.T) {
		job := trainJob(t, `{runtimePatches: [{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {volumes: [{name: kubeflow-trainer-token, emptyDir: {}}], containers: [{name: node, volumeMounts: [{name: kubeflow-trainer-token, mountPath: /var/run/secrets/kubeflow/trainer}]}]}}}}}]}}}}]}`)
		req := request(job, nil, builtin(t, "torch-distributed"))
		expect(t, plan.Validate(req))
		req.Config.Progress = &plan.Progress{}
		expect(t, plan.Validate(req), "volumes[0].name: Forbidden", "volumeMounts[0].mountPath: Forbidden")
	})
	t.Run("V13", func(t *testing.T) {
		job := trainJob(t, `{trainer: {numNodes: 11}}`)
		job.Name = strings.Repeat("l", 53) // -node-0-10 makes 63
		if f := plan.Validate(request(job, nil, builtin(t, "torch-distributed"))); len(f.Warnings)+len(f.Errors) > 0 {
			t.Errorf("%+v", f)
		}
		job.Name += "l"
		if f := plan.Validate(request(job, nil, builtin(t, "torch-distributed"))); len(f.Warnings) != 1 || len(f.Errors) > 0 {
			t.Errorf("%+v", f)
		}
	})
}

// TestValidateUpdate is what 50 §3.2 says about updates.
func TestValidateUpdate(t *testing.T) {
	bad := `{trainer: {env: [{name: PET_NNODES}]}}`
	gone := (*plan.Runtime)(nil)
	torch := builtin(t, "torch-distributed")
	check := func(spec, oldSpec string, r *plan.Runtime, change func(job, old *trainerv1alpha1.TrainJob), want ...string) {
		t.Helper()
		job, old := trainJob(t, spec), trainJob(t, oldSpec)
		if change != nil {
			change(job, old)
		}
		expect(t, plan.Validate(request(job, old, r)), want...)
	}
	check(bad, bad, torch, nil)
	check(bad, bad, torch, func(job, _ *trainerv1alpha1.TrainJob) { job.Spec.Suspend = new(true) })
	check(bad, bad, torch, func(_, old *trainerv1alpha1.TrainJob) { old.Spec.Suspend = new(true) }, "spec.trainer.env")
	const queued = `{suspend: true, trainer: {env: [{name: PET_NNODES}]}, runtimePatches: [{manager: kueue.x-k8s.io/manager, trainingRuntimeSpec: {template: {spec: {%s}}}}]}`
	placed := `replicatedJobs: [{name: node, template: {spec: {template: {spec: {nodeSelector: {zone: a}}}}}}]`
	check(fmt.Sprintf(queued, placed), fmt.Sprintf(queued, placed), torch, func(_, old *trainerv1alpha1.TrainJob) { old.Spec.Suspend = nil })
	byQueue := func(spec, oldSpec string, want ...string) {
		t.Helper()
		req := request(trainJob(t, spec), trainJob(t, oldSpec), torch)
		req.Config.Patches.Ownership.Self, req.User.Name = "queue", "queue"
		expect(t, plan.Validate(req), want...)
	}
	byQueue(fmt.Sprintf(queued, ""), fmt.Sprintf(queued, placed))
	byQueue(fmt.Sprintf(queued, placed), fmt.Sprintf(queued, ""), "spec.trainer.env")
	check(fmt.Sprintf(queued, ""), fmt.Sprintf(queued, placed), torch, nil, "is owned by another actor")
	check(`{suspend: true, trainer: {env: [{name: PET_NNODES}]}, runtimePatches: [{manager: a.io/x}]}`, bad, torch, nil, "spec.trainer.env")
	check(bad, bad, torch, func(job, _ *trainerv1alpha1.TrainJob) {
		job.Spec.Suspend = new(true)
		job.DeletionTimestamp = &metav1.Time{Time: epoch}
	})
	timed := `{trainer: {env: [{name: PET_NNODES}]}, runtimePatches: [{manager: a.io/x, time: "%d-01-02T03:04:05Z"}]}`
	check(fmt.Sprintf(timed, 2026), fmt.Sprintf(timed, 2025), torch, nil) // only a time changed
	check(`{suspend: true}`, `{}`, gone, nil)
	check(`{trainer: {}, initializer: {}, activeDeadlineSeconds: 5}`, `{}`, torch, nil,
		"spec.initializer: Forbidden: field is immutable", "spec.trainer: Forbidden: field is immutable", "spec.activeDeadlineSeconds: Forbidden: field is immutable")
	check(`{}`, `{trainer: {}}`, torch, nil, "spec.trainer: Forbidden: field is immutable")
	patched := `{runtimePatches: [{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: nope}]}}}}]}`
	check(patched, patched, torch, func(job, _ *trainerv1alpha1.TrainJob) { job.Spec.Suspend = new(true) })
	check(patched, `{}`, torch, nil, patch.TransitionMessage, "replicatedJobs[nope]")

	old := builtin(t, "torch-distributed")
	old.Labels["trainer.kubeflow.org/support"] = "deprecated"
	for _, before := range []*trainerv1alpha1.TrainJob{nil, trainJob(t, `{}`)} {
		f := plan.Validate(request(trainJob(t, `{}`), before, old))
		if len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], "torch-distributed is deprecated and will be removed: see https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy") {
			t.Errorf("warnings %v", f.Warnings)
		}
	}
}

// A TrainJob is checked again when it starts, except for the owners of patches.
func TestFits(t *testing.T) {
	cfg := plan.DefaultConfig()
	cfg.Patches.ConflictPolicy = patch.ConflictReject
	job := trainJob(t, `{runtimePatches: [{manager: kueue.x-k8s.io/manager, trainingRuntimeSpec: {template: {metadata: {labels: {a: b}}}}}, {manager: a.io/x, trainingRuntimeSpec: {template: {metadata: {labels: {a: c}}}}}]}`)
	fits := func() error {
		d, err := plan.NewDraft(&plan.Input{TrainJob: job, Runtime: builtin(t, "torch-distributed"), Config: cfg})
		if err != nil {
			t.Fatal(err)
		}
		return d.Fits(nil)
	}
	if err := fits(); err != nil {
		t.Error(err)
	}
	job.Spec.RuntimePatches[1] = *fromYAML[trainerv1alpha1.RuntimePatch](t, `{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: nope}]}}}}`)
	if err := fits(); err == nil {
		t.Error("a patch of a job that does not exist fits")
	}
	if cfg.Patches.Ownership.Mode != patch.OwnershipReserved || cfg.Patches.ConflictPolicy != patch.ConflictReject {
		t.Error("the configuration was changed")
	}
}

// TestValidateRuntime is 50 §3.3.
func TestValidateRuntime(t *testing.T) {
	job := func(name, ancestor, container string, replicas int) string {
		return fmt.Sprintf(`{name: %s, replicas: %d, template: {metadata: {labels: {%s: %s}}, spec: {template: {spec: {containers: [{name: %s}]}}}}}`, name, replicas, anc, ancestor, container)
	}
	runtimeWith := func(jobs ...string) *plan.Runtime {
		return runtimeOf(t, `{mlPolicy: {torch: {}}, template: {spec: {replicatedJobs: [`+strings.Join(jobs, ",")+`]}}}`)
	}
	bad := runtimeWith(job("node", "trainer", "node", 2), job("init", "dataset-initializer", "other", 1), job("free", "mine", "x", 2))
	if _, errs := plan.ValidateRuntime(bad, nil); len(errs) != 2 || errs[0].Field != "spec.template.spec.replicatedJobs[0].replicas" ||
		errs[1].Field != "spec.template.spec.replicatedJobs[1].template.spec.template.spec.containers" {
		t.Errorf("%v", errs)
	}
	namespaced := *bad
	namespaced.Kind = trainerv1alpha1.KindTrainingRuntime
	if _, errs := plan.ValidateRuntime(&namespaced, nil); len(errs) != 2 {
		t.Errorf("a new TrainingRuntime: %v", errs)
	}
	if warnings, errs := plan.ValidateRuntime(&namespaced, &namespaced); len(errs) > 0 || len(warnings) != 2 {
		t.Errorf("an update of a TrainingRuntime: warnings %v, errors %v", warnings, errs)
	}
	if _, errs := plan.ValidateRuntime(bad, bad); len(errs) != 2 {
		t.Errorf("an update of a ClusterTrainingRuntime: %v", errs)
	}
	warned := runtimeWith(job("node", "trainer", "node", 1), job("more", "trainer", "node", 1))
	warned.Spec.MLPolicy = &trainerv1alpha1.MLPolicy{MLPolicySource: trainerv1alpha1.MLPolicySource{MPI: &trainerv1alpha1.MPIPolicy{MPIImplementation: new(trainerv1alpha1.MPIImplementation(""))}}}
	warned.Spec.PodGroupPolicy = &trainerv1alpha1.PodGroupPolicy{PodGroupPolicySource: trainerv1alpha1.PodGroupPolicySource{Coscheduling: &trainerv1alpha1.CoschedulingPolicy{}, Volcano: &trainerv1alpha1.VolcanoPolicy{}}}
	warned.Labels = map[string]string{"trainer.kubeflow.org/support": "deprecated"}
	warnings, errs := plan.ValidateRuntime(warned, nil)
	if len(warnings) != 4 || len(errs) != 1 || errs[0].Field != "spec.mlPolicy.mpi.mpiImplementation" {
		t.Errorf("warnings %v, errors %v", warnings, errs)
	}
	for _, name := range []string{"torch-distributed", "deepspeed-distributed", "mlx-distributed", "jax-distributed", "xgboost-distributed", "torchtune-llama3.2-1b", "torchtune-llama3.2-3b", "torchtune-qwen2.5-1.5b", "flux-distributed", "torch-distributed-with-cache"} {
		if warnings, errs := plan.ValidateRuntime(builtin(t, name), nil); len(warnings)+len(errs) > 0 {
			t.Errorf("%s: %v %v", name, warnings, errs)
		}
	}
}

// A snapshot returns the stored runtime, and only for its TrainJob.
func TestSnapshot(t *testing.T) {
	job := trainJob(t, `{runtimeRef: {name: deepspeed-distributed}}`)
	r := builtin(t, "deepspeed-distributed")
	r.ResourceVersion, r.UID, r.ManagedFields = "7", "runtime", []metav1.ManagedFieldsEntry{{}}
	snapshot, err := plan.Snapshot(job, r, map[string]string{"b.io/y": "2", "a.io/x": "1"})
	if err != nil {
		t.Fatal(err)
	}
	if snapshot.Name != "lark-runtime-snapshot" || len(snapshot.Labels) > 0 || !*snapshot.Immutable || snapshot.Annotations[patch.Annotation] != `{"a.io/x":"1","b.io/y":"2"}` ||
		!strings.Contains(snapshot.Data["runtime"], "kind: ClusterTrainingRuntime") || strings.Contains(snapshot.Data["runtime"], "resourceVersion") {
		t.Errorf("%+v", snapshot)
	}
	if r.ResourceVersion == "" {
		t.Error("the runtime was changed")
	}
	job.Status.RuntimeSnapshot = &trainerv1alpha1.RuntimeSnapshotStatus{Hash: plan.SnapshotHash(snapshot)}
	back, err := plan.ReadSnapshot(job, snapshot)
	if err != nil {
		t.Fatal(err)
	}
	r.ResourceVersion, r.ManagedFields = "", nil
	a, _ := json.Marshal(r)
	b, _ := json.Marshal(back)
	if diff := cmp.Diff(string(a), string(b)); diff != "" {
		t.Errorf("-kept +read:\n%s", diff)
	}
	for name, change := range map[string]func(*corev1.ConfigMap, *trainerv1alpha1.TrainJob){
		"another owner":   func(_ *corev1.ConfigMap, j *trainerv1alpha1.TrainJob) { j.UID = "other" },
		"no key":          func(s *corev1.ConfigMap, _ *trainerv1alpha1.TrainJob) { s.Data = nil },
		"another runtime": func(_ *corev1.ConfigMap, j *trainerv1alpha1.TrainJob) { j.Spec.RuntimeRef.Name = "x" },
		"another kind": func(_ *corev1.ConfigMap, j *trainerv1alpha1.TrainJob) {
			j.Spec.RuntimeRef.Kind = new("TrainingRuntime")
		},
		"not YAML": func(s *corev1.ConfigMap, j *trainerv1alpha1.TrainJob) {
			s.Data["runtime"] = "{"
			j.Status.RuntimeSnapshot.Hash = plan.SnapshotHash(s)
		},
	} {
		s, j := snapshot.DeepCopy(), job.DeepCopy()
		change(s, j)
		if _, err := plan.ReadSnapshot(j, s); err == nil {
			t.Errorf("%s: read without error", name)
		}
	}
	r.Annotations = map[string]string{"big": strings.Repeat("x", 901<<10)}
	if _, err := plan.Snapshot(job, r, nil); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a runtime of 901 KiB: %v", err)
	}
}

// TestSnapshotConfirmed: a snapshot counts if the status, which users do not write, records its content.
func TestSnapshotConfirmed(t *testing.T) {
	snapshot, err := plan.Snapshot(trainJob(t, `{runtimeRef: {name: deepspeed-distributed}}`), builtin(t, "deepspeed-distributed"), nil)
	if err != nil {
		t.Fatal(err)
	}
	suspended := []metav1.Condition{{Type: "Suspended", Status: metav1.ConditionTrue}}
	for name, tc := range map[string]struct {
		status trainerv1alpha1.TrainJobStatus
		want   error
	}{
		"recorded":                       {trainerv1alpha1.TrainJobStatus{RuntimeSnapshot: &trainerv1alpha1.RuntimeSnapshotStatus{Hash: plan.SnapshotHash(snapshot)}}, nil},
		"another one recorded":           {trainerv1alpha1.TrainJobStatus{RuntimeSnapshot: &trainerv1alpha1.RuntimeSnapshotStatus{Hash: "sha256:00"}}, plan.ErrUnproven},
		"no status yet":                  {trainerv1alpha1.TrainJobStatus{}, plan.ErrUnproven},
		"only progress yet":              {trainerv1alpha1.TrainJobStatus{TrainerStatus: &trainerv1alpha1.TrainerStatus{}}, plan.ErrUnproven},
		"status before there was one":    {trainerv1alpha1.TrainJobStatus{Conditions: suspended, RuntimeSnapshot: &trainerv1alpha1.RuntimeSnapshotStatus{}}, plan.ErrUnproven},
		"status of an earlier version":   {trainerv1alpha1.TrainJobStatus{Conditions: suspended}, nil},
		"counters of an earlier version": {trainerv1alpha1.TrainJobStatus{JobsStatus: []trainerv1alpha1.JobStatus{{Name: "node"}}}, nil},
	} {
		job := trainJob(t, `{runtimeRef: {name: deepspeed-distributed}}`)
		job.Status = tc.status
		if _, err := plan.ReadSnapshot(job, snapshot); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// TestStatus is 50 §4.2 and §5.1.
func TestStatus(t *testing.T) {
	at := metav1.NewTime(epoch)
	past := metav1.NewTime(epoch.Add(-time.Hour))
	ended := func(kind, reason string) *jobsetv1alpha2.JobSet {
		return &jobsetv1alpha2.JobSet{Status: jobsetv1alpha2.JobSetStatus{
			Conditions:           []metav1.Condition{{Type: kind, Status: "True", Reason: reason, Message: "m", LastTransitionTime: past}},
			ReplicatedJobsStatus: []jobsetv1alpha2.ReplicatedJobStatus{{Name: "node", Succeeded: 1}, {Name: "b"}},
		}}
	}
	suspended := metav1.Condition{Type: "Suspended", Status: "True", Reason: "Suspended", Message: "TrainJob is suspended", LastTransitionTime: past}
	tests := map[string]struct {
		suspend bool
		before  []metav1.Condition
		o       plan.Observed
		want    []metav1.Condition
	}{
		"runs, was never suspended": {o: plan.Observed{JobSet: &jobsetv1alpha2.JobSet{}}},
		"suspended":                 {suspend: true, want: []metav1.Condition{{Type: "Suspended", Status: "True", Reason: "Suspended", Message: "TrainJob is suspended", LastTransitionTime: at}}},
		"still suspended":           {suspend: true, before: []metav1.Condition{suspended}, want: []metav1.Condition{suspended}},
		"resumed":                   {before: []metav1.Condition{suspended}, want: []metav1.Condition{{Type: "Suspended", Status: "False", Reason: "Resumed", Message: "TrainJob is resumed", LastTransitionTime: at}}},
		"completed":                 {o: plan.Observed{JobSet: ended("Completed", "AllJobsCompleted")}, want: []metav1.Condition{{Type: "Complete", Status: "True", Reason: "AllJobsCompleted", Message: "m", LastTransitionTime: past}}},
		"failed":                    {o: plan.Observed{JobSet: ended("Failed", "FailedJobs")}, want: []metav1.Condition{{Type: "Failed", Status: "True", Reason: "FailedJobs", Message: "m", LastTransitionTime: past}}},
		"its JobSet ended and went": {o: plan.Observed{Ended: &metav1.Condition{Type: "Failed", Status: "True", Reason: "FailedJobs", Message: "m", LastTransitionTime: past}}, want: []metav1.Condition{{Type: "Failed", Status: "True", Reason: "FailedJobs", Message: "m", LastTransitionTime: past}}},
		"overdue whatever the JobSet says": {
			before: []metav1.Condition{{Type: "Failed", Status: "True", Reason: "DeadlineExceeded"}}, o: plan.Observed{JobSet: ended("Completed", "AllJobsCompleted")},
			want: []metav1.Condition{{Type: "Failed", Status: "True", Reason: "DeadlineExceeded"}},
		},
		"deleted": {o: plan.Observed{Deleted: true}, want: []metav1.Condition{{Type: "Failed", Status: "True", Reason: "JobSetDeleted", Message: "The JobSet was deleted", LastTransitionTime: at}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := trainJob(t, `{}`)
			job.Spec.Suspend = &tt.suspend
			job.Status.Conditions = tt.before
			tt.o.TrainJob, tt.o.Now = job, epoch
			got := plan.Status(tt.o)
			if diff := cmp.Diff(tt.want, got.Conditions); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if j := tt.o.JobSet; j != nil && len(got.JobsStatus) != len(j.Status.ReplicatedJobsStatus) {
				t.Errorf("counters %v", got.JobsStatus)
			}
			job.Status = *got
			if diff := cmp.Diff(got, plan.Status(tt.o)); diff != "" {
				t.Errorf("a second time it changes:\n%s", diff)
			}
		})
	}
}

// TestStatusOfAbsentJobSet: no Job of a JobSet that does not exist is active. A finished TrainJob keeps its counters.
func TestStatusOfAbsentJobSet(t *testing.T) {
	before := []trainerv1alpha1.JobStatus{{Name: "a", Active: 2, Ready: 1, Succeeded: 1, Failed: 3}, {Name: "b", Suspended: 1}}
	idle := []trainerv1alpha1.JobStatus{{Name: "a", Succeeded: 1, Failed: 3}, {Name: "b", Suspended: 1}}
	for name, tt := range map[string]struct {
		o          plan.Observed
		conditions []metav1.Condition
		want       []trainerv1alpha1.JobStatus
	}{
		"absent":             {o: plan.Observed{Absent: true}, want: idle},
		"maybe not cached":   {want: before},
		"it fails the job":   {o: plan.Observed{Absent: true, Deleted: true}, want: before},
		"it ended":           {o: plan.Observed{Absent: true, Ended: &metav1.Condition{Type: "Completed", Status: "True"}}, want: before},
		"absent, finished":   {o: plan.Observed{Absent: true}, conditions: []metav1.Condition{{Type: "Complete", Status: "True"}}, want: before},
		"absent after a run": {o: plan.Observed{Absent: true}, conditions: []metav1.Condition{{Type: "Suspended", Status: "True"}}, want: idle},
	} {
		t.Run(name, func(t *testing.T) {
			tt.o.TrainJob, tt.o.Now = trainJob(t, `{suspend: true}`), epoch
			tt.o.TrainJob.Status.JobsStatus, tt.o.TrainJob.Status.Conditions = slices.Clone(before), tt.conditions
			if diff := cmp.Diff(tt.want, plan.Status(tt.o).JobsStatus); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(before, tt.o.TrainJob.Status.JobsStatus); diff != "" {
				t.Errorf("the status that was read is modified:\n%s", diff)
			}
		})
	}
}

// TestMayRun: a Job without a JobSet keeps the quota of its TrainJob as long as it has pods, or may get some.
func TestMayRun(t *testing.T) {
	for name, tc := range map[string]struct {
		job  string
		want bool
	}{
		"new":                  {"{}", true},
		"with pods":            {"{status: {active: 1}}", true},
		"suspended":            {"{spec: {suspend: true}}", false},
		"suspended, with pods": {"{spec: {suspend: true}, status: {active: 1}}", true},
		"its pods end":         {"{spec: {suspend: true}, status: {terminating: 1}}", true},
		"about to fail":        {"{status: {conditions: [{type: FailureTarget, status: 'True'}]}}", true},
		"failed":               {"{status: {conditions: [{type: FailureTarget, status: 'True'}, {type: Failed, status: 'True'}]}}", false},
		"complete":             {"{status: {conditions: [{type: Complete, status: 'True'}]}}", false},
		"no more complete":     {"{status: {conditions: [{type: Complete, status: 'False'}]}}", true},
	} {
		if got := plan.MayRun(*fromYAML[batchv1.Job](t, tc.job)); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestDeadline: the window starts at the creation or at the last resume, and never while suspended.
func TestDeadline(t *testing.T) {
	job := trainJob(t, `{activeDeadlineSeconds: 60}`)
	job.CreationTimestamp = metav1.NewTime(epoch)
	check := func(want time.Time, ok bool) {
		t.Helper()
		if got, found := plan.Deadline(job, &job.Status); found != ok || !got.Equal(want) {
			t.Errorf("want %v %v, got %v %v", want, ok, got, found)
		}
	}
	check(epoch.Add(time.Minute), true)
	job.Spec.Suspend = new(true)
	check(time.Time{}, false)
	job.Spec.Suspend = nil
	job.Status.Conditions = []metav1.Condition{{Type: "Suspended", Status: "True", LastTransitionTime: metav1.NewTime(epoch)}} // the resume is not written yet
	check(time.Time{}, false)
	job.Status.Conditions = []metav1.Condition{{Type: "Suspended", Status: "False", LastTransitionTime: metav1.NewTime(epoch.Add(50 * time.Second))}}
	check(epoch.Add(110*time.Second), true)
	plan.Overdue(&job.Status, epoch)
	check(time.Time{}, false)
	if !plan.IsOverdue(job) || !plan.IsFinished(job) {
		t.Error("it is not overdue")
	}
	job = trainJob(t, `{activeDeadlineSeconds: 9223372036854775807}`)
	job.CreationTimestamp = metav1.NewTime(epoch)
	check(epoch.Add(math.MaxInt32*time.Second), true)
	job = trainJob(t, `{}`)
	check(time.Time{}, false)
}

// TestOwner: every object has the TrainJob as its one controller, and no label of ours.
func TestOwner(t *testing.T) {
	in := &plan.Input{TrainJob: trainJob(t, `{}`), Runtime: builtin(t, "deepspeed-distributed"), Config: plan.DefaultConfig(), Keys: plan.Keys{SSHPrivate: []byte("a"), SSHPublic: []byte("b")}}
	in.Runtime.Spec.PodGroupPolicy = &trainerv1alpha1.PodGroupPolicy{PodGroupPolicySource: trainerv1alpha1.PodGroupPolicySource{Coscheduling: &trainerv1alpha1.CoschedulingPolicy{}}}
	built, err := plan.Build(in)
	if err != nil {
		t.Fatal(err)
	}
	objects := []metav1.Object{built.JobSet, built.ConfigMaps[0], built.Secrets[0], built.PodGroups[0]}
	want := []metav1.OwnerReference{{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "lark", UID: "u1", Controller: new(true), BlockOwnerDeletion: new(true)}}
	for _, o := range objects {
		if diff := cmp.Diff(want, o.GetOwnerReferences()); diff != "" || len(o.GetLabels())+len(o.GetAnnotations()) > 0 || o.GetNamespace() != "lab" {
			t.Errorf("%s: labels %v, annotations %v, owners -want +got:\n%s", o.GetName(), o.GetLabels(), o.GetAnnotations(), diff)
		}
	}
	in.Keys = plan.Keys{}
	if built, err = plan.Build(in); err != nil || len(built.Secrets) > 0 {
		t.Errorf("without keys: %v, %v", built.Secrets, err)
	}
}

func largeInput(t testing.TB) *plan.Input {
	job := trainJob(t, `{runtimeRef: {name: torch-distributed}, trainer: {numNodes: 64, image: mine, command: [torchrun, go.py], env: [{name: A, value: "1"}, {name: B, value: "2"}]},
runtimePatches: [{manager: kueue.x-k8s.io/manager, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {metadata: {labels: {kueue.x-k8s.io/podset: node}}, spec: {nodeSelector: {zone: a}, tolerations: [{key: t, operator: Exists}]}}}}}]}}}}]}`)
	job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), "cpu": resource.MustParse("32"), "memory": resource.MustParse("128Gi")}}
	return &plan.Input{TrainJob: job, Runtime: builtin(t, "torch-distributed"), Config: plan.DefaultConfig()}
}

// The plan of a large job stays within its bound of allocations.
func TestBuildAllocations(t *testing.T) {
	in := largeInput(t)
	n := testing.AllocsPerRun(100, func() {
		if _, err := plan.Build(in); err != nil {
			t.Fatal(err)
		}
	})
	if n > 1000 {
		t.Errorf("%v allocations, and at most 1,000 are allowed", n)
	}
}

// BenchmarkBuild plans a torch job of 64 nodes that a queue has started.
func BenchmarkBuild(b *testing.B) {
	in := largeInput(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := plan.Build(in); err != nil {
			b.Fatal(err)
		}
	}
}
