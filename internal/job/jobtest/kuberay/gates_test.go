package kuberay_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-project/berth/internal/job/jobtest/kuberay"
	"github.com/berth-project/berth/internal/job/kind/ray/plan"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// waiting is the cluster that is not active, nil if there is none.
func (w *world) waiting() *unstructured.Unstructured {
	active := view.String(w.get().Object, "status", "activeServiceStatus", "rayClusterName")
	for _, c := range w.op.Objects(w.ctx, "RayCluster") {
		if c.GetName() != active {
			return &c
		}
	}
	return nil
}

// strip ungates the waiting cluster and some of its pods, as an administrator could.
func (w *world) strip(most int) (n int) {
	c := w.waiting()
	if c == nil {
		return 0
	}
	if view.Bool(c.Object, "spec", "suspend") {
		view.Set(c.Object, false, "spec", "suspend")
		_ = w.c.Update(w.ctx, c)
	}
	for range 2 { // the first one only ends the suspension
		w.op.Step(w.ctx)
	}
	w.pods(func(_ int, p *corev1.Pod) {
		if ref := metav1.GetControllerOf(p); ref != nil && ref.UID == c.GetUID() && podset.HasGate(p.Spec.SchedulingGates) && n < most {
			p.Spec.SchedulingGates = nil
			if w.c.Update(w.ctx, p) == nil {
				n++
			}
		}
	})
	return n
}

// TestGatesRemovedInALoop removes the gates of a waiting cluster's pods in a loop without webhooks. Berth deletes the first pod,
// suspends the cluster after the second, and releases it after its admission.
func TestGatesRemovedInALoop(t *testing.T) {
	for _, hold := range []string{"ChildSuspended", "GatedPods"} {
		t.Run(hold, func(t *testing.T) {
			w := newWorld(t, hold)
			w.quota = 4
			must(w, w.c.Create(w.ctx, manifest(2, "1")))
			w.runUntilStable()
			active, pods := w.serving()
			w.edit(func(spec map[string]any) { ask(spec, 2) })
			w.runUntilStable()
			webhooks := w.m.Admit
			w.m.Admit, w.blind = nil, true
			for n := range 20 {
				if n < 2 && w.strip(1) != 1 {
					w.fail("there is no gate to remove")
				} else if n >= 2 {
					w.strip(100)
				}
				for w.see(); w.reconcile(); w.see() {
					continue
				}
				w.m.End(100)
				if c := w.waiting(); c == nil || view.Bool(c.Object, "spec", "suspend") != (n > 0) || w.open(c) > 0 {
					w.fail("the administrator was there %d times", n+1)
				}
			}
			w.m.Admit = webhooks
			w.runUntilStable()
			if now, n := w.serving(); now != active || n != pods {
				w.fail("cluster %s served with %d pods, and %s does now, with %d", active, pods, now, n)
			}
			if c := w.waiting(); !view.Bool(c.Object, "spec", "suspend") {
				w.fail("the cluster is let go without quota")
			}
			w.quota = 100
			w.runUntilStable()
			if err := w.served(kuberay.HashOf(view.Map(w.get().Object, "spec", "rayClusterConfig"))); err != nil {
				w.fail("%v", err)
			}
			if note := w.op.Objects(w.ctx, "RayCluster")[0].GetAnnotations()[plan.UngatedAnnotation]; note != "" {
				w.fail("the cluster is admitted, and its annotation says %q", note)
			}
		})
	}
}
