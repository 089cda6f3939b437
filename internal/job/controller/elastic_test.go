package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/job"
	batchjob "github.com/berth-project/berth/internal/job/kind/job"
	"github.com/berth-project/berth/internal/placement/ungate"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// rayCRDs makes kinds that hold anything, as KubeRay's do, with a status of their own.
func (w *world) rayCRDs() {
	w.t.Helper()
	for kind, plural := range map[string]string{"RayCluster": "rayclusters", "RayJob": "rayjobs"} {
		w.must(client.IgnoreAlreadyExists(w.c.Create(w.ctx, embeddedtest.LooseCRD(schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: kind}, plural))))
	}
}

func (w *world) parse(text string) *unstructured.Unstructured {
	w.t.Helper()
	o := &unstructured.Unstructured{}
	w.must(yaml.Unmarshal([]byte(text), &o.Object))
	o.SetNamespace(w.namespace)
	return o
}

// live waits until so many slices of the namespace are live, and returns them, the oldest first.
func (w *world) live(n int) []*kueue.Workload {
	w.t.Helper()
	var live []*kueue.Workload
	w.until(fmt.Sprintf("%d slices are live", n), func() error {
		var list kueue.WorkloadList
		w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
		var all []*kueue.Workload
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
		if live = chain.Live(all); len(live) != n {
			return fmt.Errorf("%d are", len(live))
		}
		return nil
	})
	return live
}

// free lists the pods without the gate.
func (w *world) free() []string {
	w.t.Helper()
	var list corev1.PodList
	w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
	var out []string
	for i := range list.Items {
		if len(list.Items[i].Spec.SchedulingGates) == 0 {
			out = append(out, list.Items[i].Name)
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) expectFree(want ...string) {
	w.t.Helper()
	w.until(fmt.Sprintf("%v have no gate", want), func() error {
		if got := w.free(); !slices.Equal(got, want) {
			return fmt.Errorf("%v have none", got)
		}
		return nil
	})
}

// change edits an object of any kind.
func (w *world) change(o *unstructured.Unstructured, edit func(map[string]any)) {
	w.t.Helper()
	embeddedtest.Edit(w.t, w.c, o, func(o *unstructured.Unstructured) { edit(o.Object) })
}

// TestChildrenServedLate: a change of a child reconciles its job, also if the API server begins to serve the kind of the child after that of the job.
func TestChildrenServedLate(t *testing.T) {
	t.Parallel()
	part := schema.GroupVersionKind{Group: "late.example.com", Version: "v1", Kind: "Part"}
	d := batchjob.Descriptor()
	d.Elastic = &job.Elastic{Children: []schema.GroupVersionKind{part}}
	var described atomic.Bool
	podSets := d.PodSets
	d.PodSets = func(o job.Object, in *job.Setting) ([]kueue.PodSet, error) {
		if !described.Load() {
			return nil, errors.New("its parts are not known")
		}
		return podSets(o, in)
	}
	w := newStoppedWorld(t, defaultConfig())
	w.kinds = []*job.Descriptor{d}
	w.start()
	j := w.newJob("whole")
	w.create(j)
	w.until("its pod sets cannot be made", func() error {
		if got := w.events("whole"); !slices.Contains(got, "ErrWorkloadCompose") {
			return fmt.Errorf("events %v", got)
		}
		return nil
	})
	described.Store(true)
	w.create(embeddedtest.LooseCRD(part, "parts"))
	o := w.parse("{apiVersion: late.example.com/v1, kind: Part, metadata: {name: part, annotations: {kueue.x-k8s.io/elastic-job: \"true\"}}}")
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(j, d.GVK)})
	w.until("the kind of its children is served", func() error { return w.c.Create(w.ctx, o.DeepCopy()) })
	w.workloadOf(j)
}

const rayTemplate = "{spec: {containers: [{name: c, image: ray, resources: {requests: {cpu: 1}}}]}}"

// TestRayJobScalesByItself plays KubeRay and its autoscaler: the workers that the cluster wants are counted in a new slice, and
// their pods wait for it.
func TestRayJobScalesByItself(t *testing.T) {
	t.Parallel()
	cfg := defaultConfig()
	cfg.ElasticJobs = true
	for _, kind := range []string{"RayCluster", "RayJob"} {
		cfg.Kinds[schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: kind}] = true
	}
	w := newWorld(t, cfg)
	w.rayCRDs()
	w.stop()
	w.setup = func(mgr ctrl.Manager) error {
		return ungate.Setup(w.ctx, mgr, ungate.Options{Config: cfg, Now: time.Now})
	}
	w.until("the kinds are served", func() error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("ray.io/v1")
		list.SetKind("RayJobList")
		return w.c.List(w.ctx, list)
	})
	w.start()
	spec := "{enableInTreeAutoscaling: true, headGroupSpec: {template: " + rayTemplate + "}, workerGroupSpecs: [{groupName: big, replicas: 1, template: " + rayTemplate + "}]}"
	j := w.parse("{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: lq}, annotations: {kueue.x-k8s.io/elastic-job: \"true\"}}, " +
		"spec: {suspend: true, submissionMode: HTTPMode, shutdownAfterJobFinishes: true, rayClusterSpec: " + spec + "}}")
	w.create(j)
	first := w.live(1)[0]
	w.admit(first)
	w.until("the job is started", func() error {
		w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(j), j))
		if suspended, _, _ := unstructured.NestedBool(j.Object, "spec", "suspend"); suspended {
			return fmt.Errorf("it is suspended")
		}
		return nil
	})

	// KubeRay makes the cluster, of the job's templates, and the pods. The webhook would have given them the gate.
	cluster := w.parse("{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: j-abc, labels: {kueue.x-k8s.io/queue-name: lq}, annotations: {kueue.x-k8s.io/elastic-job: \"true\"}}}")
	cluster.Object["spec"], _, _ = unstructured.NestedMap(j.Object, "spec", "rayClusterSpec")
	cluster.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(j, j.GroupVersionKind())})
	w.create(cluster)
	embeddedtest.EditStatus(t, w.c, j, func(j *unstructured.Unstructured) {
		j.Object["status"] = map[string]any{"rayClusterName": "j-abc", "jobDeploymentStatus": "Running"}
	})
	group := func(o map[string]any) map[string]any {
		groups, _, _ := unstructured.NestedSlice(o, "spec", "workerGroupSpecs")
		return groups[0].(map[string]any)
	}
	labels, _, _ := unstructured.NestedStringMap(group(cluster.Object), "template", "metadata", "labels")
	annotations, _, _ := unstructured.NestedStringMap(group(cluster.Object), "template", "metadata", "annotations")
	if labels[kueue.PodSetLabel] != "big" || annotations[kueue.WorkloadSliceNameAnnotation] != first.Name {
		t.Fatalf("labels %v, annotations %v", labels, annotations)
	}
	pod := func(name string) {
		w.create(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace, Labels: labels, Annotations: annotations, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, cluster.GroupVersionKind())}},
			Spec: corev1.PodSpec{
				SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.ElasticJobSchedulingGate}},
				Containers:      []corev1.Container{{Name: "c", Image: "ray"}},
			},
		})
	}
	for _, name := range []string{"b", "c", "a"} {
		pod(name)
	}
	w.until("one pod has no gate", func() error {
		if got := w.free(); len(got) != 1 {
			return fmt.Errorf("%v have none", got)
		}
		return nil
	})
	running := w.free()[0] // whichever was seen first

	// The autoscaler wants three workers.
	scale := func(n int64) {
		w.change(cluster, func(o map[string]any) {
			g := group(o)
			g["replicas"] = n
			_ = unstructured.SetNestedSlice(o, []any{g}, "spec", "workerGroupSpecs")
		})
	}
	scale(3)
	both := w.live(2)
	second := both[slices.IndexFunc(both, func(x *kueue.Workload) bool { return x.UID != first.UID })] // made in the same second, maybe
	if second.Spec.PodSets[1].Count != 3 || chain.Replaces(second) != first.Name || chain.Chain(second) != first.Name {
		t.Errorf("slice %v of %v", second.Annotations, second.Spec.PodSets)
	}
	if got := w.free(); !slices.Equal(got, []string{running}) {
		t.Errorf("%v have no gate before they are admitted", got)
	}
	w.admit(second)
	w.expectFree("a", "b", "c")
	if left := w.live(1)[0]; left.UID != second.UID {
		t.Errorf("left is %s", left.Name)
	}
	w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(j), j))
	w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(cluster), cluster))
	if got, want := j.GetAnnotations()[kueue.RayClusterGenerationAnnotation], fmt.Sprint(cluster.GetGeneration()); got != want {
		t.Errorf("generation %q of the cluster, want %s", got, want)
	}

	// And then only one: the slice shrinks in place.
	scale(1)
	w.until("the slice shrinks", func() error {
		if got := w.get(second).Spec.PodSets[1].Count; got != 1 {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
}
