package webhook

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/all"
)

// TestPodsWithoutPlace is acceptance example 25 of spec 20 §7: the answer to the creation of a queued job, of whatever kind, warns of pods
// that fill no slice. The job is not refused.
func TestPodsWithoutPlace(t *testing.T) {
	const sliced = "metadata: {annotations: {kueue.x-k8s.io/podset-slice-required-topology: rack, kueue.x-k8s.io/podset-slice-size: '3'}}, spec: {containers: [{name: c}]}"
	template := "template: {" + sliced + "}"
	// Each has 7 pods.
	manifests := map[string]string{
		"batch/job":               "spec: {suspend: true, parallelism: 7, completions: 7, " + template + "}",
		"jobset.x-k8s.io/jobset":  "spec: {suspend: true, replicatedJobs: [{name: w, replicas: 7, template: {spec: {parallelism: 1, completions: 1, " + template + "}}}]}",
		"ray.io/raycluster":       "spec: {suspend: true, headGroupSpec: {template: {spec: {containers: [{name: c}]}}}, workerGroupSpecs: [{groupName: w, replicas: 7, minReplicas: 7, maxReplicas: 7, " + template + "}]}",
		"kubeflow.org/pytorchjob": "spec: {runPolicy: {suspend: true}, pytorchReplicaSpecs: {Worker: {replicas: 7, " + template + "}}}",
		"statefulset":             "spec: {replicas: 7, " + template + "}",

		"leaderworkerset.x-k8s.io/leaderworkerset": "spec: {replicas: 1, leaderWorkerTemplate: {size: 7, workerTemplate: {" + sliced + "}}}",
	}
	seen := 0
	for _, d := range all.Descriptors() {
		manifest, ok := manifests[d.Framework]
		if !ok {
			continue
		}
		seen++
		for name, tc := range map[string]struct {
			change    func(string) string
			operation admissionv1.Operation
			warned    bool
		}{
			"seven pods":                {func(s string) string { return s }, admissionv1.Create, true},
			"six pods":                  {func(s string) string { return strings.ReplaceAll(s, "7", "6") }, admissionv1.Create, false},
			"seven pods, not queued":    {func(s string) string { return strings.ReplaceAll(s, "queue-name", "other") }, admissionv1.Create, false},
			"they were there before":    {func(s string) string { return s }, admissionv1.Update, false},
			"in a namespace off limits": {func(s string) string { return strings.ReplaceAll(s, "ns,", "free,") }, admissionv1.Create, false},
		} {
			t.Run(d.Framework+", "+name, func(t *testing.T) {
				text := tc.change("metadata: {name: train, namespace: ns, labels: {kueue.x-k8s.io/queue-name: q}}\n" + manifest)
				raw, err := yaml.YAMLToJSON([]byte("apiVersion: " + d.GVK.GroupVersion().String() + "\nkind: " + d.GVK.Kind + "\n" + text))
				if err != nil {
					t.Fatal(err)
				}
				labels := map[string]string{"managed": "yes"}
				req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
					Kind: metav1.GroupVersionKind(d.GVK), Operation: tc.operation, Name: "train", Namespace: "ns",
				}}
				if strings.Contains(text, "namespace: free") {
					req.Namespace, labels = "free", nil
				}
				req.Object.Raw = raw
				if tc.operation == admissionv1.Update {
					req.OldObject.Raw = raw
				}
				s := gateServer(d, namespaces{labels: labels})
				s.o.Jobs.ManageAll = false
				answer := s.ofKind(d)[1].Handler().Handle(t.Context(), req)
				if !answer.Allowed {
					t.Fatalf("refused: %v", answer.Result)
				}
				told := strings.Join(answer.Warnings, "\n")
				if warned := strings.Contains(told, "7 pods are no multiple of the slice size 3: 1 of them will have quota but no place"); warned != tc.warned {
					t.Errorf("warnings: %q", told)
				}
			})
		}
	}
	if seen != len(manifests) {
		t.Errorf("%d of %d kinds exist", seen, len(manifests))
	}
}

// TestStoredJobBreaksRule: a setting that changes after a job is stored does not keep the job from being stopped. What the job does not
// have yet is refused.
func TestStoredJobBreaksRule(t *testing.T) {
	const layers = "metadata: {annotations: {kueue.x-k8s.io/podset-slice-required-topology-constraints: '[{\"topology\":\"rack\",\"size\":2}]'}}"
	const slices = "metadata: {annotations: {kueue.x-k8s.io/podset-slice-required-topology: rack, kueue.x-k8s.io/podset-slice-size: '12'}}"
	of := func(metadata string) string { return "template: {" + metadata + ", spec: {containers: [{name: c}]}}" }
	batchJob := func(metadata string) string {
		return "spec: {suspend: false, parallelism: 8, completions: 8, " + of(metadata) + "}"
	}
	jobSet := func(metadata string) string {
		return "spec: {suspend: false, replicatedJobs: [{name: w, replicas: 8, template: {spec: {parallelism: 1, completions: 1, " + of(metadata) + "}}}]}"
	}
	ray := "spec: {suspend: false, enableInTreeAutoscaling: true, headGroupSpec: {template: {spec: {containers: [{name: c}]}}}}"
	replace := func(pairs ...string) func(string) string { return strings.NewReplacer(pairs...).Replace }
	stop := replace("suspend: false", "suspend: true")
	for name, tc := range map[string]struct {
		framework, manifest string
		old, change         func(string) string
		refused             bool
	}{
		"a stop, gate off":           {"batch/job", batchJob(layers), nil, stop, false},
		"a stop, size":               {"batch/job", batchJob(slices), nil, stop, false},
		"a stop, view":               {"jobset.x-k8s.io/jobset", jobSet(layers), nil, stop, false},
		"a stop, view, size":         {"jobset.x-k8s.io/jobset", jobSet(slices), nil, stop, false},
		"a stop, another rule":       {"ray.io/raycluster", ray, nil, stop, false},
		"a finalizer":                {"batch/job", batchJob(layers), nil, replace("namespace: ns,", "namespace: ns, finalizers: [a.io/b],"), false},
		"as many pods as it may":     {"batch/job", batchJob(slices), nil, replace(": 8", ": 7"), false},
		"another value":              {"batch/job", batchJob(layers), nil, replace(`"size":2`, `"size":4`, "suspend: false", "suspend: true"), true},
		"another value of the size":  {"batch/job", batchJob(slices), nil, replace("'12'", "'13'"), true},
		"another value, view":        {"jobset.x-k8s.io/jobset", jobSet(slices), nil, replace("'12'", "'13'"), true},
		"fewer pods than the slice":  {"batch/job", batchJob(slices), replace(": 8", ": 12"), replace(": 8", ": 11"), true},
		"it enters its queue":        {"batch/job", batchJob(layers), replace("queue-name", "other"), replace("false", "true"), true},
		"it enters its queue, view":  {"jobset.x-k8s.io/jobset", jobSet(layers), replace("queue-name", "other"), replace("false", "true"), true},
		"the autoscaler is added":    {"ray.io/raycluster", ray, replace("Autoscaling: true", "Autoscaling: false"), replace(), true},
		"it is not queued, and runs": {"batch/job", batchJob(layers), replace("queue-name", "other"), replace("queue-name", "other", "ns,", "ns, finalizers: [a.io/b],"), false},
	} {
		t.Run(name, func(t *testing.T) {
			d := descriptor(t, tc.framework)
			manifest := func(change func(string) string) []byte {
				text := "metadata: {name: train, namespace: ns, labels: {kueue.x-k8s.io/queue-name: q}}\n" + tc.manifest
				if change != nil {
					text = change(text)
				}
				raw, err := yaml.YAMLToJSON([]byte("apiVersion: " + d.GVK.GroupVersion().String() + "\nkind: " + d.GVK.Kind + "\n" + text))
				if err != nil {
					t.Fatal(err)
				}
				return raw
			}
			req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Kind: metav1.GroupVersionKind(d.GVK), Operation: admissionv1.Update, Name: "train", Namespace: "ns",
			}}
			req.Object.Raw, req.OldObject.Raw = manifest(tc.change), manifest(tc.old)
			s := gateServer(d, namespaces{labels: map[string]string{"managed": "yes"}})
			s.o.Jobs.ManageAll = false
			if answer := s.ofKind(d)[1].Handler().Handle(t.Context(), req); answer.Allowed == tc.refused {
				t.Errorf("allowed: %t, %v", answer.Allowed, answer.Result)
			}
		})
	}
}

func descriptor(t *testing.T, framework string) *job.Descriptor {
	t.Helper()
	for _, d := range all.Descriptors() {
		if d.Framework == framework {
			return d
		}
	}
	t.Fatalf("no kind %s", framework)
	return nil
}
