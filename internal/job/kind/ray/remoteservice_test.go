package ray_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/ray"
	rayplan "github.com/berth-project/berth/internal/job/kind/ray/plan"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// sent is a service that runs on another cluster, or its copy there.
func sent(t *testing.T, elastic bool, spec string) view.Object {
	t.Helper()
	o := parse(t, "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: s, namespace: n, uid: u, annotations: {a: b}}\nspec: {"+spec+"}")
	if elastic {
		o.SetAnnotations(map[string]string{kueue.ElasticJobAnnotation: "true"})
	}
	return o
}

// serving is the spec of a cluster with two workers that run an image.
func serving(image string, more ...string) string {
	return "suspend: true, rayVersion: '2', headGroupSpec: {template: {spec: {schedulingGates: [{name: kueue.x-k8s.io/elastic-job}], containers: [{name: h, image: x}]}}}, " +
		"workerGroupSpecs: [{groupName: w, replicas: 2, minReplicas: 0, maxReplicas: 9, template: {spec: {schedulingGates: [{name: kueue.x-k8s.io/elastic-job}], containers: [{name: c, image: " + image +
		"}]}}}]" + strings.Join(more, "")
}

// TestFollow: the changes of a service that are forwarded to its copy, and when (spec: 30 §4.10.3, Limitation 3, 1 to 3 and 6).
func TestFollow(t *testing.T) {
	const local, top = "managedBy: kueue.x-k8s.io/multikueue, suspend: false, ", "suspend: false, "
	slice := func(n int32) *kueue.Workload {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "wl", UID: "wl", Annotations: map[string]string{kueue.ElasticJobAnnotation: "true"}}}
		a := &kueue.Admission{ClusterQueue: "q"}
		for i, name := range []kueue.PodSetReference{"head", "w"} {
			sets, err := ray.Service(ray.Settings{}).PodSets(sent(t, false, "rayClusterConfig: {"+serving("one")+"}"), &plan.Setting{Config: &plan.Config{}})
			if err != nil {
				t.Fatal(err)
			}
			set := sets[i]
			set.Count *= n
			w.Spec.PodSets = append(w.Spec.PodSets, set)
			a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{Name: name, Count: new(set.Count)})
		}
		lifecycle.Machine{}.Reserve(w, a, nil, metav1.Now())
		return w
	}
	tests := map[string]struct {
		bare, ungated bool // not elastic, and without the feature gate for immediate changes
		ours, theirs  string
		by            *kueue.Workload
		want          string // the spec of the copy, empty if it stays
	}{
		"nothing new": {ours: "rayClusterConfig: {" + serving("one") + "}", theirs: "rayClusterConfig: {" + serving("one") + "}", by: slice(1)},
		"serveConfigV2 at once, without quota": {
			ours: "serveConfigV2: b, rayClusterConfig: {" + serving("two") + "}", theirs: "serveConfigV2: a, rayClusterConfig: {" + serving("one") + "}",
			want: "serveConfigV2: b, rayClusterConfig: {" + serving("one") + "}",
		},
		"what is gone": {
			ours: "rayClusterConfig: {" + serving("one") + "}", theirs: "rayClusterDeletionDelaySeconds: 5, rayClusterConfig: {" + serving("one") + "}",
			want: "rayClusterConfig: {" + serving("one") + "}",
		},
		"not without the gate": {
			ungated: true, ours: "serveConfigV2: b, rayClusterConfig: {" + serving("one") + "}", theirs: "serveConfigV2: a, rayClusterConfig: {" + serving("one") + "}", by: slice(1),
		},
		"an upgrade waits for its slice": {
			ours: "rayClusterConfig: {" + serving("two") + "}", theirs: "rayClusterConfig: {" + serving("one") + "}", by: slice(1),
		},
		"and for the worker": {
			ours: "rayClusterConfig: {" + serving("two") + "}", theirs: "rayClusterConfig: {" + serving("one") + "}",
		},
		"and goes then": {
			ours: "rayClusterConfig: {" + serving("two") + "}", theirs: "rayClusterConfig: {" + serving("one") + "}", by: slice(2),
			want: "rayClusterConfig: {" + serving("two") + "}",
		},
		"fewer replicas need nothing": {
			ours: "rayClusterConfig: {" + strings.Replace(serving("two"), "replicas: 2", "replicas: 1", 1) + "}", theirs: "rayClusterConfig: {" + serving("one") + "}", by: slice(1),
			want: "rayClusterConfig: {" + strings.Replace(serving("one"), "replicas: 2", "replicas: 1", 1) + "}",
		},
		"the strategy None starts nothing": {
			ours: "upgradeStrategy: {type: None}, rayClusterConfig: {" + serving("two") + "}", theirs: "rayClusterConfig: {" + serving("one") + "}", by: slice(1),
			want: "upgradeStrategy: {type: None}, rayClusterConfig: {" + serving("two") + "}",
		},
		"one that does waits": {
			ours: "rayClusterConfig: {" + serving("two") + "}", theirs: "upgradeStrategy: {type: None}, rayClusterConfig: {" + serving("two") + "}", by: slice(1),
		},
		"what the worker holds stays so": {
			ours: "rayClusterConfig: {" + strings.Replace(serving("two"), "suspend: true", "suspend: false", 1) + "}", theirs: "rayClusterConfig: {" + serving("one") + "}", by: slice(2),
			want: "rayClusterConfig: {" + serving("two") + "}",
		},
		"not elastic: all but templates": {
			bare: true, ours: "rayClusterConfig: {" + strings.Replace(serving("hub"), "'2'", "'3'", 1) + "}", theirs: "rayClusterConfig: {" + serving("worker") + "}", by: slice(1),
			want: "rayClusterConfig: {" + strings.Replace(serving("worker"), "'2'", "'3'", 1) + "}",
		},
		"not elastic: another size stops it here": {
			bare: true, ours: "rayClusterConfig: {" + strings.Replace(serving("one"), "replicas: 2", "replicas: 3", 1) + "}", theirs: "rayClusterConfig: {" + serving("one") + "}", by: slice(1),
		},
	}
	child := parse(t, "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: s-c1, uid: c1}\nspec: {"+strings.Replace(serving("one"), "suspend: true", "suspend: false", 1)+"}")
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ours, theirs := sent(t, !tc.bare, local+tc.ours), sent(t, !tc.bare, top+tc.theirs)
			theirs.Object["status"] = map[string]any{"activeServiceStatus": map[string]any{"rayClusterName": "s-c1"}}
			in := &plan.Setting{Config: &plan.Config{ElasticJobs: true}, Children: []plan.Object{child}, Pods: []*corev1.Pod{}}
			if tc.by != nil {
				in.Workloads = []*kueue.Workload{tc.by}
			}
			want := theirs.DeepCopy()
			if tc.want != "" {
				want.Object["spec"] = sent(t, false, top+tc.want).Object["spec"]
			}
			d := ray.Service(ray.Settings{Gating: true, Forward: !tc.ungated})
			localChanged, changed, err := d.Remote.Follow(ours, theirs, tc.by, in)
			if diff := cmp.Diff(want.Object, theirs.Object); err != nil || changed != (tc.want != "") || diff != "" {
				t.Errorf("changed %v, %v, -want +got:\n%s", changed, err, diff)
			}
			if has := ours.GetAnnotations()[rayplan.ClustersAnnotation] != ""; localChanged == tc.bare || has == tc.bare {
				t.Errorf("told %v: %v", localChanged, ours.GetAnnotations())
			}
			if localChanged, changed, err = d.Remote.Follow(ours, theirs, tc.by, in); localChanged || changed || err != nil {
				t.Errorf("it does not settle: %v, %v, %v", localChanged, changed, err)
			}
		})
	}
}

// TestRemoteServiceStops: the mirrored counts of clusters are removed when the service stops, and when it starts, and are not
// copied.
func TestRemoteServiceStops(t *testing.T) {
	d := ray.Service(ray.Settings{Gating: true})
	service := func() view.Object {
		o := sent(t, true, "managedBy: kueue.x-k8s.io/multikueue, rayClusterConfig: {"+serving("one")+"}")
		o.SetAnnotations(map[string]string{kueue.ElasticJobAnnotation: "true", rayplan.ClustersAnnotation: "[]"})
		return o
	}
	in := &plan.Setting{Config: &plan.Config{ElasticJobs: true}}
	for name, do := range map[string]func(view.Object){
		"stop": func(o view.Object) { d.Suspend(o) }, "start": func(o view.Object) { d.ManagedChildren.Upgrades.Start(o, in) }, "copy": func(o view.Object) { d.Remote.Prepare(o.Object) },
	} {
		o := service()
		if do(o); o.GetAnnotations()[rayplan.ClustersAnnotation] != "" {
			t.Errorf("%s: %v", name, o.GetAnnotations())
		}
	}
	if a := d.ManagedChildren.Upgrades.Step(&plan.Observed{Job: service()}, in); a != nil {
		t.Errorf("the manager does %+v, which is the worker's", a)
	}
}
