package all_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
)

// TestCountsSaturate: a number of pods that is a product of two numbers of the user, or that the user wrote with more than
// 32 bits, is the largest number of 32 bits, and never a small or a negative one that would pass every quota.
func TestCountsSaturate(t *testing.T) {
	const container = "template: {spec: {containers: [{name: c, image: i}]}}"
	for name, tc := range map[string]struct {
		framework, spec string
	}{
		"JobSet": {
			"jobset.x-k8s.io/jobset",
			"{replicatedJobs: [{name: a, replicas: 65536, template: {spec: {parallelism: 65536, completions: 65536, " + container + "}}}]}",
		},
		"RayCluster": {
			"ray.io/raycluster",
			"{headGroupSpec: {" + container + "}, workerGroupSpecs: [{groupName: w, replicas: 65536, maxReplicas: 65536, numOfHosts: 65536, " + container + "}]}",
		},
		"RayJob": {
			"ray.io/rayjob",
			"{rayClusterSpec: {headGroupSpec: {" + container + "}, workerGroupSpecs: [{groupName: w, replicas: 65537, maxReplicas: 65537, numOfHosts: 65537, " + container + "}]}}",
		},
		"AppWrapper": {
			"workload.codeflare.dev/appwrapper",
			"{components: [{template: {apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [" +
				"{name: a, replicas: 65536, template: {spec: {parallelism: 65536, " + container + "}}}]}}}]}",
		},
		"more than 32 bits": {
			"kubeflow.org/pytorchjob", "{pytorchReplicaSpecs: {Worker: {replicas: 4294967297, " + container + "}}}",
		},
		"SparkApplication": {"sparkoperator.k8s.io/sparkapplication", "{driver: {}, executor: {instances: 4294967297}}"},
	} {
		t.Run(name, func(t *testing.T) {
			d, o := of(t, tc.framework, "spec: "+tc.spec)
			sets, err := d.PodSets(o, &plan.Setting{Config: &plan.Config{}})
			if err != nil {
				t.Fatal(err)
			}
			most := int32(0)
			for i := range sets {
				most = max(most, sets[i].Count)
			}
			if most != math.MaxInt32 {
				t.Errorf("the largest pod set has %d pods, want %d", most, math.MaxInt32)
			}
		})
	}
}

// TestTooManyChildren: a new job in a queue of which too many objects would be made is refused, with the field and the configured
// maximum; one without a queue is not, nor one that is as large as it was or smaller. The most of all is refused like one too many.
func TestTooManyChildren(t *testing.T) {
	const container = "template: {spec: {containers: [{name: c, image: i}]}}"
	for name, tc := range map[string]struct {
		framework, spec string // of so many
		most            int    // that may be asked for
		field, says     string
	}{
		"Job":         {"batch/job", "spec: {parallelism: %d, " + container + "}", 1000, "spec.parallelism", "1001 pods would be made"},
		"Deployment":  {"deployment", "spec: {replicas: %d, " + container + "}", 1000, "spec.replicas", "1001 pods"},
		"StatefulSet": {"statefulset", "spec: {replicas: %d, " + container + "}", 1000, "spec.replicas", "1001 pods"},
		"JobSet": {
			"jobset.x-k8s.io/jobset",
			"spec: {replicatedJobs: [{name: a, replicas: 400, template: {spec: {parallelism: 5000, " + container + "}}}, {name: b, replicas: %d, template: {spec: {" + container + "}}}]}",
			600, "spec.replicatedJobs[1].replicas", "1001 Jobs",
		},
		"LeaderWorkerSet": {
			"leaderworkerset.x-k8s.io/leaderworkerset", "spec: {replicas: %d, leaderWorkerTemplate: {size: 4, workerTemplate: {spec: {containers: [{name: c, image: i}]}}}}",
			250, "spec.replicas", "1004 pods",
		},
		"LeaderWorkerSet of large groups": {
			"leaderworkerset.x-k8s.io/leaderworkerset", "spec: {replicas: 2, leaderWorkerTemplate: {size: %d, workerTemplate: {spec: {containers: [{name: c, image: i}]}}}}",
			500, "spec.leaderWorkerTemplate.size", "1002 pods",
		},
		"MPIJob": {
			"kubeflow.org/mpijob", "spec: {mpiReplicaSpecs: {Launcher: {" + container + "}, Worker: {replicas: %d, " + container + "}}}",
			999, "spec.mpiReplicaSpecs[Worker].replicas", "1001 pods",
		},
		"PyTorchJob": {
			"kubeflow.org/pytorchjob", "spec: {pytorchReplicaSpecs: {Worker: {replicas: %d, " + container + "}}}",
			1000, "spec.pytorchReplicaSpecs[Worker].replicas", "1001 pods",
		},
		"RayCluster": {
			"ray.io/raycluster", "spec: {headGroupSpec: {rayStartParams: {}, " + container + "}, workerGroupSpecs: [{groupName: w, replicas: %d, minReplicas: 0, maxReplicas: 2147483647, numOfHosts: 9, " + container + "}]}",
			111, "spec.workerGroupSpecs[0].replicas", "1009 pods",
		},
		"RayJob": {
			"ray.io/rayjob", "spec: {shutdownAfterJobFinishes: true, submissionMode: HTTPMode, rayClusterSpec: {headGroupSpec: {rayStartParams: {}, " + container + "}, workerGroupSpecs: [{groupName: w, replicas: %d, maxReplicas: 2147483647, " + container + "}]}}",
			999, "spec.rayClusterSpec.workerGroupSpecs[0].replicas", "1001 pods",
		},
		"RayService": {
			"ray.io/rayservice", "spec: {rayClusterConfig: {headGroupSpec: {rayStartParams: {}, " + container + "}, workerGroupSpecs: [{groupName: w, replicas: %d, maxReplicas: 2147483647, " + container + "}]}}",
			999, "spec.rayClusterConfig.workerGroupSpecs[0].replicas", "1001 pods",
		},
		"SparkApplication": {"sparkoperator.k8s.io/sparkapplication", "spec: {driver: {}, executor: {instances: %d}}", 999, "spec.executor.instances", "1001 pods"},
		"AppWrapper": {
			"workload.codeflare.dev/appwrapper", "spec: {components: [{template: {apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: %d, completions: 2147483647, " + container + "}}}]}",
			1000, "spec.components[0].template.spec.template", "1001 pods",
		},
		"group of pods": {
			"pod", "metadata: {labels: {kueue.x-k8s.io/pod-group-name: g}, annotations: {kueue.x-k8s.io/pod-group-total-count: '%d'}}\nspec: {containers: [{name: c, image: i}]}",
			1000, "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]", "1001 pods",
		},
		"declared": {"crew.example.com/crew", "spec: {roles: {cook: {replicas: %d, " + container + "}}}", 1000, "spec.roles.cook.template", "1001 pods of pod set cook"},
	} {
		t.Run(name, func(t *testing.T) {
			in := &plan.Setting{Config: &plan.Config{MaxChildren: 1000}}
			check := func(n, before int, queue string) string {
				t.Helper()
				d, o := of(t, tc.framework, fmt.Sprintf(tc.spec, n))
				labels := o.GetLabels()
				if labels == nil {
					labels = map[string]string{}
				}
				labels[kueue.QueueNameLabel] = queue
				o.SetLabels(labels)
				var old plan.Object
				if before >= 0 {
					_, old = of(t, tc.framework, fmt.Sprintf(tc.spec, before))
				}
				return fmt.Sprint(in.ValidateSize(d, o, old))
			}
			for what, got := range map[string]string{
				"as many as allowed": check(tc.most, -1, "q"), "no queue": check(tc.most+1, -1, ""), "as many as before": check(math.MaxInt32, math.MaxInt32, "q"),
				"fewer than before": check(tc.most+1, tc.most+2, "q"),
			} {
				if got != "[]" {
					t.Errorf("%s: %s", what, got)
				}
			}
			if got := check(tc.most+1, -1, "q"); !strings.HasPrefix(got, "["+tc.field+": Invalid value: ") || !strings.Contains(got, tc.says) || !strings.Contains(got, "integrations.maxChildren allows 1000") {
				t.Errorf("one too many: %s, want %s and %q", got, tc.field, tc.says)
			}
			for what, got := range map[string]string{"the most": check(math.MaxInt32, -1, "q"), "more than before": check(tc.most+2, tc.most+1, "q")} {
				if !strings.HasPrefix(got, "["+tc.field+": Invalid value: ") {
					t.Errorf("%s: %s", what, got)
				}
			}
		})
	}
}

// of is an object of a kind, without its apiVersion and kind.
func of(t *testing.T, framework, text string) (*plan.Descriptor, plan.Object) {
	t.Helper()
	list := descriptors(t)
	d := list[slices.IndexFunc(list, func(d *plan.Descriptor) bool { return d.Framework == framework })]
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	tree["apiVersion"], tree["kind"] = d.GVK.GroupVersion().String(), d.GVK.Kind
	o := d.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, o); err != nil {
		t.Fatal(err)
	}
	return d, o
}

// TestTooManyPodSets: a job that enters its queue with more pod sets than a Workload takes is refused, with the field of the first that
// is too many. A stored job may change, and one of an owner may be counted there.
func TestTooManyPodSets(t *testing.T) {
	const container = "template: {spec: {containers: [{name: c, image: i}]}}"
	for name, tc := range map[string]struct{ framework, spec, one, field string }{
		"JobSet":     {"jobset.x-k8s.io/jobset", "replicatedJobs: [%s]", "{name: r%d, template: {spec: {" + container + "}}}", "spec.replicatedJobs[18].replicas"},
		"AppWrapper": {"workload.codeflare.dev/appwrapper", "components: [%s]", "{template: {apiVersion: v1, kind: Pod, metadata: {name: p%d}}}", "spec.components[18].template"},
		"declared":   {"crew.example.com/crew", "roles: {%s}", "r%02d: {" + container + "}", "spec.roles.r18.template"},
	} {
		t.Run(name, func(t *testing.T) {
			in := &plan.Setting{Config: &plan.Config{Kinds: plan.Kinds{appsv1.SchemeGroupVersion.WithKind("Deployment"): true}}}
			job := func(n int, queue string) (*plan.Descriptor, plan.Object) {
				var parts []string
				for i := range n {
					parts = append(parts, fmt.Sprintf(tc.one, i))
				}
				d, o := of(t, tc.framework, "spec: {"+fmt.Sprintf(tc.spec, strings.Join(parts, ", "))+"}")
				o.SetLabels(map[string]string{kueue.QueueNameLabel: queue})
				return d, o
			}
			d, many := job(19, "q")
			_, unqueued := job(19, "")
			_, most := job(18, "q")
			_, owned := job(19, "q")
			owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "d", Controller: new(true)}})
			for what, step := range map[string]struct {
				o, old plan.Object
				want   string
			}{
				"new": {many, nil, tc.field + ": Forbidden: the job has 19 pod sets: a workload takes 1 to 18"}, "as many as may be": {most, nil, ""},
				"in no queue": {unqueued, nil, ""}, "enters a queue": {many, unqueued, tc.field + ": Forbidden: the job has 19 pod sets: a workload takes 1 to 18"},
				"in a queue already": {many, many, ""}, "owned": {owned, nil, ""},
			} {
				got := ""
				if errs := in.ValidatePodSets(d, step.o, step.old); len(errs) > 0 {
					got = errs.ToAggregate().Error()
				}
				if got != step.want {
					t.Errorf("%s: %q, want %q", what, got, step.want)
				}
			}
		})
	}
}
