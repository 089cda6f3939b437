package v1alpha2_test

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

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestMain shares one API server among the tests.
func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// server has the API server serve JobSets and returns a client for them, in the namespace default.
func server(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	config := embeddedtest.Config(t)
	config.WarningHandler = rest.NoWarnings{} // of unknown fields, which a test has pruned on purpose
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("../../../config/crd/jobset.x-k8s.io_jobsets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := parse(t, string(manifest))
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err = crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	jobSets := client.Resource(jobsetv1alpha2.GroupVersion.WithResource(jobsetv1alpha2.ResourceJobSets)).Namespace("default")
	wait.Until(t, "JobSets are served", func() error {
		_, err := jobSets.List(t.Context(), metav1.ListOptions{})
		return err
	})
	return jobSets
}

func parse(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(manifest), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// jobSet makes a JobSet from the YAML of its spec.
func jobSet(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"spec": parse(t, spec).Object}}
	object.SetAPIVersion(jobsetv1alpha2.GroupVersion.String())
	object.SetKind(jobsetv1alpha2.KindJobSet)
	object.SetGenerateName("ring-")
	return object
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

// Job templates that differ in dependsOn and nothing else.
const (
	coach     = "{name: coach, template: {spec: {template: {spec: {containers: [{name: main}]}}}}}"
	oar       = "{name: oar, template: {spec: {template: {spec: {containers: [{name: main}]}}}}}"
	oarReady  = "{name: oar, dependsOn: [{name: coach, status: Ready}], template: {spec: {template: {spec: {containers: [{name: main}]}}}}}"
	oarDone   = "{name: oar, dependsOn: [{name: coach, status: Complete}], template: {spec: {template: {spec: {containers: [{name: main}]}}}}}"
	oarNoDeps = "{name: oar, dependsOn: [], template: {spec: {template: {spec: {containers: [{name: main}]}}}}}"
)

// TestCreate pairs a spec that the schema accepts with one that it refuses, for every rule of 60 §3.2 that it enforces.
func TestCreate(t *testing.T) {
	jobSets := server(t)
	tests := map[string]struct {
		good, bad   string
		field, text string
	}{
		"60 §3.2 InOrder with dependsOn": {
			"{startupPolicy: {startupPolicyOrder: AnyOrder}, replicatedJobs: [" + coach + ", " + oarReady + "]}",
			"{startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: [" + coach + ", " + oarReady + "]}",
			"spec.startupPolicy", "none sets dependsOn",
		},
		"60 §3.2 InOrder with empty dependsOn": {
			"{startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: [" + coach + ", " + oar + "]}",
			"{startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: [" + coach + ", " + oarNoDeps + "]}",
			"spec.startupPolicy", "none sets dependsOn",
		},
		"60 §3.2 InOrder without replicatedJobs": {
			"{startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: []}",
			"{startupPolicy: {startupPolicyOrder: InOrder}}",
			"spec.startupPolicy", "needs replicatedJobs",
		},
		"60 §3.2 namespace of a volume claim": {
			"{volumeClaimPolicies: [{templates: [{metadata: {name: data}}, {spec: {}}]}]}",
			"{volumeClaimPolicies: [{templates: [{metadata: {name: data}}, {metadata: {name: more, namespace: lab}}]}]}",
			"spec.volumeClaimPolicies[0].templates[1].metadata", "metadata.namespace must not be set",
		},
		"60 §3.2 unique names": {
			"{replicatedJobs: [" + coach + ", " + oar + "]}",
			"{replicatedJobs: [" + oar + ", " + oar + "]}",
			"spec.replicatedJobs[1]", "Duplicate value",
		},
		"60 §2.1 replicas": {
			"{replicatedJobs: [{name: oar, replicas: 0, template: {}}]}",
			"{replicatedJobs: [{name: oar, replicas: -1, template: {}}]}",
			"spec.replicatedJobs[0].replicas", "greater than or equal to 0",
		},
		"60 §2.1 dependsOn at most 5": {
			"{replicatedJobs: [{name: oar, template: {}, dependsOn: [" + dependencies("abcde") + "]}]}",
			"{replicatedJobs: [{name: oar, template: {}, dependsOn: [" + dependencies("abcdef") + "]}]}",
			"spec.replicatedJobs[0].dependsOn", "at most 5",
		},
		"60 §2.1 successPolicy operator": {
			"{successPolicy: {operator: Any}}", "{successPolicy: {operator: Most}}",
			"spec.successPolicy.operator", `supported values: "All", "Any"`,
		},
		"60 §2.1 failurePolicy action": {
			"{failurePolicy: {rules: [{name: a, action: FailJobSet}]}}", "{failurePolicy: {rules: [{name: a, action: Ignore}]}}",
			"spec.failurePolicy.rules[0].action", "RestartJobAndIgnoreMaxRestarts",
		},
		"60 §2.1 negative maxRestarts is legal, strategy is an enum": {
			"{failurePolicy: {maxRestarts: -1, restartStrategy: InPlaceRestart}}", "{failurePolicy: {restartStrategy: Never}}",
			"spec.failurePolicy.restartStrategy", "BlockingRecreate",
		},
		"60 §2.1 ttlSecondsAfterFinished": {
			"{ttlSecondsAfterFinished: 0}", "{ttlSecondsAfterFinished: -1}",
			"spec.ttlSecondsAfterFinished", "greater than or equal to 0",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := jobSets.Create(t.Context(), jobSet(t, test.good), metav1.CreateOptions{}); err != nil {
				t.Errorf("want it accepted: %v", err)
			}
			_, err := jobSets.Create(t.Context(), jobSet(t, test.bad), metav1.CreateOptions{})
			refused(t, err, test.field, test.text)
		})
	}
}

func dependencies(names string) string {
	var list []string
	for _, name := range names {
		list = append(list, "{name: "+string(name)+", status: Ready}")
	}
	return strings.Join(list, ", ")
}

// TestUpdate holds the transition rules of 60 §2.1 to what 60 §3.3 says of them: a change is refused; adding and removing the
// whole field is not.
func TestUpdate(t *testing.T) {
	jobSets := server(t)
	tests := map[string]struct {
		old, changed, without string
		field                 string
	}{
		"network":             {"{network: {subdomain: row}}", "{network: {subdomain: bow}}", "{}", "spec.network"},
		"successPolicy":       {"{successPolicy: {operator: All}}", "{successPolicy: {operator: Any}}", "{}", "spec.successPolicy"},
		"failurePolicy":       {"{failurePolicy: {maxRestarts: 1}}", "{failurePolicy: {maxRestarts: 2}}", "{}", "spec.failurePolicy"},
		"startupPolicy":       {"{startupPolicy: {startupPolicyOrder: AnyOrder}}", "{startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: []}", "{}", "spec.startupPolicy"},
		"volumeClaimPolicies": {"{volumeClaimPolicies: [{retentionPolicy: {}}]}", "{volumeClaimPolicies: [{retentionPolicy: {whenDeleted: Retain}}]}", "{}", "spec.volumeClaimPolicies"},
		"dependsOn": {
			"{replicatedJobs: [" + coach + ", " + oarReady + "]}", "{replicatedJobs: [" + coach + ", " + oarDone + "]}",
			"{replicatedJobs: [" + coach + ", " + oar + "]}", "spec.replicatedJobs[1].dependsOn",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object, err := jobSets.Create(t.Context(), jobSet(t, test.old), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			update := func(spec string) error {
				changed := object.DeepCopy()
				changed.Object["spec"] = parse(t, spec).Object
				updated, err := jobSets.Update(t.Context(), changed, metav1.UpdateOptions{})
				if err == nil {
					object = updated
				}
				return err
			}
			refused(t, update(test.changed), test.field, "field is immutable")
			if err := update(test.without); err != nil {
				t.Errorf("removing %s: want it accepted: %v", test.field, err)
			}
			if err := update(test.changed); err != nil {
				t.Errorf("adding %s: want it accepted: %v", test.field, err)
			}
		})
	}
}

// TestMutableFields changes what 60 §2.1 lets change.
func TestMutableFields(t *testing.T) {
	jobSets := server(t)
	object, err := jobSets.Create(t.Context(), jobSet(t, "{suspend: true, replicatedJobs: ["+coach+"]}"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Object["spec"] = parse(t, "{suspend: false, ttlSecondsAfterFinished: 5, coordinator: {replicatedJob: coach}, replicatedJobs: ["+coach+"]}").Object
	if _, err = jobSets.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Errorf("want suspend, ttlSecondsAfterFinished and coordinator mutable: %v", err)
	}
}

// TestDefaults reads back what the schema adds and removes (60 §2.1).
func TestDefaults(t *testing.T) {
	jobSets := server(t)
	tests := map[string]struct{ spec, want string }{
		"nothing at all": {"{}", "{}"},
		"replicated job": {
			"{replicatedJobs: [{name: oar, template: {spec: {template: {spec: {containers: [{name: main, ports: [{containerPort: 1}]}]}}}}}]}",
			"{replicatedJobs: [{name: oar, groupName: default, replicas: 1, template: {spec: {template: {spec: {containers: [{name: main, ports: [{containerPort: 1, protocol: TCP}]}]}}}}}]}",
		},
		"no replicas":     {"{replicatedJobs: [{name: oar, replicas: 0, template: {}}]}", "{replicatedJobs: [{name: oar, groupName: default, replicas: 0, template: {}}]}"},
		"failure policy":  {"{failurePolicy: {}}", "{failurePolicy: {restartStrategy: Recreate}}"},
		"claim retention": {"{volumeClaimPolicies: [{}, {retentionPolicy: {}}]}", "{volumeClaimPolicies: [{}, {retentionPolicy: {whenDeleted: Delete}}]}"},
		"embedded metadata": {
			"{replicatedJobs: [{name: oar, replicas: 1, groupName: a, template: {metadata: {name: row, namespace: lab, labels: {a: b}, annotations: {c: d}, finalizers: [e], generateName: g, uid: h}}}]}",
			"{replicatedJobs: [{name: oar, replicas: 1, groupName: a, template: {metadata: {name: row, namespace: lab, labels: {a: b}, annotations: {c: d}, finalizers: [e]}}}]}",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := jobSets.Create(t.Context(), jobSet(t, test.spec), metav1.CreateOptions{})
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
