package jobtest

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// RunPlacedGroups tests that the pods of groups, StatefulSets and LeaderWorkerSets get their places, each by its rank, and get others when
// they start again after an eviction. leaderWorkerSet has 2 replicas of a leader and a worker; the test makes it 3 pods that share a rack
// (spec: 20 §4.8).
func RunPlacedGroups(t *testing.T, pods *Kind, statefulSet *job.Descriptor, leaderWorkerSet *Kind) {
	pods = pods.parallel(t)
	w := newGroupWorld(t, pods, func(w *world) revival { w.start(nil); return nil }, statefulSet, leaderWorkerSet.Descriptor)
	for name, run := range map[string]func(*groupWorld){
		"pod group":       placedGroup,
		"StatefulSet":     func(w *groupWorld) { placedStatefulSet(w, statefulSet) },
		"LeaderWorkerSet": func(w *groupWorld) { placedLeaderWorkerSet(w, leaderWorkerSet, true) },
		"LeaderWorkerSet with a leader elsewhere": func(w *groupWorld) { placedLeaderWorkerSet(w, leaderWorkerSet, false) },
	} {
		t.Run(name, func(t *testing.T) {
			at := *w.world
			at.t, at.namespace = t, at.newNamespace("yes")
			at.startUngater()
			run(&groupWorld{&at, nil})
		})
	}
}

// wish is the annotation of pods that request a rack.
func wish() map[string]string { return map[string]string{kueue.PodSetRequiredTopologyAnnotation: rack} }

// on waits until the pods are on hosts, as "pod host".
func (w *groupWorld) on(want ...string) {
	w.t.Helper()
	w.until("the pods have their places", func() error {
		w.collectPods()
		var list corev1.PodList
		w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
		var got []string
		for i := range list.Items {
			p := &list.Items[i]
			place := p.Spec.NodeSelector[corev1.LabelHostname]
			if len(p.Spec.SchedulingGates) > 0 {
				place = "gated"
			}
			got = append(got, p.Name+" "+place)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

// gone evicts a Workload and waits until its pods are gone and its quota is released.
func (w *groupWorld) gone(wl *kueue.Workload) {
	w.t.Helper()
	w.evict(wl)
	w.until("the quota is released", func() error {
		w.collectPods()
		return w.released(wl)
	})
}

// placedGroup is a group with two roles, whose pods come in the opposite order of their ranks.
func placedGroup(w *groupWorld) {
	member := func(name, role, index string) {
		w.create(name, func(o job.Object) {
			labels, annotations := o.GetLabels(), o.GetAnnotations()
			labels[kueue.PodGroupNameLabel], labels[kueue.PodGroupPodIndexLabel] = "g", index
			annotations[kueue.PodGroupTotalCountAnnotation], annotations[kueue.RoleHashAnnotation] = "4", role
			maps.Copy(annotations, wish())
			o.SetLabels(labels)
			o.SetAnnotations(annotations)
		})
	}
	create := func(prefix string) {
		member(prefix+"c", "r1", "0")
		member(prefix+"b", "r1", "1")
		member(prefix+"a", "r1", "2")
		member(prefix+"z", "r2", "0")
	}
	create("")
	wl := w.workload("g", "r1:3", "r2:1")
	w.waitUntilStable()
	w.on("a gated", "b gated", "c gated", "z gated")
	w.place(wl, []string{"n1", "n2"})
	w.on("a n2", "b n2", "c n1", "z n1")
	w.evict(wl)
	w.until("the quota is released", func() error { return w.released(wl) })
	create("again-") // the stopped pods stay until these take their places
	w.says(wl, kueue.WorkloadWaitingForReplacementPods, "False/PodsReady")
	w.place(wl, []string{"n3", "n4"})
	w.on("again-a n4", "again-b n4", "again-c n3", "again-z n3")
}

func placedStatefulSet(w *groupWorld, d *job.Descriptor) {
	set := w.statefulSet("web", map[string]string{kueue.QueueNameLabel: "lq"})
	w.must(w.c.Patch(w.ctx, set, client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"spec":{"replicas":3,"template":{"metadata":{"annotations":{%q:%q}}}}}`, kueue.PodSetRequiredTopologyAnnotation, rack))))
	wl := w.workload(w.cfg.WorkloadName(d.GVK, "web", set.UID), "main:3")
	for _, hosts := range [][]string{{"n1", "n2"}, {"n3", "n4"}} {
		controller := metav1.NewControllerRef(set, d.GVK)
		for _, index := range []string{"2", "1", "0"} {
			w.member("web-"+index, d.Framework, controller, map[string]string{"app": "web", appsv1.PodIndexLabel: index}, wish())
		}
		w.on("web-0 gated", "web-1 gated", "web-2 gated")
		w.place(wl, hosts)
		w.on("web-0 "+hosts[0], "web-1 "+hosts[1], "web-2 "+hosts[1])
		w.gone(wl)
	}
}

// placedLeaderWorkerSet has a leader, which is number 0, and two workers, which are numbers 1 and 2. Together they are a group of pod sets
// in one rack.
func placedLeaderWorkerSet(w *groupWorld, kind *Kind, together bool) {
	const domain = "leaderworkerset.sigs.k8s.io/"
	d := kind.Descriptor
	set := parse(w.t, kind.Manifest)
	set.SetNamespace(w.namespace)
	set.SetName("llm")
	set.SetLabels(map[string]string{kueue.QueueNameLabel: "lq"})
	spec := set.Object["spec"].(map[string]any)
	templates := spec["leaderWorkerTemplate"].(map[string]any)
	spec["replicas"], templates["size"] = int64(1), int64(3)
	for _, name := range []string{"leaderTemplate", "workerTemplate"} {
		annotations := map[string]any{kueue.PodSetRequiredTopologyAnnotation: rack}
		if together {
			annotations[kueue.PodSetGroupNameAnnotation] = "together"
		}
		templates[name].(map[string]any)["metadata"] = map[string]any{"annotations": annotations}
	}
	d.Default(set, true, &job.Setting{Config: w.cfg})
	w.must(w.c.Create(w.ctx, set))
	wl := w.workload(w.cfg.WorkloadName(d.GVK, "llm-0", set.GetUID()), "leader:1", "worker:2")
	controller := metav1.NewControllerRef(w.statefulSet("llm", nil), appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	member := func(name, index, template string, annotations map[string]string) {
		labels := map[string]string{domain + "name": "llm", domain + "group-index": "0", domain + "worker-index": index}
		var of corev1.PodTemplateSpec
		text, err := yaml.Marshal(templates[template])
		w.must(err)
		w.must(yaml.Unmarshal(text, &of))
		maps.Copy(of.Annotations, annotations)
		w.member(name, d.Framework, controller, labels, of.Annotations)
	}
	for _, hosts := range [][]string{{"n1", "n2"}, {"n3", "n4"}} {
		worker := map[string]string{domain + "leader-name": "llm-0"}
		member("llm-0-2", "2", "workerTemplate", worker)
		member("llm-0-1", "1", "workerTemplate", worker)
		member("llm-0", "0", "leaderTemplate", nil)
		w.on("llm-0 gated", "llm-0-1 gated", "llm-0-2 gated")
		w.place(wl, hosts)
		w.on("llm-0 "+hosts[0], "llm-0-1 "+hosts[0], "llm-0-2 "+hosts[1])
		w.gone(wl)
	}
}
