package jobtest

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
)

// chains are owners with their dependents, outermost first.
var chains = [][]string{
	{"trainer.kubeflow.org/v1alpha1/TrainJob", "jobset.x-k8s.io/v1alpha2/JobSet", "batch/v1/Job"},
	{"ray.io/v1/RayService", "ray.io/v1/RayCluster", "batch/v1/Job"},
	{"apps/v1/Deployment", "apps/v1/ReplicaSet", "v1/Pod"},
	{"workload.codeflare.dev/v1beta2/AppWrapper", "jobset.x-k8s.io/v1alpha2/JobSet", "batch/v1/Job"},
	{"workload.codeflare.dev/v1beta2/AppWrapper", "v1/Pod"},
	{"apps/v1/StatefulSet", "v1/Pod"},
	{"leaderworkerset.x-k8s.io/v1/LeaderWorkerSet", "apps/v1/StatefulSet", "v1/Pod"},
	{"workload.codeflare.dev/v1beta2/AppWrapper", "kubeflow.org/v1/PyTorchJob"},
}

// RunUnmanaged tests the hard gate for all kinds, with ManageAll and an unmanaged namespace: a JobSet runs to its end under a
// controller that enforces its state, and chains of owners exist, some from before the manager starts. The manager makes no request
// about any of them (spec: 30 §4.2.4, §4.2.5).
func RunUnmanaged(t *testing.T, kinds []*job.Descriptor) {
	w := newWorld(t, (&Kind{}).parallel(t), kinds)
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "ray.io", Version: "v1", Kind: "RayService"}, {Group: "workload.codeflare.dev", Version: "v1beta2", Kind: "AppWrapper"},
	} {
		w.must(client.IgnoreAlreadyExists(w.c.Create(w.ctx, embeddedtest.LooseCRD(gvk, strings.ToLower(gvk.Kind)+"s"))))
		w.cfg.Kinds[gvk] = true
	}
	w.cfg.Kinds[appsv1.SchemeGroupVersion.WithKind("ReplicaSet")] = false
	w.cfg.ManageAll = true
	w.namespace = w.newNamespace("no")
	wait.Until(w.t, "the owners of chains are served", func() error { return w.chain("before", chains[1]) })
	for i, c := range chains {
		w.must(w.chain(fmt.Sprintf("early%d", i), c))
	}
	w.start(nil)
	for i, c := range chains {
		w.must(w.chain(fmt.Sprintf("late%d", i), c))
	}
	set := w.jobSet("etl")
	w.must(w.c.Create(w.ctx, set))
	controller := &jobSetController{world: w, name: "etl"}
	stop := controller.start()
	wait.Until(w.t, "the child Jobs exist", func() error { return controller.err(2) })
	w.waitUntilStable()
	w.must(controller.finish())
	w.waitUntilStable()
	stop()
	if n := controller.resumed.Load(); n > 0 {
		t.Errorf("child Jobs had to be resumed %d times", n)
	}
	writes, events := w.traffic.in(w.namespace)
	if len(writes) > 0 || len(events) > 0 || len(w.workloads()) > 0 {
		t.Errorf("writes %v, events %v, %d workloads", writes, events, len(w.workloads()))
	}
	for _, path := range w.traffic.reads {
		if strings.Contains(path, "/namespaces/"+w.namespace+"/") {
			t.Errorf("looked up: %s", path)
		}
	}
	w.relabelled()
}

// relabelled adds the namespace to management, which makes writes, and removes it again, which ends them.
func (w *world) relabelled() {
	w.t.Helper()
	w.must(w.c.Create(w.ctx, w.jobSet("later")))
	w.relabel("yes")
	find := func() *kueue.Workload {
		for _, wl := range w.workloads() {
			if o := metav1.GetControllerOf(&wl); o != nil && o.Name == "later" {
				return &wl
			}
		}
		return nil
	}
	wait.Until(w.t, "what is in the namespace is queued", func() error {
		if find() == nil {
			return fmt.Errorf("%d workloads", len(w.workloads()))
		}
		return nil
	})
	w.relabel("no")
	wait.Until(w.t, "all workloads are let go", func() error {
		for _, wl := range w.workloads() {
			if len(wl.Finalizers) > 0 {
				return fmt.Errorf("%s is held: %v", wl.Name, conditions(&wl))
			}
		}
		return nil
	})
	w.waitUntilStable()
	before, _ := w.traffic.in(w.namespace)
	w.must(w.c.Create(w.ctx, w.jobSet("last")))
	w.waitUntilStable()
	if after, _ := w.traffic.in(w.namespace); len(after) > len(before) {
		w.t.Errorf("written once the namespace was given up: %v", after[len(before):])
	}
}

func (w *world) jobSet(name string) *unstructured.Unstructured {
	const replicated = "{name: %s, template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}}}"
	u := parse(w.t, "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nspec: {suspend: false, replicatedJobs: ["+
		fmt.Sprintf(replicated, "a")+", "+fmt.Sprintf(replicated, "b")+"]}")
	u.SetName(name)
	u.SetNamespace(w.namespace)
	return u
}

// chain creates objects that own each other and run. The first one has a queue name.
func (w *world) chain(name string, kinds []string) error {
	var owner *unstructured.Unstructured
	for _, text := range kinds {
		at := strings.LastIndex(text, "/")
		o := parse(w.t, fmt.Sprintf("{apiVersion: %s, kind: %s, %s", text[:at], text[at+1:], specs[text[at+1:]][1:]))
		o.SetName(name)
		o.SetNamespace(w.namespace)
		if owner != nil {
			if owner.GetKind() == "StatefulSet" {
				o.SetAnnotations(map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"})
			}
			o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
		} else {
			o.SetLabels(map[string]string{kueue.QueueNameLabel: "lq"})
		}
		if err := w.c.Create(w.ctx, o); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		owner = o
	}
	return nil
}

const (
	podText      = "{automountServiceAccountToken: false, containers: [{name: c, image: x}]}"
	selectorText = "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: x}]}}"
)

// specs are the specs of the objects in chains.
var specs = map[string]string{
	"TrainJob":        "{spec: {runtimeRef: {name: none}}}",
	"JobSet":          "{spec: {suspend: false, replicatedJobs: [{name: a, template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}}}]}}",
	"Job":             "{spec: {suspend: false, template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}}",
	"RayService":      "{spec: {rayClusterConfig: {}}}",
	"RayCluster":      "{spec: {enableInTreeAutoscaling: true, headGroupSpec: {template: {spec: {}}}}}",
	"Deployment":      "{spec: {" + selectorText + "}}",
	"ReplicaSet":      "{spec: {" + selectorText + "}}",
	"Pod":             "{metadata: {annotations: {kueue.x-k8s.io/pod-suspending-parent: deployment}}, spec: " + podText + "}",
	"AppWrapper":      "{spec: {suspend: false, components: []}}",
	"StatefulSet":     "{spec: {serviceName: s, " + selectorText + "}}",
	"LeaderWorkerSet": "{spec: {leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c, image: x}]}}}}}",
	"PyTorchJob":      "{spec: {pytorchReplicaSpecs: {Master: {template: {spec: {}}}}}}",
}
