package all_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
)

// TestLongNames: a queued job is refused if something that is named after it would get too long a name, with the limit and the
// length; one that is a character shorter is not, nor one without a queue, nor one that exists already.
func TestLongNames(t *testing.T) {
	const container = "template: {spec: {containers: [{name: c, image: i}]}}"
	for name, tc := range map[string]struct {
		framework, spec string
		longest         int
		says            string
	}{
		"MPIJob": {
			"kubeflow.org/mpijob", "{mpiReplicaSpecs: {Launcher: {" + container + "}, Worker: {replicas: 11, " + container + "}}}",
			63 - len("-worker-10"), "-worker-10, would have 64 characters and may have 63",
		},
		"RayCluster": {"ray.io/raycluster", "{headGroupSpec: {rayStartParams: {}, " + container + "}}", 53, "would have 54 characters and may have 53"},
		"RayJob": {
			"ray.io/rayjob", "{shutdownAfterJobFinishes: true, rayClusterSpec: {headGroupSpec: {rayStartParams: {}, " + container + "}}}",
			47, "would have 48 characters and may have 47",
		},
		"RayService": {"ray.io/rayservice", "{rayClusterConfig: {headGroupSpec: {rayStartParams: {}, " + container + "}}}", 47, "would have 48 characters and may have 47"},
		"StatefulSet": {
			"statefulset", "{replicas: 1, template: {metadata: {annotations: {kueue.x-k8s.io/pod-suspending-parent: statefulset}}, spec: {containers: [{name: c, image: i}]}}}",
			63 - len("-00000000"), "would have 64 characters and may have 63",
		},
		"LeaderWorkerSet": {
			"leaderworkerset.x-k8s.io/leaderworkerset",
			"{replicas: 11, leaderWorkerTemplate: {size: 2, workerTemplate: {metadata: {annotations: {kueue.x-k8s.io/pod-suspending-parent: leaderworkerset.x-k8s.io/leaderworkerset}}, spec: {containers: [{name: c, image: i}]}}}}",
			63 - len("-10-00000000"), "-10-00000000, would have 64 characters and may have 63",
		},
	} {
		t.Run(name, func(t *testing.T) {
			list := descriptors(t)
			d := list[slices.IndexFunc(list, func(d *plan.Descriptor) bool { return d.Framework == tc.framework })]
			check := func(length int, generated bool, queue string, exists bool) string {
				t.Helper()
				var tree map[string]any
				if err := yaml.Unmarshal([]byte("spec: "+tc.spec), &tree); err != nil {
					t.Fatal(err)
				}
				tree["apiVersion"], tree["kind"] = d.GVK.GroupVersion().String(), d.GVK.Kind
				o := d.New()
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, o); err != nil {
					t.Fatal(err)
				}
				o.SetName(strings.Repeat("n", length))
				if generated {
					o.SetName("")
					o.SetGenerateName(strings.Repeat("n", length-5))
				}
				o.SetLabels(map[string]string{kueue.QueueNameLabel: queue})
				var old plan.Object
				if exists {
					old = o.DeepCopyObject().(plan.Object)
				}
				if errs := d.Validate(o, old, &plan.Setting{Config: &plan.Config{}}); len(errs) > 0 {
					return errs.ToAggregate().Error()
				}
				return ""
			}
			for _, generated := range []bool{false, true} {
				if got := check(tc.longest, generated, "lq", false); got != "" {
					t.Errorf("%d characters (generated: %v): %s", tc.longest, generated, got)
				}
				if got := check(tc.longest+1, generated, "lq", false); !strings.Contains(got, "metadata.name: ") || !strings.Contains(got, tc.says) {
					t.Errorf("%d characters (generated: %v): %q", tc.longest+1, generated, got)
				}
			}
			if got := check(tc.longest+1, false, "", false) + check(tc.longest+1, false, "lq", true); got != "" {
				t.Errorf("without a queue, or changed: %s", got)
			}
		})
	}
}
