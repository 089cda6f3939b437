package jobtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/jobtest/kuberay"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// rayWorld is a world with RayServices, a simulated KubeRay, and a manager whose writes may fail.
type rayWorld struct {
	*world
	revive   revival
	operator *kuberay.Operator
	service  *unstructured.Unstructured
}

// newRayWorld starts a manager for RayServices and RayClusters, and an operator.
func newRayWorld(t *testing.T, kind *Kind, start trouble, kinds []*job.Descriptor) *rayWorld {
	t.Helper()
	w := newWorld(t, kind, kinds)
	w.cfg.ElasticJobs, w.cfg.HonourUserSuspend = true, false
	r := &rayWorld{world: w, operator: &kuberay.Operator{Client: w.c, Namespace: w.namespace}}
	r.revive = start(w)
	t.Cleanup(r.operator.Begin(w.ctx))
	return r
}

// until waits, keeps the manager running, and checks that no pod runs without quota.
func (w *rayWorld) until(what string, check func() error) {
	w.t.Helper()
	wait.Until(w.t, what, w.revive.before(func() error {
		w.guard()
		return check()
	}))
}

// guard fails the test if more pods may run than are admitted. Pods are read between two reads of the Workloads, since the
// admissions change.
func (w *rayWorld) guard() {
	w.t.Helper()
	granted := func() map[string]int32 {
		out := map[string]int32{}
		live := w.live()
		if len(live) > 2 {
			w.t.Fatalf("%d slices are live:\n%s", len(live), strings.Join(w.describe(), "\n"))
		}
		for _, x := range live {
			for _, s := range x.Spec.PodSets {
				if lifecycle.IsReserved(x) {
					out[string(s.Name)] = max(out[string(s.Name)], chain.Granted(x, s.Name))
				}
			}
		}
		return out
	}
	before := granted()
	runs := map[string]int32{}
	for _, p := range w.pods() {
		if !podset.HasGate(p.Spec.SchedulingGates) {
			runs[p.Labels[kueue.PodSetLabel]]++
		}
	}
	after := granted()
	for set, n := range runs { //berth:unordered a test
		if n > max(before[set], after[set]) {
			w.t.Fatalf("%d pods of set %q run, and %d and %d are admitted", n, set, before[set], after[set])
		}
	}
}

func (w *rayWorld) live() []*kueue.Workload {
	list := w.workloads()
	all := make([]*kueue.Workload, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return chain.Live(all)
}

func (w *rayWorld) pods() []corev1.Pod {
	w.t.Helper()
	var list corev1.PodList
	w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
	return list.Items
}

// free counts the pods that may run, as set:n.
func (w *rayWorld) free() string {
	w.t.Helper()
	counts := map[string]int{}
	for _, p := range w.pods() {
		if !podset.HasGate(p.Spec.SchedulingGates) {
			counts[p.Labels[kueue.PodSetLabel]]++
		}
	}
	var out []string
	for set, n := range counts { //berth:unordered sorted below
		out = append(out, fmt.Sprintf("%s:%d", set, n))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// slice waits until the newest live slice has these pod sets, as set:count, and is one of n.
func (w *rayWorld) slice(n int, want string) *kueue.Workload {
	w.t.Helper()
	var found *kueue.Workload
	w.until("the slices are "+want, func() error {
		live := w.live()
		if len(live) != n {
			return fmt.Errorf("%d are live", len(live))
		}
		for _, x := range live {
			if n == 1 || chain.Replaces(x) != "" && !lifecycle.IsReserved(x) {
				found = x
			}
		}
		if found == nil {
			return fmt.Errorf("none waits")
		}
		if got := setsOf(found); got != want {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
	return found
}

// setsOf are the pod sets of a Workload, as set:count, without digests.
func setsOf(x *kueue.Workload) string {
	var out []string
	for _, s := range x.Spec.PodSets {
		name := string(s.Name)
		if at := strings.LastIndex(name, "-"); at > 0 {
			name = name[:at] + "-x"
		}
		out = append(out, fmt.Sprintf("%s:%d", name, s.Count))
	}
	return strings.Join(out, " ")
}

// serve creates an elastic service as by the webhook, and waits until it serves.
func (w *rayWorld) serve(workers int) *kueue.Workload {
	w.t.Helper()
	w.written(workers)
	w.must(w.c.Create(w.ctx, w.service))
	s := w.slice(1, fmt.Sprintf("head:1 workers:%d", workers))
	w.admit(s)
	w.serves("the first cluster serves")
	return s
}

// written is the manifest of the service, with the defaults of the webhook.
func (w *rayWorld) written(workers int) {
	w.t.Helper()
	const gated = "schedulingGates: [{name: kueue.x-k8s.io/elastic-job}], "
	template := func(cpu string) string {
		return "{spec: {" + gated + "nodeSelector: {zone: a}, containers: [{name: c, image: ray:1, resources: {requests: {cpu: " + cpu + "}}}]}}"
	}
	w.service = parse(w.t, fmt.Sprintf("{apiVersion: ray.io/v1, kind: RayService, metadata: {name: llm, labels: {kueue.x-k8s.io/queue-name: lq}, annotations: {kueue.x-k8s.io/elastic-job: \"true\"}}, "+
		"spec: {suspend: true, rayClusterConfig: {suspend: true, headGroupSpec: {template: %s}, workerGroupSpecs: [{groupName: workers, replicas: %d, minReplicas: 1, maxReplicas: 9, template: %s}]}}}",
		template("1"), workers, template("1")))
	w.service.SetNamespace(w.namespace)
}

// serves waits until exactly one cluster exists, is active, and all its pods may run.
func (w *rayWorld) serves(what string) {
	w.t.Helper()
	w.until(what, func() error {
		w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(w.service), w.service))
		clusters := w.operator.Objects(w.ctx, "RayCluster")
		active := view.String(w.service.Object, "status", "activeServiceStatus", "rayClusterName")
		gated := slices.ContainsFunc(w.pods(), func(p corev1.Pod) bool { return podset.HasGate(p.Spec.SchedulingGates) })
		if len(clusters) != 1 || clusters[0].GetName() != active || gated || !view.HasCondition(w.service, "Ready") {
			return fmt.Errorf("%d clusters, active %q, gated pods %v, slices %v", len(clusters), active, gated, w.describe())
		}
		return nil
	})
}

func (w *rayWorld) describe() (out []string) {
	for _, x := range w.live() {
		out = append(out, fmt.Sprintf("%s replaces %q: %s %v", x.Name, chain.Replaces(x), setsOf(x), conditions(x)))
	}
	return out
}

func (w *rayWorld) edit(change func(spec map[string]any)) {
	w.t.Helper()
	w.until("it can be changed", func() error {
		w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(w.service), w.service))
		change(view.Map(w.service.Object, "spec"))
		return w.c.Update(w.ctx, w.service)
	})
}

func workers(spec map[string]any) map[string]any {
	return view.Maps(spec, "rayClusterConfig", "workerGroupSpecs")[0]
}

// ask sets the processors of workers of new clusters.
func ask(cpu string) func(map[string]any) {
	return func(spec map[string]any) {
		view.Maps(workers(spec), "template", "spec", "containers")[0]["resources"] = map[string]any{"requests": map[string]any{"cpu": cpu}}
	}
}

// child is the cluster that is not active.
func (w *rayWorld) child() *unstructured.Unstructured {
	w.t.Helper()
	var found *unstructured.Unstructured
	w.until("there is a second cluster", func() error {
		w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(w.service), w.service))
		for _, c := range w.operator.Objects(w.ctx, "RayCluster") {
			if c.GetName() == view.String(w.service.Object, "status", "pendingServiceStatus", "rayClusterName") {
				found = &c
				return nil
			}
		}
		return fmt.Errorf("there is not")
	})
	return found
}

func (w *rayWorld) isHeld(c *unstructured.Unstructured) bool {
	w.t.Helper()
	w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(c), c))
	return view.Bool(c.Object, "spec", "suspend")
}

// RunRayServices tests that no pod of a RayService runs without quota, in upgrades too, beside a simulated KubeRay. kindsWith are
// RayService and RayCluster, of which clusters, or else pods, wait.
func RunRayServices(t *testing.T, kindsWith func(gatedPods bool) []*job.Descriptor) {
	kinds := kindsWith(false)
	kind := (&Kind{Descriptor: kinds[0]}).parallel(t)
	anyhow(t, 20, func(t *testing.T, start trouble) { upgradedAndPreempted(newRayWorld(t, kind, start, kinds)) })
	for name, run := range map[string]func(*rayWorld){ //berth:unordered each is a test
		"layers": layers, "writes of an upgrade": upgradeWrites, "reverted": reverted, "what serves grows first": growsFirst, "by steps": incremental,
		"by steps, and back": rolledBack,
		"opened by hand":     opened, "not elastic": downtime, "queued late": queuedLate,
	} {
		t.Run(name, func(t *testing.T) { run(newRayWorld(t, kind, calm, kinds)) })
	}
	t.Run("held pods", func(t *testing.T) {
		held, kinds := *kind, kindsWith(true)
		held.Descriptor = kinds[0]
		heldPods(newRayWorld(t, &held, calm, kinds))
	})
}

// upgradedAndPreempted is the life of a service: it serves, is upgraded to larger workers, is preempted, and serves again.
func upgradedAndPreempted(w *rayWorld) {
	w.serve(2)
	hash := w.operator.Objects(w.ctx, "RayCluster")[0].GetAnnotations()[kuberay.HashAnnotation]
	if again := kuberay.HashOf(view.Map(w.service.Object, "spec", "rayClusterConfig")); again != hash {
		w.t.Errorf("the start has moved the hash from %s to %s", hash, again)
	}
	w.edit(ask("2"))
	next := w.slice(2, "head:2 workers:2 workers-x:2")
	if c := w.child(); !w.isHeld(c) {
		w.t.Error("the new cluster was let go before its slice is admitted")
	}
	if got := w.free(); got != "head:1 workers:2" {
		w.t.Errorf("%s run before the slice is admitted", got)
	}
	w.admit(next)
	w.serves("the new cluster serves")
	last := w.slice(1, "head:1 workers:0 workers-x:2")
	if last.Name != next.Name {
		w.t.Errorf("slice %s is left, want %s", last.Name, next.Name)
	}
	for _, p := range w.pods() {
		if p.Spec.NodeSelector["pool"] != "h100" || p.Spec.NodeSelector["zone"] != "a" {
			w.t.Errorf("pod %s goes to %v", p.Name, p.Spec.NodeSelector)
		}
	}
	w.evict(last)
	w.until("the quota is given back", func() error {
		if n := len(w.pods()); n > 0 && !lifecycle.IsReserved(w.get(last)) {
			w.t.Fatalf("%d pods are left", n)
		}
		return w.released(last)
	})
	again := w.slice(1, "head:1 workers:2")
	w.admit(again)
	w.serves("it serves again")
	if got := w.free(); got != "head:1 workers:2" {
		w.t.Errorf("%s run", got)
	}
}

// upgradeWrites counts the writes of an upgrade, of a head and a worker each, with the admission.
func upgradeWrites(w *rayWorld) {
	w.serve(1)
	w.slice(1, "head:1 workers:1")
	w.waitUntilStable()
	before, _ := w.traffic.in(w.namespace)
	w.edit(func(spec map[string]any) {
		view.Maps(workers(spec), "template", "spec", "containers")[0]["image"] = "ray:2"
	})
	w.child()
	next := w.slice(2, "head:2 workers:2")
	w.waitUntilStable()
	start := time.Now()
	w.admit(next)
	w.until("the gate is open", func() error {
		if len(w.operator.Objects(w.ctx, "RayCluster")) == 2 && w.isHeld(w.child()) {
			return fmt.Errorf("the cluster is held")
		}
		return nil
	})
	w.t.Logf("the cluster was let go %s after the admission", time.Since(start).Round(time.Millisecond))
	w.serves("the new cluster serves")
	w.slice(1, "head:1 workers:1")
	w.waitUntilStable()
	after, _ := w.traffic.in(w.namespace)
	if writes := after[len(before):]; len(writes)+1 > 8 {
		w.t.Errorf("%d writes and the admission, want 8 at most:\n%s", len(writes), strings.Join(writes, "\n"))
	}
}

// reverted reverts an upgrade that waits for quota: the operator deletes the new cluster, and none of its pods ever ran.
func reverted(w *rayWorld) {
	w.serve(2)
	w.edit(ask("2"))
	w.slice(2, "head:2 workers:2 workers-x:2")
	c := w.child()
	w.edit(ask("1"))
	w.until("the new cluster is gone", func() error {
		if got := w.free(); got != "head:1 workers:2" {
			w.t.Fatalf("%s run", got)
		}
		err := w.c.Get(w.ctx, client.ObjectKeyFromObject(c), c)
		if err == nil {
			return fmt.Errorf("it is there")
		}
		return client.IgnoreNotFound(err)
	})
	w.slice(1, "head:1 workers:2")
	w.serves("the old cluster serves")
	w.until("it is said", func() error {
		if got := w.events(w.service); !slices.Contains(got, "UpgradeHeld") || !slices.Contains(got, "UpgradeHoldStale") {
			return fmt.Errorf("events %v", got)
		}
		return nil
	})
}

// growsFirst scales the serving cluster while an upgrade waits.
func growsFirst(w *rayWorld) {
	w.serve(2)
	active := w.operator.Objects(w.ctx, "RayCluster")[0]
	w.edit(ask("2"))
	w.slice(2, "head:2 workers:2 workers-x:2")
	w.until("the cluster can grow", func() error {
		w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(&active), &active))
		view.Maps(active.Object, "spec", "workerGroupSpecs")[0]["replicas"] = int64(4)
		return w.c.Update(w.ctx, &active)
	})
	w.admit(w.slice(2, "head:1 workers:4"))
	w.until("its pods may run", func() error {
		if got := w.free(); got != "head:1 workers:4" {
			return fmt.Errorf("%s run", got)
		}
		return nil
	})
	w.admit(w.slice(2, "head:2 workers:4 workers-x:2"))
	w.serves("the new cluster serves")
	w.slice(1, "head:1 workers:0 workers-x:2")
}

// bySteps is an upgrade in steps: the new cluster begins small, and both clusters are resized by halves.
func bySteps(spec map[string]any) {
	spec["upgradeStrategy"] = map[string]any{
		"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": map[string]any{"maxSurgePercent": int64(50), "stepSizePercent": int64(50)},
	}
}

// granting waits, and admits pending Workloads, which can be deleted or replaced at any time. It counts the admitted ones.
func (w *rayWorld) granting(what string, check func() error) (n int) {
	w.t.Helper()
	status := reconcile.NewWorkloadStatus(w.c)
	w.until(what, func() error {
		for _, x := range w.live() {
			if lifecycle.IsReserved(x) {
				continue
			}
			if _, _, err := status.Transition(w.ctx, x, w.reserve); apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return err
			}
			n++
		}
		return check()
	})
	return n
}

// isServed reports whether one cluster is left, and its workers have the requests.
func (w *rayWorld) isServed(cpu string) error {
	clusters := w.operator.Objects(w.ctx, "RayCluster")
	if len(clusters) != 1 {
		return fmt.Errorf("%d clusters", len(clusters))
	}
	c := view.Maps(view.Maps(clusters[0].Object, "spec", "workerGroupSpecs")[0], "template", "spec", "containers")[0]
	if got := view.String(c, "resources", "requests", "cpu"); got != cpu {
		return fmt.Errorf("workers ask for %s", got)
	}
	return nil
}

// incremental upgrades in steps: the new cluster begins small and grows, each time with quota.
func incremental(w *rayWorld) {
	w.serve(4)
	w.edit(func(spec map[string]any) { ask("2")(spec); bySteps(spec) })
	w.slice(2, "head:2 workers:4 workers-x:1")
	if n := w.granting("the new cluster serves", func() error { return w.isServed("2") }); n < 3 {
		w.t.Errorf("%d slices were admitted, want one for each step", n)
	}
	w.serves("the new cluster serves, alone")
	w.slice(1, "head:1 workers:0 workers-x:4")
}

// rolledBack reverts an upgrade in steps that is half done.
func rolledBack(w *rayWorld) {
	w.serve(4)
	w.edit(func(spec map[string]any) { ask("2")(spec); bySteps(spec) })
	w.granting("the first cluster is smaller, and the second one serves as well", func() error {
		if got := w.free(); !strings.Contains(got, "workers:2") {
			return fmt.Errorf("%s run", got)
		}
		return nil
	})
	w.edit(ask("1"))
	w.granting("the first cluster serves", func() error { return w.isServed("1") })
	w.serves("the first cluster serves, alone")
	w.until("its slice is as large as it is", func() error {
		if live := w.live(); len(live) != 1 || w.free() != "head:1 workers:4" {
			return fmt.Errorf("%s run, slices %v", w.free(), w.describe())
		}
		return nil
	})
}
