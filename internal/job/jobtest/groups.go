package jobtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// groupWorld is a world with a manager whose writes may fail.
type groupWorld struct {
	*world
	revive revival
}

// newGroupWorld starts a manager for some kinds, one of them pods.
func newGroupWorld(t *testing.T, pods *Kind, start trouble, kinds ...*job.Descriptor) *groupWorld {
	t.Helper()
	w := newWorld(t, pods, append(kinds, pods.Descriptor))
	return &groupWorld{w, start(w)}
}

// anyhow runs a test without and with trouble: with -long with both sorts, otherwise with one of them.
func anyhow(t *testing.T, least int, live func(*testing.T, trouble)) {
	t.Run("undisturbed", func(t *testing.T) { live(t, calm) })
	for _, disturbed := range embeddedtest.Sample(t, 1, []func(){func() { dying(t, least, live) }, func() { failing(t, least/3, live) }}) {
		disturbed()
	}
}

// until waits, and keeps the manager running.
func (w *groupWorld) until(what string, check func() error) {
	w.t.Helper()
	wait.Until(w.t, what, w.revive.before(check))
}

// pod creates a pod of group g, as by the webhook, with a role.
func (w *groupWorld) pod(name, role string, total int) *corev1.Pod {
	w.t.Helper()
	return w.create(name, func(o job.Object) {
		labels, annotations := o.GetLabels(), o.GetAnnotations()
		labels[kueue.PodGroupNameLabel] = "g"
		annotations[kueue.PodGroupTotalCountAnnotation], annotations[kueue.RoleHashAnnotation] = fmt.Sprint(total), role
		o.SetLabels(labels)
		o.SetAnnotations(annotations)
	}).(*corev1.Pod)
}

func (w *groupWorld) pods() []string {
	w.t.Helper()
	var list corev1.PodList
	w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
	var out []string
	for i := range list.Items {
		p := &list.Items[i]
		line := p.Name
		if job.PodIsGated(p) {
			line += " gated"
		}
		if p.Spec.NodeSelector["pool"] != "" {
			line += " " + p.Spec.NodeSelector["pool"]
		}
		if slices.Contains(p.Finalizers, kueue.ManagedFinalizer) {
			line += " held"
		}
		if p.DeletionTimestamp != nil {
			line += " deleted"
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// are waits until the pods are as given.
func (w *groupWorld) are(what string, want ...string) {
	w.t.Helper()
	w.until(what, func() error {
		w.collectPods()
		if diff := cmp.Diff(want, w.pods()); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

// collectPods stands in for Kubernetes' pod garbage collector: the API server deletes a pod in two steps, and a client that dies
// between them leaves a pod that is marked as deleted, without a node or finalizers.
func (w *world) collectPods() {
	w.t.Helper()
	var list corev1.PodList
	w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp != nil && p.Spec.NodeName == "" && len(p.Finalizers) == 0 {
			w.must(client.IgnoreNotFound(w.c.Delete(w.ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})))
		}
	}
}

// workload waits for a Workload with pod sets as name:count.
func (w *groupWorld) workload(name string, podSets ...string) *kueue.Workload {
	w.t.Helper()
	var found kueue.Workload
	w.until("workload "+name, func() error {
		if err := w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &found); err != nil {
			return err
		}
		var got []string
		for _, s := range found.Spec.PodSets {
			got = append(got, fmt.Sprintf("%s:%d", s.Name, s.Count))
		}
		if diff := cmp.Diff(podSets, got); diff != "" {
			return fmt.Errorf("pod sets -want +got:\n%s", diff)
		}
		return nil
	})
	return &found
}

// says waits for a condition of a Workload.
func (w *groupWorld) says(wl *kueue.Workload, condition, want string) {
	w.t.Helper()
	w.until(condition+" is "+want, func() error {
		if c := lifecycle.Condition(w.get(wl), condition); c == nil || string(c.Status)+"/"+c.Reason != want {
			return fmt.Errorf("%v", conditions(w.get(wl)))
		}
		return nil
	})
}

// RunGroups tests the life of pod groups: queued, started, preempted, replaced and finished together, whatever happens to the
// writes of the manager.
func RunGroups(t *testing.T, pods *Kind) {
	pods = pods.parallel(t)
	anyhow(t, 15, func(t *testing.T, start trouble) {
		w := newGroupWorld(t, pods, start)
		a := w.pod("a", "r1", 3)
		b := w.pod("b", "r1", 3)
		w.waitUntilStable()
		if n := len(w.workloads()); n > 0 {
			t.Fatalf("%d workloads for 2 pods of 3", n)
		}
		c := w.pod("c", "r2", 3)
		wl := w.workload("g", "r1:2", "r2:1")
		if len(wl.OwnerReferences) != 3 || metav1.GetControllerOf(wl) != nil || wl.Annotations[kueue.IsGroupWorkloadAnnotation] != "true" {
			t.Errorf("owners %v, annotations %v", wl.OwnerReferences, wl.Annotations)
		}
		w.admit(wl)
		w.are("all start", "a h100 held", "b h100 held", "c h100 held")
		if w.revive == nil { // otherwise some are lost
			for _, o := range []job.Object{a, b, c} {
				w.until("each says that it started", func() error {
					if n := count(w.events(o), "Started"); n != 1 {
						return fmt.Errorf("%d events Started about %s", n, o.GetName())
					}
					return nil
				})
			}
		}
		w.pod("d", "r1", 3)
		w.are("a fourth is one too many", "a h100 held", "b h100 held", "c h100 held")
		w.status(a, Failed)
		w.says(wl, kueue.WorkloadWaitingForReplacementPods, "True/PodsFailed")
		a2 := w.pod("a2", "r1", 3)
		w.are("a2 takes its place", "a h100", "a2 h100 held", "b h100 held", "c h100 held")
		w.says(wl, kueue.WorkloadWaitingForReplacementPods, "False/PodsReady")
		for _, o := range []job.Object{a2, b, c} {
			w.status(o, Active)
		}
		w.evict(wl)
		w.are("they are stopped and kept for their replacements", "a h100", "a2 h100 held deleted", "b h100 held deleted", "c h100 held deleted")
		w.until("the quota is released", func() error { return w.released(wl) })
		w.says(wl, kueue.WorkloadWaitingForReplacementPods, "True/Preempted")
		again := []job.Object{w.pod("x", "r1", 3), w.pod("y", "r1", 3), w.pod("z", "r2", 3)}
		w.are("others take their places", "a h100", "x gated held", "y gated held", "z gated held")
		w.says(wl, kueue.WorkloadWaitingForReplacementPods, "False/PodsReady")
		w.admit(wl)
		w.are("these start", "a h100", "x h100 held", "y h100 held", "z h100 held")
		for _, o := range again {
			w.status(o, Succeeded)
		}
		w.are("all are let go", "a h100", "x h100", "y h100", "z h100")
		w.says(wl, kueue.WorkloadFinished, "True/Succeeded")
		w.finalized(wl)
		for _, line := range w.traffic.unpinned {
			t.Errorf("a patch without a resource version: %s", line)
		}
	})
}

// RunGroupDeletions deletes pods and Workloads of groups in every state. The rest keeps no finalizer of ours.
func RunGroupDeletions(t *testing.T, pods *Kind) {
	w := newGroupWorld(t, pods.parallel(t), func(w *world) revival { w.start(nil); return nil }) // for all namespaces
	in := func(name string, run func(*groupWorld)) {
		t.Run(name, func(t *testing.T) {
			at := *w.world
			at.t, at.namespace = t, at.newNamespace("yes")
			run(&groupWorld{&at, w.revive})
		})
	}
	remove := func(w *groupWorld, o client.Object) { w.t.Helper(); w.must(w.c.Delete(w.ctx, o)) }
	in("all pods, before there is a workload", func(w *groupWorld) {
		for _, name := range []string{"a", "b"} {
			remove(w, w.pod(name, "r", 3))
		}
		w.are("none is left")
		w.waitUntilStable()
		if n := len(w.workloads()); n > 0 {
			t.Errorf("%d workloads", n)
		}
	})
	in("the workload, while the group waits", func(w *groupWorld) {
		w.pod("a", "r", 1)
		remove(w, w.workload("g", "r:1"))
		w.are("the pod goes too")
		w.until("the workload is gone", func() error { return w.none() })
	})
	in("the workload, while the group runs", func(w *groupWorld) {
		w.pod("a", "r", 2)
		w.pod("b", "r", 2)
		wl := w.workload("g", "r:2")
		w.admit(wl)
		w.are("they run", "a h100 held", "b h100 held")
		remove(w, wl)
		w.are("the pods go too")
		w.until("the workload is gone", func() error { return w.none() })
	})
	in("a foreign workload of the group's name", func(w *groupWorld) {
		w.pod("a", "r", 1)
		taken := w.workload("g", "r:1").DeepCopy()
		remove(w, taken)
		w.until("the workload is gone", func() error { return w.none() })
		w.are("and its pod")
		taken.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: "g"}
		w.must(w.c.Create(w.ctx, taken))
		b := w.pod("b", "r", 1)
		w.until("the pod says so", func() error {
			if count(w.events(b), "WorkloadNameConflict") != 1 {
				return fmt.Errorf("events %v", w.events(b))
			}
			return nil
		})
		remove(w, taken)
		w.until("the group gets its own", func() error {
			if got := w.workloads(); len(got) != 1 || got[0].Annotations[kueue.IsGroupWorkloadAnnotation] == "" {
				return fmt.Errorf("%d workloads", len(got))
			}
			return nil
		})
	})
	in("a pod that joins later", joinLater)
	in("the last pod of a group that is prebuilt", func(w *groupWorld) {
		w.pod("a", "r", 1)
		wl := w.workload("g", "r:1")
		w.admit(wl)
		w.are("it runs", "a h100 held")
		var a corev1.Pod
		w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "a"}, &a))
		a.Finalizers = nil
		w.must(w.c.Update(w.ctx, &a))
		remove(w, &a)
		w.finalized(wl)
	})
}

// joinLater is a pod that another controller gates, and adds to a group of its own later (spec: 30 §7 example 71).
func joinLater(w *groupWorld) {
	pod := w.create("a", func(o job.Object) {
		o.SetLabels(nil)
		o.SetFinalizers(nil)
		o.SetAnnotations(map[string]string{kueue.PodSuspendingParentAnnotation: "acme", kueue.RoleHashAnnotation: "r"})
	})
	w.waitUntilStable()
	w.must(w.none())
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"true",%q:"lq",%q:"g"},"annotations":{%q:"1"}}}`,
		kueue.ManagedLabel, kueue.QueueNameLabel, kueue.PodGroupNameLabel, kueue.PodGroupTotalCountAnnotation)
	w.must(w.c.Patch(w.ctx, pod, client.RawPatch("application/merge-patch+json", []byte(patch))))
	w.admit(w.workload("g", "r:1"))
	w.are("it runs", "a h100")
}

// none expects no Workloads.
func (w *groupWorld) none() error {
	if n := len(w.workloads()); n > 0 {
		return fmt.Errorf("%d workloads", n)
	}
	return nil
}

// finalized waits until a Workload has no finalizer.
func (w *groupWorld) finalized(wl *kueue.Workload) {
	w.t.Helper()
	w.until("the finalizer of the workload is removed", func() error {
		if got := w.get(wl); len(got.Finalizers) > 0 || got.UID != wl.UID {
			return fmt.Errorf("finalizers %v", got.Finalizers)
		}
		return nil
	})
}

// statefulSet creates a StatefulSet of two pods.
func (w *groupWorld) statefulSet(name string, labels map[string]string) *appsv1.StatefulSet {
	w.t.Helper()
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
			},
		},
	}
	w.must(w.c.Create(w.ctx, set))
	return set
}

// member creates a pod of a serving kind's template, as its StatefulSet would.
func (w *groupWorld) member(name, framework string, controller *metav1.OwnerReference, labels, annotations map[string]string) *corev1.Pod {
	w.t.Helper()
	return w.create(name, func(o job.Object) {
		pod := o.(*corev1.Pod)
		pod.Finalizers, pod.OwnerReferences = nil, []metav1.OwnerReference{*controller}
		pod.Labels, pod.Annotations = labels, map[string]string{kueue.PodSuspendingParentAnnotation: framework}
		maps.Copy(pod.Annotations, annotations)
	}).(*corev1.Pod)
}

// RunStatefulSets tests the life of queued StatefulSets, whatever happens to the writes of the manager. The test creates the pods.
func RunStatefulSets(t *testing.T, sets *job.Descriptor, pods *Kind) {
	pods = pods.parallel(t)
	anyhow(t, 8, func(t *testing.T, start trouble) {
		w := newGroupWorld(t, pods, start, sets)
		set := w.statefulSet("web", map[string]string{kueue.QueueNameLabel: "lq"})
		name := w.cfg.WorkloadName(sets.GVK, "web", set.UID)
		scale := func(n string) {
			w.must(w.c.Patch(w.ctx, set, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":`+n+`}}`))))
		}
		wl := w.workload(name, "main:2")
		controller := metav1.NewControllerRef(set, sets.GVK)
		member := func(name string) *corev1.Pod {
			return w.member(name, "statefulset", controller, map[string]string{"app": "web"}, nil)
		}
		first := member("web-0")
		w.admit(wl)
		w.are("the first pod starts", "web-0 h100")
		second := member("web-1")
		w.are("the second pod starts", "web-0 h100", "web-1 h100")
		scale("0")
		w.says(wl, kueue.WorkloadQuotaReserved, "False/OnHold")
		for _, o := range []client.Object{first, second} {
			w.must(client.IgnoreNotFound(w.c.Delete(w.ctx, o)))
		}
		scale("3")
		w.workload(name, "main:3")
		w.says(wl, kueue.WorkloadQuotaReserved, "False/PendingEvaluation")
		member("web-0")
		w.waitUntilStable()
		w.are("a pod waits", "web-0 gated")
		w.admit(wl)
		w.are("it starts", "web-0 h100")
		w.evict(wl)
		w.are("it is stopped")
		w.until("the quota is released", func() error { return w.released(wl) })
		w.must(w.c.Delete(w.ctx, set))
		w.finalized(wl)
		collected := &kueue.Workload{ // the garbage collector has removed the reference to the StatefulSet
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.namespace, Name: "collected", Finalizers: []string{kueue.ResourceInUseFinalizer},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: first.Name, UID: first.UID}},
				Annotations: map[string]string{
					kueue.IsGroupWorkloadAnnotation: "true", kueue.JobOwnerGVKAnnotation: sets.GVK.String(), kueue.JobOwnerNameAnnotation: "web",
				},
			},
			Spec: wl.Spec,
		}
		w.must(w.c.Create(w.ctx, collected))
		w.finalized(collected)
		w.orphaned(sets)
	})
}

// orphaned deletes a StatefulSet and leaves its pods: they keep the quota until the last one has gone.
func (w *groupWorld) orphaned(sets *job.Descriptor) {
	w.t.Helper()
	set := w.statefulSet("kept", map[string]string{kueue.QueueNameLabel: "lq"})
	wl := w.workload(w.cfg.WorkloadName(sets.GVK, "kept", set.UID), "main:2")
	pod := w.member("kept-0", "statefulset", metav1.NewControllerRef(set, sets.GVK), map[string]string{"app": "web"}, nil)
	w.admit(wl)
	w.are("it starts", "kept-0 h100")
	w.must(w.c.Delete(w.ctx, set, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	orphan := []byte(`{"metadata":{"ownerReferences":null}}`) // as the garbage collector writes it
	w.must(w.c.Patch(w.ctx, pod, client.RawPatch("application/merge-patch+json", orphan)))
	w.must(w.c.Patch(w.ctx, wl, client.RawPatch("application/merge-patch+json", []byte(
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"kept-0","uid":"`+string(pod.UID)+`"}]}}`))))
	w.must(client.IgnoreNotFound(w.c.Patch(w.ctx, set, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))))
	w.finalized(wl)
	w.waitUntilStable()
	w.says(wl, kueue.WorkloadAdmitted, "True/Admitted")
	if got := w.get(wl); lifecycle.IsFinished(got) {
		w.t.Errorf("its pod runs, and its Workload is finished: %+v", got.Status.Conditions)
	}
	w.must(w.c.Delete(w.ctx, pod, client.GracePeriodSeconds(0)))
	w.says(wl, kueue.WorkloadFinished, "True/"+kueue.ReasonOwnerNotFound)
}

// RunLeaderWorkerSets tests the life of LeaderWorkerSets, with groups that are admitted, evicted and removed one by one. The test
// creates the pods. set has 2 replicas of a leader and a worker.
func RunLeaderWorkerSets(t *testing.T, kind *Kind, pods *Kind) {
	sets := kind.Descriptor
	pods = pods.parallel(t)
	anyhow(t, 8, func(t *testing.T, start trouble) {
		w := newGroupWorld(t, pods, start, sets)
		set := parse(t, kind.Manifest)
		set.SetNamespace(w.namespace)
		set.SetName("llm")
		set.SetLabels(map[string]string{kueue.QueueNameLabel: "lq"})
		w.must(w.c.Create(w.ctx, set))
		name := func(i int) string { return w.cfg.WorkloadName(sets.GVK, fmt.Sprintf("llm-%d", i), set.GetUID()) }
		zero, one := w.workload(name(0), "leader:1", "worker:1"), w.workload(name(1), "leader:1", "worker:1")
		own := w.statefulSet("llm", nil)
		controller := metav1.NewControllerRef(own, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
		member := func(name, group string, annotations map[string]string) {
			labels := map[string]string{"leaderworkerset.sigs.k8s.io/name": "llm", "leaderworkerset.sigs.k8s.io/group-index": group}
			w.member(name, sets.Framework, controller, labels, annotations)
		}
		worker := map[string]string{"leaderworkerset.sigs.k8s.io/leader-name": "x"}
		for _, group := range []string{"0", "1"} {
			member("llm-"+group, group, nil)
			member("llm-"+group+"-1", group, worker)
		}
		w.admit(zero)
		w.are("one group starts", "llm-0 h100", "llm-0-1 h100", "llm-1 gated", "llm-1-1 gated")
		w.admit(one)
		w.are("both run", "llm-0 h100", "llm-0-1 h100", "llm-1 h100", "llm-1-1 h100")
		w.evict(zero)
		w.are("one is stopped", "llm-1 h100", "llm-1-1 h100")
		w.until("its quota is released", func() error { return w.released(zero) })
		member("llm-0", "0", nil)
		member("llm-0-1", "0", worker)
		w.admit(zero)
		w.are("it starts again", "llm-0 h100", "llm-0-1 h100", "llm-1 h100", "llm-1-1 h100")
		w.must(w.c.Patch(w.ctx, set, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":1}}`))))
		w.until("the workload of the other is gone", func() error {
			if got := w.workloads(); len(got) != 1 || got[0].UID != zero.UID {
				return fmt.Errorf("%d workloads", len(got))
			}
			return nil
		})
		member("late", "1", nil)
		w.must(w.c.Delete(w.ctx, set))
		w.until("what waits is let through", func() error {
			if lines := strings.Join(w.pods(), ", "); strings.Contains(lines, "gated") {
				return fmt.Errorf("%s", lines)
			}
			return nil
		})
	})
}
