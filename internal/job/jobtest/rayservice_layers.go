package jobtest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job/jobtest/kuberay"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// opened removes by hand, without webhooks, the gates and suspend fields of a service's clusters and pods.
func opened(w *rayWorld) {
	w.serve(2)
	w.edit(func(spec map[string]any) {
		view.Set(spec, false, "rayClusterConfig", "suspend")
		delete(view.Map(spec, "rayClusterConfig", "headGroupSpec", "template", "spec"), "schedulingGates")
	})
	w.until("it is put back", func() error {
		w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(w.service), w.service))
		gates := view.Maps(w.service.Object, "spec", "rayClusterConfig", "headGroupSpec", "template", "spec", "schedulingGates")
		if !view.Bool(w.service.Object, "spec", "rayClusterConfig", "suspend") || len(gates) != 1 {
			return fmt.Errorf("it is not: %v", gates)
		}
		return nil
	})
	w.edit(ask("2"))
	c := w.child()
	w.slice(2, "head:2 workers:2 workers-x:2")
	w.until("the cluster can be opened", func() error {
		w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(c), c))
		view.Set(c.Object, false, "spec", "suspend")
		return w.c.Update(w.ctx, c)
	})
	w.until("its pods are there", func() error {
		if n := len(w.pods()); n != 6 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
	w.waitUntilStable()
	w.guard()
	if got := w.free(); got != "head:1 workers:2" {
		w.t.Errorf("%s run: the gates of the pods hold what the cluster does not", got)
	}
}

// heldPods gates the pods of a new cluster, and does not suspend the cluster.
func heldPods(w *rayWorld) {
	w.serve(2)
	w.edit(ask("2"))
	next := w.slice(2, "head:2 workers:2 workers-x:2")
	if w.isHeld(w.child()) {
		w.t.Error("the cluster is held")
	}
	w.until("its pods are there, and wait", func() error {
		if n, got := len(w.pods()), w.free(); n != 6 || got != "head:1 workers:2" {
			return fmt.Errorf("%d pods, %s run", n, got)
		}
		return nil
	})
	w.admit(next)
	w.serves("the new cluster serves")
	w.slice(1, "head:1 workers:0 workers-x:2")
}

// layers tests the three layers with webhooks: removed gates are restored, and early ungating is refused until there is quota.
func layers(w *rayWorld) {
	w.serveWebhooks()
	w.written(2)
	view.Set(w.service.Object, false, "spec", "suspend")
	view.Set(w.service.Object, false, "spec", "rayClusterConfig", "suspend")
	for _, group := range append(view.Maps(w.service.Object, "spec", "rayClusterConfig", "workerGroupSpecs"), view.Map(w.service.Object, "spec", "rayClusterConfig", "headGroupSpec")) {
		delete(view.Map(group, "template", "spec"), "schedulingGates")
	}
	wait.Until(w.t, "the webhook answers", func() error {
		probe := w.service.DeepCopy()
		if err := w.c.Create(w.ctx, probe, client.DryRunAll); err != nil || !view.Bool(probe.Object, "spec", "suspend") {
			return fmt.Errorf("it does not: %w", err)
		}
		return nil
	})
	w.must(w.c.Create(w.ctx, w.service))
	held := func() bool {
		gates := view.Maps(workers(view.Map(w.service.Object, "spec")), "template", "spec", "schedulingGates")
		return view.Bool(w.service.Object, "spec", "rayClusterConfig", "suspend") && len(gates) == 1
	}
	if !held() || !view.Bool(w.service.Object, "spec", "suspend") {
		w.t.Errorf("the service is not held: %v", w.service.Object["spec"])
	}
	w.edit(func(spec map[string]any) {
		spec["suspend"] = false
		delete(view.Map(spec, "rayClusterConfig"), "suspend")
		delete(view.Map(workers(spec), "template", "spec"), "schedulingGates")
	})
	if !held() || !view.Bool(w.service.Object, "spec", "suspend") {
		w.t.Errorf("what was taken away is not put back: %v", w.service.Object["spec"])
	}
	w.admit(w.slice(1, "head:1 workers:2"))
	w.serves("the first cluster serves")
	w.refused(w.try(w.service, func(o map[string]any) { view.Set(o, false, "spec", "rayClusterConfig", "suspend") }), "spec.rayClusterConfig.suspend")

	w.edit(ask("2"))
	next := w.slice(2, "head:2 workers:2 workers-x:2")
	c := w.child()
	w.refused(w.try(c, func(o map[string]any) { view.Set(o, false, "spec", "suspend") }), "spec.suspend", "llm")
	w.must(w.try(c, func(o map[string]any) {
		delete(view.Map(workers(map[string]any{"rayClusterConfig": o["spec"]}), "template", "spec"), "schedulingGates")
	}))
	if gates := view.Maps(c.Object, "spec", "workerGroupSpecs")[0]; len(view.Maps(gates, "template", "spec", "schedulingGates")) != 1 {
		w.t.Error("the gate of the cluster's template is not put back")
	}
	bare := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bare", Namespace: w.namespace},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "x"}}},
	}
	bare.Labels = map[string]string{"ray.io/cluster": c.GetName(), "ray.io/group": "workers"}
	bare.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c, kuberay.GVK("RayCluster"))}
	w.must(w.c.Create(w.ctx, bare, client.DryRunAll))
	if !podset.HasGate(bare.Spec.SchedulingGates) {
		w.t.Error("a pod of the cluster has no gate")
	}
	bare.Labels["ray.io/cluster"] = "x"
	bare.OwnerReferences, bare.Spec.SchedulingGates, bare.ResourceVersion, bare.UID = nil, nil, "", ""
	w.must(w.c.Create(w.ctx, bare, client.DryRunAll))
	if podset.HasGate(bare.Spec.SchedulingGates) {
		w.t.Error("a pod of nobody has the gate")
	}
	w.stop() // only the webhooks are left, for another client
	w.admit(next)
	w.must(w.try(c, func(o map[string]any) { view.Set(o, false, "spec", "suspend") }))
	var gated corev1.Pod
	wait.Until(w.t, "the pods of the cluster are there, and wait", func() error {
		pods := slices.DeleteFunc(w.pods(), func(p corev1.Pod) bool { return !podset.HasGate(p.Spec.SchedulingGates) })
		if len(pods) != 3 {
			return fmt.Errorf("%d wait", len(pods))
		}
		gated = pods[0]
		return nil
	})
	w.must(w.open(&gated))
	w.evict(next)
	w.refused(w.open(&gated), "spec.schedulingGates", "llm")
}

// open removes the gates of a pod, and returns the API server's answer.
func (w *rayWorld) open(pod *corev1.Pod) error {
	p := pod.DeepCopy()
	p.Spec.SchedulingGates = nil
	return w.c.Patch(w.ctx, p, client.MergeFrom(pod), client.DryRunAll)
}

// try changes an object, and returns the API server's answer.
func (w *rayWorld) try(o *unstructured.Unstructured, change func(map[string]any)) (err error) {
	w.t.Helper()
	wait.Until(w.t, "it is no conflict", func() error {
		w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(o), o))
		change(o.Object)
		if err = w.c.Update(w.ctx, o); apierrors.IsConflict(err) {
			return err
		}
		return nil
	})
	return err
}

// notElastic writes the manifest of the service, for one that is not elastic.
func (w *rayWorld) notElastic(n int) {
	w.t.Helper()
	w.written(n)
	w.service.SetAnnotations(nil)
	for _, template := range []map[string]any{view.Map(w.service.Object, "spec", "rayClusterConfig", "headGroupSpec", "template"), view.Map(workers(view.Map(w.service.Object, "spec")), "template")} {
		delete(view.Map(template, "spec"), "schedulingGates")
	}
}

// queuedLate stops a service that ran outside of all queues, and queues it. Its pods end after its cluster is deleted.
func queuedLate(w *rayWorld) {
	w.notElastic(2)
	queued := w.service.GetLabels()
	w.service.SetLabels(nil)
	view.Set(w.service.Object, false, "spec", "suspend")
	view.Set(w.service.Object, false, "spec", "rayClusterConfig", "suspend")
	w.must(w.c.Create(w.ctx, w.service))
	reports := func(condition string, clusters int) func() error {
		return func() error {
			w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(w.service), w.service))
			if n := len(w.operator.Objects(w.ctx, "RayCluster")); n != clusters || !view.HasCondition(w.service, condition) {
				return fmt.Errorf("%d clusters", n)
			}
			return nil
		}
	}
	wait.Until(w.t, "it serves outside of all queues", reports("Ready", 1))
	holdPods := func(finalizers []string) {
		for _, p := range w.pods() {
			held := p.DeepCopy()
			held.Finalizers = finalizers
			w.must(w.c.Patch(w.ctx, held, client.MergeFrom(&p)))
		}
	}
	holdPods([]string{"test/held"})
	wait.Until(w.t, "it can be stopped and queued", func() error {
		w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(w.service), w.service))
		w.service.SetLabels(queued)
		view.Set(w.service.Object, true, "spec", "suspend")
		return w.c.Update(w.ctx, w.service)
	})
	wait.Until(w.t, "its cluster is deleted", reports("Suspended", 0))
	w.waitUntilStable()
	if n, queued := len(w.pods()), len(w.live()); n != 3 || queued > 0 {
		w.t.Fatalf("%d pods are left, and %d Workloads exist", n, queued)
	}
	holdPods(nil)
	w.slice(1, "head:1 workers:2")
}

// downtime upgrades a service that is not elastic: it stops as a whole, and starts with its new spec. Its manifest is made for Kueue, which
// suspends only the clusters.
func downtime(w *rayWorld) {
	w.serveWebhooks()
	w.notElastic(2)
	delete(view.Map(w.service.Object, "spec"), "suspend")
	w.must(w.c.Create(w.ctx, w.service))
	s := w.slice(1, "head:1 workers:2")
	w.admit(s)
	w.until("it serves, and the webhooks answer", func() error {
		w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(w.service), w.service))
		if !view.HasCondition(w.service, "Ready") || view.Bool(w.service.Object, "spec", "rayClusterConfig", "suspend") {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	w.edit(ask("2"))
	w.until("it is stopped, and queued with what it asks for now", func() error {
		for _, x := range w.live() {
			if x.UID != s.UID && !lifecycle.IsReserved(x) && x.Spec.PodSets[1].Template.Spec.Containers[0].Resources.Requests.Cpu().Value() == 2 {
				if n := len(w.pods()); n > 0 {
					w.t.Fatalf("%d pods are left", n)
				}
				w.admit(x)
				return nil
			}
		}
		return fmt.Errorf("slices %v", w.describe())
	})
	w.until("it serves again", func() error {
		w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(w.service), w.service))
		if clusters := w.operator.Objects(w.ctx, "RayCluster"); len(clusters) != 1 || !view.HasCondition(w.service, "Ready") {
			return fmt.Errorf("%d clusters", len(clusters))
		}
		return nil
	})
}
