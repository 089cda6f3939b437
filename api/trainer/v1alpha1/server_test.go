package v1alpha1_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// kinds are the kinds of this package and their resources.
var kinds = map[string]string{
	trainerv1alpha1.KindTrainJob:               trainerv1alpha1.ResourceTrainJobs,
	trainerv1alpha1.KindTrainingRuntime:        trainerv1alpha1.ResourceTrainingRuntimes,
	trainerv1alpha1.KindClusterTrainingRuntime: trainerv1alpha1.ResourceClusterTrainingRuntimes,
}

// TestMain shares one API server among the tests.
func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// server has the API server serve this package's kinds and returns a client for each kind, in the namespace default where there
// is one.
func server(t *testing.T) map[string]dynamic.ResourceInterface {
	t.Helper()
	config := embeddedtest.Config(t)
	config.WarningHandler = rest.NoWarnings{} // of unknown fields, which a test has pruned on purpose
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	clients := map[string]dynamic.ResourceInterface{}
	for kind, resource := range kinds {
		manifest, err := os.ReadFile("../../../config/crd/trainer.kubeflow.org_" + resource + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = crds.Create(t.Context(), parse(t, string(manifest)), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		clients[kind] = client.Resource(trainerv1alpha1.GroupVersion.WithResource(resource))
		if kind != trainerv1alpha1.KindClusterTrainingRuntime {
			clients[kind] = client.Resource(trainerv1alpha1.GroupVersion.WithResource(resource)).Namespace("default")
		}
	}
	for kind := range kinds {
		wait.Until(t, kind+" is served", func() error {
			_, err := clients[kind].List(t.Context(), metav1.ListOptions{})
			return err
		})
	}
	return clients
}

func parse(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(manifest), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// object makes an object of a kind from the YAML of all but its type.
func object(t *testing.T, kind, manifest string) *unstructured.Unstructured {
	t.Helper()
	o := parse(t, manifest)
	o.SetAPIVersion(trainerv1alpha1.GroupVersion.String())
	o.SetKind(kind)
	if o.GetName() == "" {
		o.SetGenerateName("lark-")
	}
	return o
}

// refused checks that an error is a 422 that names a field and says a text.
func refused(t *testing.T, err error, field, text string) {
	t.Helper()
	switch {
	case !apierrors.IsInvalid(err):
		t.Errorf("want a refusal with status 422 at %s, got %v", field, err)
	case !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), text):
		t.Errorf("want a refusal at %s that says %q, got: %v", field, text, err)
	}
}

const (
	trainJob       = trainerv1alpha1.KindTrainJob
	nsRuntime      = trainerv1alpha1.KindTrainingRuntime
	clusterRuntime = trainerv1alpha1.KindClusterTrainingRuntime
)

// TestCreate pairs an object that the schema accepts with one that it refuses, for every rule and most bounds of 50 §2.
func TestCreate(t *testing.T) {
	clients := server(t)
	name63 := strings.Repeat("a", 63)
	tests := map[string]struct {
		kind        string
		good, bad   string
		field, text string
	}{
		"50 §2.1 name is a label": {
			trainJob, "{metadata: {name: lark-1}, spec: {runtimeRef: {name: a}}}", "{metadata: {name: 1-lark}, spec: {runtimeRef: {name: a}}}",
			"metadata.name", "start with a lower-case letter",
		},
		"50 §2.1 name without dots": {
			trainJob, "{metadata: {name: l}, spec: {runtimeRef: {name: a}}}", "{metadata: {name: la.rk}, spec: {runtimeRef: {name: a}}}",
			"metadata.name", "start with a lower-case letter",
		},
		"50 §2.1 name of 63 characters": {
			trainJob, "{metadata: {name: " + name63 + "}, spec: {runtimeRef: {name: a}}}", "{metadata: {name: " + name63 + "a}, spec: {runtimeRef: {name: a}}}",
			"metadata.name", "at most 63 characters",
		},
		"50 §2.1 spec is required": {
			trainJob, "{spec: {runtimeRef: {name: a}}}", "{}", "spec", "Required value",
		},
		"50 §2.1 runtimeRef is required": {
			trainJob, "{spec: {runtimeRef: {name: a}}}", "{spec: {}}", "spec.runtimeRef", "Required value",
		},
		"50 §2.1 runtimeRef.name is not empty": {
			trainJob, "{spec: {runtimeRef: {name: a, kind: Other, apiGroup: acme.io}}}", "{spec: {runtimeRef: {name: ''}}}", "spec.runtimeRef.name", "at least 1 char",
		},
		"50 §2.1 managedBy": {
			trainJob, "{spec: {runtimeRef: {name: a}, managedBy: kueue.x-k8s.io/multikueue}}", "{spec: {runtimeRef: {name: a}, managedBy: foo/bar}}",
			"spec.managedBy", "must be trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue",
		},
		"50 §2.1 storageUri of the dataset": {
			trainJob, "{spec: {runtimeRef: {name: a}, initializer: {dataset: {storageUri: 'hf://x/y'}}}}", "{spec: {runtimeRef: {name: a}, initializer: {dataset: {storageUri: 'hf:x'}}}}",
			"spec.initializer.dataset.storageUri", "scheme://something",
		},
		"50 §2.1 storageUri of the model may be empty": {
			trainJob, "{spec: {runtimeRef: {name: a}, initializer: {model: {storageUri: ''}}}}", "{spec: {runtimeRef: {name: a}, initializer: {model: {storageUri: '1s://x'}}}}",
			"spec.initializer.model.storageUri", "scheme://something",
		},
		"50 §2.1 numProcPerNode": {
			trainJob, "{spec: {runtimeRef: {name: a}, trainer: {numProcPerNode: 1}}}", "{spec: {runtimeRef: {name: a}, trainer: {numProcPerNode: 0}}}",
			"spec.trainer.numProcPerNode", "must be 1 or greater",
		},
		"50 §2.1 numNodes": {
			trainJob, "{spec: {runtimeRef: {name: a}, trainer: {numNodes: 0}}}", "{spec: {runtimeRef: {name: a}, trainer: {numNodes: -1}}}",
			"spec.trainer.numNodes", "greater than or equal to 0",
		},
		"50 §2.1 activeDeadlineSeconds": {
			trainJob, "{spec: {runtimeRef: {name: a}, activeDeadlineSeconds: 1}}", "{spec: {runtimeRef: {name: a}, activeDeadlineSeconds: 0}}",
			"spec.activeDeadlineSeconds", "greater than or equal to 1",
		},
		"50 §3.1 one entry for a manager": {
			trainJob, "{spec: {runtimeRef: {name: a}, runtimePatches: [{manager: a.io/x}, {manager: a.io/y}]}}", "{spec: {runtimeRef: {name: a}, runtimePatches: [{manager: a.io/x}, {manager: a.io/x}]}}",
			"spec.runtimePatches[1]", "Duplicate value",
		},
		"50 §2.2 terminationGracePeriodSeconds": {
			trainJob, patched("{terminationGracePeriodSeconds: 0}"), patched("{terminationGracePeriodSeconds: -1}"), "terminationGracePeriodSeconds", "greater than or equal to 0",
		},
		"50 §2.4 one policy of the runtime": {
			nsRuntime, "{spec: {mlPolicy: {numNodes: 2, torch: {}}}}", "{spec: {mlPolicy: {torch: {}, mpi: {}}}}",
			"spec.mlPolicy", "at most one of torch, mpi, jax, xgboost and flux",
		},
		"50 §2.4 one policy of the cluster runtime": {
			clusterRuntime, "{spec: {mlPolicy: {flux: {}}}}", "{spec: {mlPolicy: {flux: {}, jax: {}, xgboost: {}}}}",
			"spec.mlPolicy", "at most one of torch, mpi, jax, xgboost and flux",
		},
		"50 §2.4 containerNames": {
			nsRuntime, "{spec: {mlPolicy: {torch: {envInjection: {targets: [{jobName: a, containerNames: [proxy]}]}}}}}", "{spec: {mlPolicy: {torch: {envInjection: {targets: [{jobName: a, containerNames: [proxy, node]}]}}}}}",
			"spec.mlPolicy.torch.envInjection.targets[0].containerNames", "must not include node",
		},
		"50 §2.4 mpi.numProcPerNode": {
			nsRuntime, "{spec: {mlPolicy: {mpi: {numProcPerNode: 2}}}}", "{spec: {mlPolicy: {mpi: {numProcPerNode: 0}}}}",
			"spec.mlPolicy.mpi.numProcPerNode", "must be 1 or greater",
		},
		"50 §2.4 mpiImplementation": {
			nsRuntime, "{spec: {mlPolicy: {mpi: {mpiImplementation: ''}}}}", "{spec: {mlPolicy: {mpi: {mpiImplementation: Intel}}}}",
			"spec.mlPolicy.mpi.mpiImplementation", "OpenMPI",
		},
		"50 §2.4 flux.numProcPerNode": {
			nsRuntime, "{spec: {mlPolicy: {flux: {numProcPerNode: 2}}}}", "{spec: {mlPolicy: {flux: {numProcPerNode: 0}}}}",
			"spec.mlPolicy.flux.numProcPerNode", "must be 1 or greater",
		},
		"50 §2.4 networkTopology": {
			nsRuntime, "{spec: {podGroupPolicy: {volcano: {networkTopology: {mode: soft}}}}}", "{spec: {podGroupPolicy: {volcano: {networkTopology: {mode: firm}}}}}",
			"spec.podGroupPolicy.volcano.networkTopology.mode", `supported values: "hard", "soft"`,
		},
		"50 §2.4 spec is not empty": {
			clusterRuntime, "{spec: {podGroupPolicy: {}}}", "{spec: {}}", "spec", "at least 1 properties",
		},
		"50 §2.4 template is not empty": {
			clusterRuntime, "{spec: {template: {spec: {}}}}", "{spec: {template: {}}}", "spec.template", "at least 1 properties",
		},
		"50 §2.4 InOrder with dependsOn in a runtime": {
			nsRuntime, "{spec: {template: {spec: {startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: [{name: a, template: {}}]}}}}",
			"{spec: {template: {spec: {startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: [{name: a, dependsOn: [], template: {}}]}}}}",
			"spec.template.spec.startupPolicy", "none sets dependsOn",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			stored, err := clients[test.kind].Create(t.Context(), object(t, test.kind, test.good), metav1.CreateOptions{})
			if err != nil {
				t.Errorf("want it accepted: %v", err)
			} else if err = clients[test.kind].Delete(t.Context(), stored.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			_, err = clients[test.kind].Create(t.Context(), object(t, test.kind, test.bad), metav1.CreateOptions{})
			refused(t, err, test.field, test.text)
		})
	}
}

// patched is a suspended TrainJob with one runtime patch of a pod spec.
func patched(podSpec string) string {
	return "{spec: {runtimeRef: {name: a}, suspend: true, runtimePatches: [{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: " + podSpec + "}}}}]}}}}]}}"
}

// TestUpdate holds the transition rules of 50 §2.1 and §2.2 to what their traps say: a change of the value is refused; adding
// and removing the whole field is not refused by the schema.
func TestUpdate(t *testing.T) {
	clients := server(t)
	const none = "{spec: {runtimeRef: {name: a}}}"
	tests := map[string]struct {
		old, changed, without string // without is empty for fields that are always present
		field                 string
	}{
		"runtimeRef":            {none, "{spec: {runtimeRef: {name: b}}}", "", "spec.runtimeRef"},
		"managedBy":             {none, "{spec: {runtimeRef: {name: a}, managedBy: kueue.x-k8s.io/multikueue}}", "", "spec.managedBy"},
		"initializer":           {"{spec: {runtimeRef: {name: a}, initializer: {}}}", "{spec: {runtimeRef: {name: a}, initializer: {model: {}}}}", none, "spec.initializer"},
		"trainer":               {"{spec: {runtimeRef: {name: a}, trainer: {numNodes: 1}}}", "{spec: {runtimeRef: {name: a}, trainer: {numNodes: 2}}}", none, "spec.trainer"},
		"activeDeadlineSeconds": {"{spec: {runtimeRef: {name: a}, activeDeadlineSeconds: 1}}", "{spec: {runtimeRef: {name: a}, activeDeadlineSeconds: 2}}", none, "spec.activeDeadlineSeconds"},

		"serviceAccountName": {patched("{serviceAccountName: a}"), patched("{serviceAccountName: b}"), patched("{}"), "template.spec.serviceAccountName"},
		"volumes":            {patched("{volumes: [{name: a}]}"), patched("{volumes: [{name: a, emptyDir: {}}]}"), patched("{}"), "template.spec.volumes"},
		"initContainers":     {patched("{initContainers: [{name: a}]}"), patched("{initContainers: [{name: a, env: [{name: b}]}]}"), patched("{}"), "template.spec.initContainers"},
		"containers":         {patched("{containers: [{name: a}]}"), patched("{containers: [{name: a}, {name: b}]}"), patched("{}"), "template.spec.containers"},
		"imagePullSecrets":   {patched("{imagePullSecrets: [{name: a}]}"), patched("{imagePullSecrets: [{name: b}]}"), patched("{}"), "template.spec.imagePullSecrets"},
		"securityContext":    {patched("{securityContext: {runAsUser: 1}}"), patched("{securityContext: {runAsUser: 2}}"), patched("{}"), "template.spec.securityContext"},
		"terminationGracePeriodSeconds": {
			patched("{terminationGracePeriodSeconds: 300}"), patched("{terminationGracePeriodSeconds: 200}"), patched("{}"), "template.spec.terminationGracePeriodSeconds",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			stored, err := clients[trainJob].Create(t.Context(), object(t, trainJob, test.old), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			update := func(manifest string) error {
				changed := stored.DeepCopy()
				changed.Object["spec"] = parse(t, manifest).Object["spec"]
				updated, err := clients[trainJob].Update(t.Context(), changed, metav1.UpdateOptions{})
				if err == nil {
					stored = updated
				}
				return err
			}
			refused(t, update(test.changed), test.field, "field is immutable")
			if err := update(test.old); err != nil {
				t.Errorf("keeping %s: want it accepted: %v", test.field, err)
			}
			if test.without == "" {
				return
			}
			if err := update(test.without); err != nil {
				t.Errorf("removing %s: want it accepted: %v", test.field, err)
			}
			if err := update(test.changed); err != nil {
				t.Errorf("adding %s: want it accepted: %v", test.field, err)
			}
		})
	}
}

// TestMutablePatchFields changes the fields of a runtime patch that the queue changes (50 §2.2).
func TestMutablePatchFields(t *testing.T) {
	clients := server(t)
	stored, err := clients[trainJob].Create(t.Context(), object(t, trainJob,
		patched("{nodeSelector: {zone: a}, tolerations: [{key: a}], schedulingGates: [{name: a.io/b}], affinity: {podAffinity: {}}}")), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.Object["spec"] = parse(t, patched("{nodeSelector: {zone: b}, tolerations: [{key: b}], schedulingGates: [], affinity: {}}")).Object["spec"]
	if err = unstructured.SetNestedField(stored.Object, false, "spec", "suspend"); err != nil {
		t.Fatal(err)
	}
	if _, err = clients[trainJob].Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Errorf("want nodeSelector, tolerations, schedulingGates, affinity and suspend mutable: %v", err)
	}
}

// TestRuntimesFreeze changes the parts of a runtime's JobSet that a JobSet itself cannot change: a change of the value is refused,
// adding and removing the whole field is not (50 §2.4).
func TestRuntimesFreeze(t *testing.T) {
	clients := server(t)
	jobs := func(dependsOn string) string {
		return "replicatedJobs: [{name: a, template: {}}, {name: b, template: {}" + dependsOn + "}]"
	}
	tests := map[string]struct{ old, changed, without, field string }{
		"network":             {"network: {subdomain: a}", "network: {subdomain: b}", jobs(""), "network"},
		"successPolicy":       {"successPolicy: {operator: All}", "successPolicy: {operator: Any}", jobs(""), "successPolicy"},
		"failurePolicy":       {"failurePolicy: {maxRestarts: 1}", "failurePolicy: {maxRestarts: 2}", jobs(""), "failurePolicy"},
		"startupPolicy":       {"startupPolicy: {startupPolicyOrder: AnyOrder}", "startupPolicy: {startupPolicyOrder: InOrder}, " + jobs(""), jobs(""), "startupPolicy"},
		"volumeClaimPolicies": {"volumeClaimPolicies: [{}]", "volumeClaimPolicies: [{retentionPolicy: {whenDeleted: Retain}}]", jobs(""), "volumeClaimPolicies"},
		"dependsOn": {
			jobs(", dependsOn: [{name: a, status: Ready}]"), jobs(", dependsOn: [{name: a, status: Complete}]"), jobs(""), "replicatedJobs[1].dependsOn",
		},
	}
	for name, test := range tests {
		for _, kind := range []string{nsRuntime, clusterRuntime} {
			t.Run(name+" of a "+kind, func(t *testing.T) {
				manifest := func(spec string) string { return "{spec: {template: {spec: {" + spec + "}}}}" }
				stored, err := clients[kind].Create(t.Context(), object(t, kind, manifest(test.old)), metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				update := func(spec string) error {
					changed := stored.DeepCopy()
					changed.Object["spec"] = parse(t, manifest(spec)).Object["spec"]
					updated, err := clients[kind].Update(t.Context(), changed, metav1.UpdateOptions{})
					if err == nil {
						stored = updated
					}
					return err
				}
				refused(t, update(test.changed), "spec.template.spec."+test.field, "field is immutable; create a new runtime to change "+name)
				if err := update(test.without); err != nil {
					t.Errorf("removing %s: want it accepted: %v", test.field, err)
				}
				if err := update(test.changed); err != nil {
					t.Errorf("adding %s: want it accepted: %v", test.field, err)
				}
			})
		}
	}
}

// TestRuntimesAreMutable changes the parts of a runtime's JobSet that may change (50 §2.4, §3.3).
func TestRuntimesAreMutable(t *testing.T) {
	clients := server(t)
	const before = `{spec: {mlPolicy: {numNodes: 1}, template: {spec: {replicatedJobs: [{name: a, template: {}}]}}}}`
	const after = `{spec: {mlPolicy: {torch: {}}, template: {metadata: {labels: {a: b}}, spec: {suspend: true, replicatedJobs: [{name: a, replicas: -1, template: {spec: {parallelism: 2, template: {}}}}, {name: b, template: {}}]}}}}`
	for _, kind := range []string{nsRuntime, clusterRuntime} {
		stored, err := clients[kind].Create(t.Context(), object(t, kind, before), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stored.Object["spec"] = parse(t, after).Object["spec"]
		if _, err = clients[kind].Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
			t.Errorf("%s: want the other parts of the template mutable: %v", kind, err)
		}
	}
}

// TestStatus writes a TrainJob's status (50 §2.3).
func TestStatus(t *testing.T) {
	clients := server(t)
	tests := map[string]struct {
		good, bad   string
		field, text string
	}{
		"lastUpdatedTime is required": {
			"{trainerStatus: {lastUpdatedTime: '2026-01-02T03:04:05Z'}}", "{trainerStatus: {progressPercentage: 5}}",
			"status.trainerStatus.lastUpdatedTime", "Required value",
		},
		"progress is a percentage": {
			"{trainerStatus: {progressPercentage: 100, lastUpdatedTime: '2026-01-02T03:04:05Z'}}", "{trainerStatus: {progressPercentage: 101, lastUpdatedTime: '2026-01-02T03:04:05Z'}}",
			"status.trainerStatus.progressPercentage", "less than or equal to 100",
		},
		"counters are required": {
			"{jobsStatus: [{name: node, ready: 0, succeeded: 0, failed: 0, active: 0, suspended: 0}]}", "{jobsStatus: [{name: node, ready: 0, succeeded: 0, failed: 0, active: 0}]}",
			"status.jobsStatus[0].suspended", "Required value",
		},
		"status is not empty": {
			"{jobsStatus: []}", "{}", "status", "at least 1 properties",
		},
		"50 §4.13.6 state of a patch": {
			"{runtimePatches: [{manager: a.io/x, state: Applied, hash: 0123456789abcdef}]}", "{runtimePatches: [{manager: a.io/x, state: Lost}]}",
			"status.runtimePatches[0].state", `supported values: "Pending", "Applied", "Overridden"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			stored, err := clients[trainJob].Create(t.Context(), object(t, trainJob, "{spec: {runtimeRef: {name: a}}}"), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			stored.Object["status"] = parse(t, test.bad).Object
			_, err = clients[trainJob].UpdateStatus(t.Context(), stored, metav1.UpdateOptions{})
			refused(t, err, test.field, test.text)
			stored.Object["status"] = parse(t, test.good).Object
			got, err := clients[trainJob].UpdateStatus(t.Context(), stored, metav1.UpdateOptions{})
			if err != nil {
				t.Fatalf("want it accepted: %v", err)
			}
			if d := cmp.Diff(stored.Object["status"], got.Object["status"], numbers); d != "" {
				t.Errorf("stored status (-want +got):\n%s", d)
			}
		})
	}
}

// TestDefaults reads back what the schema adds (50 §2.1, §2.4) and removes.
func TestDefaults(t *testing.T) {
	clients := server(t)
	const refDefaults = "kind: ClusterTrainingRuntime, apiGroup: trainer.kubeflow.org"
	const jobDefaults = "suspend: false, managedBy: trainer.kubeflow.org/trainjob-controller"
	tests := map[string]struct{ kind, spec, want string }{
		"50 §7.1 TrainJob": {trainJob, "{runtimeRef: {name: acme-torch}}", "{runtimeRef: {name: acme-torch, " + refDefaults + "}, " + jobDefaults + "}"},
		"50 §2.1 removed fields are pruned": {
			trainJob, "{runtimeRef: {name: a}, labels: {a: b}, annotations: {a: b}, podTemplateOverrides: []}", "{runtimeRef: {name: a, " + refDefaults + "}, " + jobDefaults + "}",
		},
		"50 §4.4 empty command stays": {trainJob, "{runtimeRef: {name: a}, trainer: {command: []}}", "{runtimeRef: {name: a, " + refDefaults + "}, trainer: {command: []}, " + jobDefaults + "}"},
		"50 §2.4 mpi": {
			nsRuntime, "{mlPolicy: {mpi: {}}}", "{mlPolicy: {mpi: {numProcPerNode: 1, mpiImplementation: OpenMPI, sshAuthMountPath: /root/.ssh, runLauncherAsNode: false}}}",
		},
		"50 §2.4 flux":                  {nsRuntime, "{mlPolicy: {flux: {}}}", "{mlPolicy: {flux: {numProcPerNode: 1}}}"},
		"50 §2.4 torch has no defaults": {nsRuntime, "{mlPolicy: {torch: {elasticPolicy: {}}}}", "{mlPolicy: {torch: {}}}"},
		"50 §2.4 pod groups": {
			clusterRuntime, "{podGroupPolicy: {coscheduling: {}, volcano: {networkTopology: {}}}}",
			"{podGroupPolicy: {coscheduling: {scheduleTimeoutSeconds: 60}, volcano: {networkTopology: {mode: hard, highestTierAllowed: 1}}}}",
		},
		"50 §2.4 template without an image": {
			clusterRuntime, "{template: {spec: {failurePolicy: {}, volumeClaimPolicies: [{retentionPolicy: {}}], replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{name: node, ports: [{containerPort: 1}], readinessProbe: {grpc: {port: 1}}}]}}}}}]}}}",
			`{template: {spec: {failurePolicy: {restartStrategy: Recreate}, volumeClaimPolicies: [{retentionPolicy: {whenDeleted: Delete}}], replicatedJobs: [{name: node, groupName: default, replicas: 1,
				template: {spec: {template: {spec: {containers: [{name: node, ports: [{containerPort: 1, protocol: TCP}], readinessProbe: {grpc: {port: 1, service: ''}}}]}}}}}]}}}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := clients[test.kind].Create(t.Context(), object(t, test.kind, "spec: "+test.spec), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(parse(t, "spec: "+test.want).Object["spec"], got.Object["spec"], numbers); d != "" {
				t.Errorf("stored spec (-want +got):\n%s", d)
			}
		})
	}
}

// numbers makes integers equal to floats of the same value: YAML is read as the one, answers of the server as the other.
var numbers = cmp.FilterValues(func(a, b any) bool { return number(a) != nil && number(b) != nil },
	cmp.Comparer(func(a, b any) bool { return *number(a) == *number(b) }))

func number(v any) *float64 {
	switch v := v.(type) {
	case int64:
		f := float64(v)
		return &f
	case float64:
		return &v
	}
	return nil
}
