package all_test

import (
	"math"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	plan "github.com/berth-project/berth/internal/plan/job"
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
			list := descriptors(t)
			d := list[slices.IndexFunc(list, func(d *plan.Descriptor) bool { return d.Framework == tc.framework })]
			var tree map[string]any
			if err := yaml.Unmarshal([]byte("spec: "+tc.spec), &tree); err != nil {
				t.Fatal(err)
			}
			tree["apiVersion"], tree["kind"] = d.GVK.GroupVersion().String(), d.GVK.Kind
			o := d.New()
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, o); err != nil {
				t.Fatal(err)
			}
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
