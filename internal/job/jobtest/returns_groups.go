package jobtest

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// RunReturningGroups removes the namespace of pod groups, and of the pods of a StatefulSet, from management for a while: waiting
// pods are ungated, and pods that run without quota are stopped and queued again once it is managed again.
func RunReturningGroups(t *testing.T, pods *Kind, sets *job.Descriptor) {
	pods = pods.parallel(t)
	t.Run("a pod group", func(t *testing.T) {
		anyhow(t, 6, func(t *testing.T, start trouble) { returningGroup(newGroupWorld(t, pods, start)) })
	})
	t.Run("a StatefulSet", func(t *testing.T) {
		anyhow(t, 6, func(t *testing.T, start trouble) { returningSet(newGroupWorld(t, pods, start, sets), sets) })
	})
	t.Run("a pod that no group has yet", func(t *testing.T) {
		w := newGroupWorld(t, pods, calm, sets)
		w.create("early", func(o job.Object) {
			job.MarkSuspended(o)
			o.SetFinalizers(nil)
			o.SetLabels(nil)
			o.GetAnnotations()[kueue.PodSuspendingParentAnnotation] = "statefulset"
		})
		w.waitUntilStable()
		w.are("it waits for its group", "early gated")
		w.relabel("no")
		w.are("it is given back", "early")
	})
}

// renewed waits for another Workload of the name that is not finished.
func (w *groupWorld) renewed(old *kueue.Workload) *kueue.Workload {
	w.t.Helper()
	var found kueue.Workload
	w.until("its workload is made anew", func() error {
		if err := w.c.Get(w.ctx, client.ObjectKeyFromObject(old), &found); err != nil {
			return err
		}
		if found.UID == old.UID || lifecycle.IsFinished(&found) {
			return errors.New("it is the old one")
		}
		return nil
	})
	return &found
}

func (w *groupWorld) leaves(wl *kueue.Workload) {
	w.t.Helper()
	w.relabel("no")
	w.until("the workload is out of sync", func() error { return isOutOfSync(w.get(wl)) })
}

func returningGroup(w *groupWorld) {
	w.pod("a", "r1", 2)
	w.pod("b", "r1", 2)
	wl := w.workload("g", "r1:2")
	w.leaves(wl)
	w.are("pods that wait are given back", "a held", "b held")
	w.relabel("yes")
	w.are("they are stopped")
	w.pod("c", "r1", 2)
	w.pod("d", "r1", 2)
	wl = w.renewed(wl)
	w.are("others wait", "c gated held", "d gated held")
	w.admit(wl)
	w.are("they start", "c h100 held", "d h100 held")
	w.leaves(wl)
	w.waitUntilStable()
	w.are("they run on", "c h100 held", "d h100 held")
	w.relabel("yes")
	w.until("they are stopped", func() error {
		for _, line := range w.pods() {
			if line == "c h100 held" || line == "d h100 held" {
				return fmt.Errorf("%v", w.pods())
			}
		}
		return nil
	})
}

func returningSet(w *groupWorld, sets *job.Descriptor) {
	set := w.statefulSet("web", map[string]string{kueue.QueueNameLabel: "lq"})
	member := func(name string) *corev1.Pod {
		return w.member(name, "statefulset", metav1.NewControllerRef(set, sets.GVK), map[string]string{"app": "web"}, nil)
	}
	wl := w.workload(w.cfg.WorkloadName(sets.GVK, "web", set.UID), "main:2")
	member("web-0")
	member("web-1")
	w.admit(wl)
	w.are("they start", "web-0 h100", "web-1 h100")
	w.leaves(wl)
	w.waitUntilStable()
	w.are("they run on", "web-0 h100", "web-1 h100")
	w.relabel("yes")
	wl = w.renewed(wl)
	w.are("they are stopped")
	member("web-0")
	member("web-1")
	w.waitUntilStable()
	w.are("others wait", "web-0 gated", "web-1 gated")
	w.until("they are in their group", func() error { return w.grouped(wl, "web-0", "web-1") })
	w.leaves(wl)
	w.are("they are given back", "web-0", "web-1")
	w.relabel("yes")
	wl = w.renewed(wl)
	w.are("they are stopped, too")
	member("web-0")
	member("web-1")
	w.admit(wl)
	w.are("others start", "web-0 h100", "web-1 h100")
}

// grouped is nil once the pods are in the group of a Workload.
func (w *groupWorld) grouped(wl *kueue.Workload, names ...string) error {
	for _, name := range names {
		var pod corev1.Pod
		if err := w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &pod); err != nil {
			return err
		}
		if w.cfg.GroupName(&pod) != wl.Name {
			return fmt.Errorf("%s is in group %q", name, w.cfg.GroupName(&pod))
		}
	}
	return nil
}
