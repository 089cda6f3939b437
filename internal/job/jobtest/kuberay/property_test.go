package kuberay_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/jobtest/kuberay"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// TestServicesUnderAnySchedule runs lives of a service with random events: users change and scale it and remove its gates, quota
// changes, an admission check passes or fails, it is preempted, informers lag, Berth and KubeRay die between any two writes.
// At any time no more pods may run than have quota, and admitted pods are not stopped. At the end an upgrade without quota does not
// affect the serving cluster, and an upgrade with quota is finished.
func TestServicesUnderAnySchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hold := rapid.SampledFrom([]string{"ChildSuspended", "GatedPods"}).Draw(t, "hold")
		w := newWorld(t, hold)
		seed := rapid.Uint64().Draw(t, "seed")
		w.rng = rand.New(rand.NewPCG(seed, 1))
		w.trouble(rapid.SampledFrom([]string{"none", "dies", "slow", "shuffled", "all"}).Draw(t, "KubeRay"))
		w.lags, w.checks = rapid.Bool().Draw(t, "informers lag"), rapid.Bool().Draw(t, "checks")
		must(w, w.c.Create(w.ctx, manifest(rapid.IntRange(1, 3).Draw(t, "workers"), "1")))
		w.runUntilStable()
		names := slices.Sorted(keys(events))
		for range rapid.IntRange(1, 25).Draw(t, "events") {
			name := rapid.SampledFrom(names).Draw(t, "event")
			n := rapid.IntRange(0, 11).Draw(t, "n")
			if name == "pods opened" && w.lags {
				continue // webhooks use the informers
			}
			w.logf("%s (%d)", name, n)
			events[name](w, n)
			if !w.lags {
				w.see()
			}
			w.some(n)
		}
		if rapid.IntRange(0, 5).Draw(t, "deleted as it is") == 0 {
			w.deleted()
			return
		}
		w.end()
	})
}

// TestUpgradeTakenBack reverts an upgrade that waits for quota, at any moment after its beginning. Afterwards its cluster serves,
// no other one waits, and quota changes nothing.
func TestUpgradeTakenBack(t *testing.T) {
	for _, hold := range []string{"ChildSuspended", "GatedPods"} {
		for _, by := range []string{"", "None", "NewClusterWithIncrementalUpgrade"} {
			for steps := range 12 {
				t.Run(fmt.Sprintf("%s %s after %d steps", hold, by, steps), func(t *testing.T) { takenBack(t, hold, by, steps) })
			}
		}
	}
}

func takenBack(t *testing.T, hold, by string, steps int) {
	w := newWorld(t, hold)
	w.quota = 4
	must(w, w.c.Create(w.ctx, manifest(2, "1")))
	w.runUntilStable()
	active, pods := w.serving()
	w.edit(func(spec map[string]any) {
		ask(spec, 2)
		if by == "NewClusterWithIncrementalUpgrade" {
			strategy(spec, 2)
		}
	})
	for n := range steps { // of KubeRay, and of Berth
		if n%2 == 0 {
			w.op.Step(w.ctx)
		}
		w.see()
		w.reconcile()
	}
	w.edit(func(spec map[string]any) {
		w.takeBack(spec)
		if by == "None" {
			strategy(spec, 1)
		}
	})
	for _, quota := range []int64{4, 100} {
		w.quota = quota
		w.runUntilStable()
		w.withdrawn()
		if now, n := w.serving(); now != active || n != pods {
			w.fail("cluster %s served with %d pods, and %s does now, with %d", active, pods, now, n)
		}
		if pending := view.String(w.get().Object, "status", "pendingServiceStatus", "rayClusterName"); pending != "" || len(w.live()) != 1 {
			w.fail("cluster %q is pending, and there are %d slices", pending, len(w.live()))
		}
	}
}

func must(w *world, err error) {
	if err != nil {
		w.fail("%v", err)
	}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m { //berth:unordered sorted by the caller
			if !yield(k) {
				return
			}
		}
	}
}

// trouble makes KubeRay slow, mortal, or unpredictable.
func (w *world) trouble(kind string) {
	chance := func(percent int) bool { return w.rng.IntN(100) < percent }
	if kind == "dies" || kind == "all" {
		w.op.Dies = func() bool { return chance(30) }
	}
	if kind == "slow" || kind == "all" {
		w.op.Skips, w.op.Lingers = func(client.Object) bool { return chance(40) }, 3
	}
	if kind == "shuffled" || kind == "all" {
		w.op.Order = w.rng.Perm
	}
}

// some makes a few passes of all actors, after an event.
func (w *world) some(n int) {
	for range n % 4 {
		switch w.rng.IntN(8) {
		case 0, 1:
			w.op.Step(w.ctx)
		case 2:
			w.m.End(1)
		case 3:
			w.sync(kinds[w.rng.IntN(len(kinds))])
		default:
			w.reconcile()
		}
	}
}

// runUntilStable runs all actors without trouble until nothing changes any more.
func (w *world) runUntilStable() {
	dies, skips := w.op.Dies, w.op.Skips
	defer func() { w.op.Dies, w.op.Skips = dies, skips }()
	for round, quiet := 0, 0; quiet < 8+w.op.Lingers*4; round++ {
		if w.op.Dies, w.op.Skips = dies, skips; quiet > 0 {
			w.op.Dies, w.op.Skips = nil, nil
		}
		before := w.m.Version()
		if w.round(); w.m.Version() == before {
			quiet++
		} else {
			quiet = 0
		}
		if round > 600 {
			w.fail("it never settles")
		}
	}
	w.blind = false
	w.check()
	if n := len(w.live()); n > 2 {
		w.fail("%d slices stay", n)
	}
}

// round is one pass of all actors, with current informers.
func (w *world) round() {
	w.op.Step(w.ctx)
	w.m.End(100)
	for n := 0; ; n++ {
		w.see()
		if !w.reconcile() {
			break
		}
		if n > 60 {
			w.fail("Berth writes without an end")
		}
	}
	w.admit()
	w.checked(0, kueue.CheckStateReady)
	w.succeed()
}

// events are what may happen.
var events = map[string]func(w *world, n int){
	"KubeRay":         func(w *world, _ int) { w.op.Step(w.ctx) },
	"KubeRay again":   func(w *world, _ int) { w.op.Step(w.ctx); w.op.Step(w.ctx) },
	"Berth":           func(w *world, _ int) { w.reconcile() },
	"Berth, and more": func(w *world, _ int) { w.see(); w.reconcile(); w.reconcile(); w.reconcile() },
	"Berth restarts":  func(w *world, _ int) { w.restart() },
	"informer":        func(w *world, n int) { w.sync(kinds[n%len(kinds)]) },
	"pods end":        func(w *world, n int) { w.m.End(n) },
	"engine":          func(w *world, _ int) { w.admit() },
	"replaced":        func(w *world, _ int) { w.succeed() },
	"check": func(w *world, n int) {
		w.checked(n/3, []kueue.CheckState{kueue.CheckStateReady, kueue.CheckStateRetry, kueue.CheckStateRejected}[n%3])
	},
	"settled": func(w *world, _ int) { w.runUntilStable() },
	"quota":   func(w *world, n int) { w.quota = []int64{0, 4, 6, 8, 10, 12, 14, 16, 20, 24, 30, 40}[n] },
	"preempted": func(w *world, _ int) {
		if x := w.holder(); x != nil {
			w.transition(x, func(x *kueue.Workload) bool {
				return w.cfg.Lifecycle.Preempt(x, kueue.ReasonInClusterQueue, "", metav1.Now())
			})
		}
	},
	"deactivated": func(w *world, n int) {
		if live := w.live(); len(live) > 0 && n%3 == 0 {
			next := live[n%len(live)].DeepCopy()
			next.Spec.Active = new(false)
			_ = w.c.Update(w.ctx, next)
			w.transition(next, func(x *kueue.Workload) bool { return w.cfg.Lifecycle.Deactivate(x, metav1.Now()) })
		}
	},
	"activated": func(w *world, _ int) { w.activate() },
	"image": func(w *world, n int) {
		w.edit(func(spec map[string]any) { container(spec)["image"] = fmt.Sprintf("ray:%d", n%3) })
	},
	"requests": func(w *world, n int) { w.edit(func(spec map[string]any) { ask(spec, n%3+1) }) },
	"upgrade without quota": func(w *world, n int) {
		w.quota = 0
		w.edit(func(spec map[string]any) { container(spec)["image"] = fmt.Sprintf("ray:new-%d", n) })
		w.runUntilStable()
	},
	"taken back": func(w *world, _ int) { w.edit(w.takeBack) },
	"replicas": func(w *world, n int) {
		w.edit(func(spec map[string]any) { workers(spec)["replicas"] = int64(n%4 + 1) })
	},
	"serve config": func(w *world, n int) { w.edit(func(spec map[string]any) { spec["serveConfigV2"] = fmt.Sprint(n) }) },
	"strategy":     func(w *world, n int) { w.edit(func(spec map[string]any) { strategy(spec, n) }) },
	"groups": func(w *world, n int) {
		w.edit(func(spec map[string]any) {
			config := view.Map(spec, "rayClusterConfig")
			list := config["workerGroupSpecs"].([]any)
			if len(list) > 1 {
				config["workerGroupSpecs"] = list[:1]
				return
			}
			more := view.Maps(manifest(1+n%2, "1").Object, "spec", "rayClusterConfig", "workerGroupSpecs")[0]
			more["groupName"] = "more"
			view.Maps(more, "template", "spec", "containers")[0]["name"] = "more"
			config["workerGroupSpecs"] = append(list, more)
		})
	},
	"stop taken away": func(w *world, _ int) { w.edit(func(spec map[string]any) { spec["suspend"] = false }) },
	"hold taken away": func(w *world, _ int) {
		w.edit(func(spec map[string]any) { view.Set(spec, false, "rayClusterConfig", "suspend") })
	},
	"hold taken away, no webhook": func(w *world, _ int) {
		w.without("RayService", func() {
			w.edit(func(spec map[string]any) { view.Set(spec, false, "rayClusterConfig", "suspend") })
		})
	},
	"gate taken away": func(w *world, n int) {
		w.without([]string{"", "RayService"}[n%2], func() {
			w.edit(func(spec map[string]any) { delete(view.Map(workers(spec), "template", "spec"), "schedulingGates") })
		})
	},
	"cluster opened": func(w *world, n int) {
		w.without([]string{"", "RayCluster"}[n%2], func() {
			w.clusters(n, func(c *unstructured.Unstructured) { view.Set(c.Object, false, "spec", "suspend") })
		})
	},
	"gate of a cluster taken away": func(w *world, n int) {
		w.without([]string{"", "RayCluster"}[n%2], func() {
			w.clusters(n, func(c *unstructured.Unstructured) {
				delete(view.Map(view.Maps(c.Object, "spec", "workerGroupSpecs")[0], "template", "spec"), "schedulingGates")
			})
		})
	},
	"pods opened": func(w *world, n int) {
		w.pods(func(i int, p *corev1.Pod) {
			if i%3 == n%3 {
				p.Spec.SchedulingGates = nil
				_ = w.c.Update(w.ctx, p)
			}
		})
	},
	"a pod deleted": func(w *world, n int) {
		w.pods(func(i int, p *corev1.Pod) {
			if i == n {
				_ = w.c.Delete(w.ctx, p)
			}
		})
	},
	"a cluster scales": func(w *world, n int) {
		w.clusters(n, func(c *unstructured.Unstructured) {
			view.Maps(c.Object, "spec", "workerGroupSpecs")[0]["replicas"] = int64(n%5 + 1)
		})
	},
	"a cluster deleted": func(w *world, n int) {
		if list := w.op.Objects(w.ctx, "RayCluster"); len(list) > 0 && n%3 == 0 {
			_ = w.c.Delete(w.ctx, &list[n%len(list)])
		}
	},
	"a workload deleted": func(w *world, n int) {
		if live := w.live(); len(live) > 0 && n%3 == 0 {
			w.blind = w.blind || lifecycle.IsReserved(live[n%len(live)]) // its quota is released at once, as of any job
			_ = w.c.Delete(w.ctx, live[n%len(live)])
		}
	},
}

// holder is the newest slice that holds quota and is not evicted: the one that an eviction affects.
func (w *world) holder() *kueue.Workload {
	for _, x := range slices.Backward(w.live()) {
		if lifecycle.IsReserved(x) && !lifecycle.IsEvicted(x) {
			return x
		}
	}
	return nil
}

func (w *world) activate() {
	for _, x := range w.live() {
		if lifecycle.IsActive(x) {
			continue
		}
		next := x.DeepCopy()
		next.Spec.Active = new(true)
		_ = w.c.Update(w.ctx, next)
		w.transition(next, func(x *kueue.Workload) bool { return w.cfg.Lifecycle.Requeue(x, "Reactivated", "", metav1.Now()) })
	}
}

// edit changes the service as a user. It may be refused.
func (w *world) edit(change func(spec map[string]any)) {
	if svc := w.get(); svc != nil {
		next := svc.DeepCopy()
		change(view.Map(next.Object, "spec"))
		if err := w.c.Update(w.ctx, next); err != nil {
			w.logf("  refused: %v", err)
		}
	}
}

// without calls a function while a webhook is not served.
func (w *world) without(kind string, do func()) {
	w.away = kind
	do()
	w.away = ""
}

// clusters changes one of the clusters.
func (w *world) clusters(n int, change func(*unstructured.Unstructured)) {
	if list := w.op.Objects(w.ctx, "RayCluster"); len(list) > 0 {
		c := &list[n%len(list)]
		change(c)
		if err := w.c.Update(w.ctx, c); err != nil {
			w.logf("  refused: %v", err)
		}
	}
}

func (w *world) pods(do func(i int, p *corev1.Pod)) {
	var list corev1.PodList
	must(w, w.c.List(w.ctx, &list, client.InNamespace(w.op.Namespace)))
	for i := range list.Items {
		do(i, &list.Items[i])
	}
}

func workers(spec map[string]any) map[string]any {
	return view.Maps(spec, "rayClusterConfig", "workerGroupSpecs")[0]
}

func container(spec map[string]any) map[string]any {
	return view.Maps(workers(spec), "template", "spec", "containers")[0]
}

// ask sets the processors of workers of new clusters.
func ask(spec map[string]any, cpu int) {
	container(spec)["resources"] = map[string]any{"requests": map[string]any{"cpu": fmt.Sprint(cpu)}}
}

// takeBack resets the workers to the active cluster's.
func (w *world) takeBack(spec map[string]any) {
	active, _ := w.serving()
	for _, c := range w.op.Objects(w.ctx, "RayCluster") {
		if c.GetName() == active {
			was := view.Maps(view.Maps(c.Object, "spec", "workerGroupSpecs")[0], "template", "spec", "containers")[0]
			container(spec)["image"], container(spec)["resources"] = was["image"], was["resources"]
		}
	}
}

func strategy(spec map[string]any, n int) {
	options := map[string]any{"maxSurgePercent": int64([]int{100, 50, 30}[n%3]), "stepSizePercent": int64([]int{100, 40}[n%2])}
	switch n % 4 {
	case 0:
		delete(spec, "upgradeStrategy")
	case 1:
		spec["upgradeStrategy"] = map[string]any{"type": "None"}
	default:
		spec["upgradeStrategy"] = map[string]any{"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": options}
	}
}

// serving is the name of the active cluster, and the number of its pods that may run. It is empty if none serves.
func (w *world) serving() (name string, pods int) {
	svc, grants := w.get(), chain.Granting(w.live())
	if svc == nil || view.Bool(svc.Object, "spec", "suspend") || grants == nil || grants.DeletionTimestamp != nil {
		return "", 0 // a service whose Workload is deleted is stopped
	}
	name = view.String(svc.Object, "status", "activeServiceStatus", "rayClusterName")
	for _, c := range w.op.Objects(w.ctx, "RayCluster") {
		if c.GetName() == name {
			return name, w.open(&c)
		}
	}
	return "", 0
}

// open counts the pods of a cluster that may run.
func (w *world) open(c *unstructured.Unstructured) (n int) {
	w.pods(func(_ int, p *corev1.Pod) {
		if ref := metav1.GetControllerOf(p); ref != nil && ref.UID == c.GetUID() && !podset.HasGate(p.Spec.SchedulingGates) && p.DeletionTimestamp == nil {
			n++
		}
	})
	return n
}

// end removes the trouble, and checks the result for the service: first with the current quota, then with enough.
func (w *world) end() {
	w.op.Dies, w.op.Skips, w.op.Order, w.op.Lingers = nil, nil, nil, 0
	w.logf("end")
	before, _ := w.serving()
	w.runUntilStable()
	if now, pods := w.serving(); before != "" && pods == 0 {
		w.fail("cluster %s served, and now %q does, with no pods", before, now)
	}
	w.withdrawn()
	w.logf("enough quota")
	w.quota = 1000
	w.activate()
	w.runUntilStable()
	if err := w.served(kuberay.HashOf(view.Map(w.get().Object, "spec", "rayClusterConfig"))); err != nil {
		w.fail("%v", err)
	}
	w.deleted()
}

// withdrawn fails if an upgrade that was reverted has not ended: the active cluster matches the service, and another one waits, or
// a slice for it.
func (w *world) withdrawn() {
	goal := kuberay.HashOf(view.Map(w.get().Object, "spec", "rayClusterConfig"))
	active, _ := w.serving()
	clusters := w.op.Objects(w.ctx, "RayCluster")
	at := slices.IndexFunc(clusters, func(c unstructured.Unstructured) bool { return c.GetName() == active })
	if at < 0 || clusters[at].GetAnnotations()[kuberay.HashAnnotation] != goal {
		return
	}
	for _, c := range clusters {
		if c.GetName() != active && w.open(&c) == 0 {
			w.fail("cluster %s is what the service asks for, and %s waits to take its place", active, c.GetName())
		}
	}
}

// deleted deletes the service, and checks that nothing of it is left.
func (w *world) deleted() {
	w.op.Dies, w.op.Skips, w.op.Order, w.op.Lingers = nil, nil, nil, 0
	w.logf("no service any more")
	must(w, w.c.Delete(w.ctx, w.get()))
	w.runUntilStable()
	if left := len(w.op.Objects(w.ctx, "RayCluster")); left > 0 || len(w.live()) > 0 {
		w.fail("%d clusters and %d slices are left of a deleted service", left, len(w.live()))
	}
}

// served returns an error until one cluster serves, with all its pods, the service's spec, and one slice has its size.
func (w *world) served(goal string) error {
	clusters := w.op.Objects(w.ctx, "RayCluster")
	now, open := w.serving()
	if len(clusters) != 1 || clusters[0].GetName() != now {
		return fmt.Errorf("%d clusters, and %q serves", len(clusters), now)
	}
	none := view.String(w.get().Object, "spec", "upgradeStrategy", "type") == "None"
	if got := clusters[0].GetAnnotations()[kuberay.HashAnnotation]; got != goal && !none {
		return fmt.Errorf("the upgrade is not finished: hash %s, want %s", got, goal)
	}
	wanted := 1
	for _, group := range view.Maps(clusters[0].Object, "spec", "workerGroupSpecs") {
		wanted += int(view.Int(group, view.Int(group, 1, "minReplicas"), "replicas"))
	}
	var total int32
	live := w.live()
	for i := range live[0].Spec.PodSets {
		total += live[0].Spec.PodSets[i].Count
	}
	if open != wanted || len(live) != 1 || int(total) != wanted {
		return fmt.Errorf("%d pods run, want %d; %d slices, the first of %d", open, wanted, len(live), total)
	}
	return nil
}
