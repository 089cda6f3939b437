package controller_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/placement/ungate"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// TestElasticRayKilledAtAnyWrite takes an elastic RayCluster, and a RayJob whose cluster scales by itself, through their lives:
// they run, grow, shrink and are preempted, with the manager killed at each of its writes in turn and started again. No pod ever runs
// without quota, and no slice is made twice.
func TestElasticRayKilledAtAnyWrite(t *testing.T) {
	for _, kind := range []string{"RayCluster", "RayJob"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			embeddedtest.AtEveryWrite(t, 9, func(t *testing.T, m *embeddedtest.Mortal) {
				(&rayLife{world: newMortalWorld(t, m), kind: kind}).live()
			})
		})
	}
}

// newMortalWorld is a world of Ray's kinds with a manager that dies, and another one after it.
func newMortalWorld(t *testing.T, m *embeddedtest.Mortal) *world {
	t.Helper()
	cfg := defaultConfig()
	cfg.ElasticJobs = true
	for _, kind := range []string{"RayCluster", "RayJob"} {
		cfg.Kinds[schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: kind}] = true
	}
	w := newStoppedWorld(t, cfg)
	w.rayCRDs()
	w.until("the kinds are served", func() error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("ray.io/v1")
		list.SetKind("RayJobList")
		return w.c.List(w.ctx, list)
	})
	plain := w.rest
	w.setup = func(mgr ctrl.Manager) error {
		return ungate.Setup(w.ctx, mgr, ungate.Options{Config: cfg, Now: time.Now})
	}
	w.rest = rest.CopyConfig(plain)
	w.rest.Wrap(m.Wrap)
	w.start()
	w.revive = func() {
		m.Revive(func() {
			w.stop()
			w.rest = plain
			w.start()
		})
	}
	return w
}

// rayLife is that of one job of Ray's. The test plays KubeRay.
type rayLife struct {
	*world
	kind         string
	job, cluster *unstructured.Unstructured // the same of a RayCluster
}

const gatedTemplate = "{spec: {schedulingGates: [{name: kueue.x-k8s.io/elastic-job}], containers: [{name: c, image: ray, resources: {requests: {cpu: 1}}}]}}"

func (l *rayLife) live() {
	l.t.Helper()
	l.begin()
	first := l.world.live(1)[0]
	l.admit(first)
	l.isSuspended(false)
	l.makeCluster()
	l.pods("a")
	l.expectFree("a")

	l.scale(3)
	l.pods("b", "c")
	both := l.world.live(2)
	second := both[slices.IndexFunc(both, func(x *kueue.Workload) bool { return x.UID != first.UID })]
	if second.Spec.PodSets[1].Count != 3 || chain.Replaces(second) != first.Name {
		l.t.Errorf("slice %v of %v", second.Annotations, second.Spec.PodSets)
	}
	if got := l.free(); !slices.Equal(got, []string{"a"}) {
		l.t.Errorf("%v have no gate before they are admitted", got)
	}
	l.admit(second)
	l.expectFree("a", "b", "c")
	if left := l.world.live(1)[0]; left.UID != second.UID {
		l.t.Errorf("left is %s", left.Name)
	}

	l.scale(1)
	l.deletePods("b", "c")
	l.until("the slice shrinks", func() error {
		if got := l.get(second).Spec.PodSets[1].Count; got != 1 {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
	l.evict(second)
	l.isSuspended(true)
	if l.kind == "RayJob" { // which says so as soon as its cluster is gone
		l.must(l.c.Delete(l.ctx, l.cluster))
		l.status(l.job, map[string]any{"jobDeploymentStatus": "Suspended"})
		l.waitUntilStable()
	}
	if !lifecycle.IsReserved(l.get(second)) {
		l.t.Error("the quota is given back while a pod runs")
	}
	l.deletePods("a")
	l.status(l.job, map[string]any{"state": "suspended", "jobDeploymentStatus": "Suspended"})
	l.until("the quota is given back", func() error {
		if lifecycle.IsReserved(l.get(second)) {
			return fmt.Errorf("%v", conditionTypes(l.get(second)))
		}
		return nil
	})
	l.waitUntilStable()
	if left := l.world.live(1)[0]; left.UID != second.UID {
		l.t.Errorf("left is %s", left.Name)
	}
	var list kueue.WorkloadList
	l.must(l.c.List(l.ctx, &list, client.InNamespace(l.namespace)))
	if len(list.Items) != 2 {
		l.t.Errorf("%d workloads were made, want 2", len(list.Items))
	}
}

// begin makes the job, as the webhook leaves it.
func (l *rayLife) begin() {
	l.t.Helper()
	template := gatedTemplate
	if l.kind == "RayJob" {
		template = rayTemplate // the webhook gates that of its cluster
	}
	cluster := "enableInTreeAutoscaling: true, headGroupSpec: {template: " + template + "}, workerGroupSpecs: [{groupName: big, replicas: 1, template: " + template + "}]"
	spec := "suspend: true, " + cluster
	if l.kind == "RayJob" {
		spec = "suspend: true, submissionMode: HTTPMode, shutdownAfterJobFinishes: true, rayClusterSpec: {" + cluster + "}"
	}
	l.job = l.parse("{apiVersion: ray.io/v1, kind: " + l.kind + ", metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: lq}, annotations: {kueue.x-k8s.io/elastic-job: \"true\"}}, spec: {" + spec + "}}")
	l.cluster = l.job
	l.create(l.job)
}

func (l *rayLife) isSuspended(want bool) {
	l.t.Helper()
	l.until(fmt.Sprintf("suspended is %v", want), func() error {
		l.must(l.c.Get(l.ctx, client.ObjectKeyFromObject(l.job), l.job))
		if got, _, _ := unstructured.NestedBool(l.job.Object, "spec", "suspend"); got != want {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}

func (l *rayLife) status(o *unstructured.Unstructured, status map[string]any) {
	l.t.Helper()
	embeddedtest.EditStatus(l.t, l.c, o, func(o *unstructured.Unstructured) { o.Object["status"] = status })
}

// makeCluster makes the cluster of a RayJob, which is started.
func (l *rayLife) makeCluster() {
	l.t.Helper()
	if l.kind == "RayJob" {
		l.cluster = l.parse("{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: j-abc, labels: {kueue.x-k8s.io/queue-name: lq}, annotations: {kueue.x-k8s.io/elastic-job: \"true\"}}}")
		l.cluster.Object["spec"], _, _ = unstructured.NestedMap(l.job.Object, "spec", "rayClusterSpec")
		l.cluster.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(l.job, l.job.GroupVersionKind())})
		l.create(l.cluster)
	}
	l.status(l.job, map[string]any{"state": "ready", "rayClusterName": "j-abc", "jobDeploymentStatus": "Running"})
}

func (l *rayLife) group() map[string]any {
	groups, _, _ := unstructured.NestedSlice(l.cluster.Object, "spec", "workerGroupSpecs")
	return groups[0].(map[string]any)
}

// scale is Ray's autoscaler.
func (l *rayLife) scale(n int64) {
	l.t.Helper()
	l.change(l.cluster, func(o map[string]any) {
		g := l.group()
		g["replicas"] = n
		_ = unstructured.SetNestedSlice(o, []any{g}, "spec", "workerGroupSpecs")
	})
}

func (l *rayLife) pods(names ...string) {
	l.t.Helper()
	labels, _, _ := unstructured.NestedStringMap(l.group(), "template", "metadata", "labels")
	annotations, _, _ := unstructured.NestedStringMap(l.group(), "template", "metadata", "annotations")
	labels["ray.io/cluster"] = l.cluster.GetName()
	for _, name := range names {
		l.create(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: l.namespace, Labels: labels, Annotations: annotations,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(l.cluster, l.cluster.GroupVersionKind())},
			},
			Spec: corev1.PodSpec{
				SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.ElasticJobSchedulingGate}},
				Containers:      []corev1.Container{{Name: "c", Image: "ray"}},
			},
		})
	}
}

func (l *rayLife) deletePods(names ...string) {
	l.t.Helper()
	for _, name := range names {
		l.must(client.IgnoreNotFound(l.c.Delete(l.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: l.namespace}}, client.GracePeriodSeconds(0))))
	}
}
