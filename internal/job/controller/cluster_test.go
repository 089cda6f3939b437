package controller_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestWithTheJobController runs on a whole cluster, where the Job controller makes pods and nodes run them: jobs finish, are
// preempted while they run and start again, and are deleted.
func TestWithTheJobController(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a whole cluster")
	}
	kubeconfig := embeddedtest.Start(t, embeddedtest.Full)
	restConfig := embeddedtest.ConfigOf(t, kubeconfig)
	c, err := client.New(restConfig, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: t.Context(), c: c, cfg: defaultConfig(), rest: restConfig, writes: &writes{}, stop: sync.OnceFunc(func() {})}
	w.install()
	w.namespace = w.newNamespace("yes")
	w.start()

	t.Run("finish", func(t *testing.T) {
		w.t = t
		j := w.newJob("short")
		w.onAnyNode(j.Spec.Template.Spec.NodeSelector)
		j.Spec.Template.Annotations = map[string]string{"berth.dev/run-seconds": "0.1"}
		w.create(j)
		wl := w.workloadOf(j)
		w.admit(wl)
		w.until("the workload finishes", func() error {
			if c := lifecycle.Condition(w.get(wl), kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonSucceeded {
				return fmt.Errorf("%v, job %+v", conditionTypes(w.get(wl)), w.job("short").Status)
			}
			return nil
		})
	})

	t.Run("preempt and start again", func(t *testing.T) {
		w.t = t
		j := w.newJob("long")
		j.Spec.Template.Annotations = map[string]string{"berth.dev/run-seconds": "600"}
		w.create(j)
		wl := w.workloadOf(j)
		for round := range 2 {
			w.admit(wl)
			w.until("its pods exist", func() error {
				if got := w.job("long").Status.Active; got != 2 {
					return fmt.Errorf("round %d: %d pods", round, got)
				}
				return nil
			})
			w.evict(wl)
			w.until("the quota is released", func() error {
				if lifecycle.IsReserved(w.get(wl)) {
					return fmt.Errorf("round %d: %v, job %+v", round, conditionTypes(w.get(wl)), w.job("long").Status)
				}
				return nil
			})
			stopped := w.job("long")
			if diff := cmp.Diff(map[string]string{"zone": "a"}, stopped.Spec.Template.Spec.NodeSelector); diff != "" || !suspended(stopped) || !onlyMarked(stopped.Annotations) {
				t.Errorf("round %d: suspended %v, annotations %v, node selector -want +got:\n%s", round, suspended(stopped), stopped.Annotations, diff)
			}
		}
		w.must(c.Delete(w.ctx, j, client.PropagationPolicy("Background")))
		w.until("its workload is over, or collected already", func() error {
			var got kueue.Workload
			err := c.Get(w.ctx, client.ObjectKeyFromObject(wl), &got)
			if err == nil && (!lifecycle.IsFinished(&got) || len(got.Finalizers) > 0) {
				return fmt.Errorf("%v, finalizers %v", conditionTypes(&got), got.Finalizers)
			}
			return client.IgnoreNotFound(err)
		})
	})
}

// onAnyNode drops selectors that no node has.
func (w *world) onAnyNode(selector map[string]string) {
	delete(selector, "zone")
	var flavor kueue.ResourceFlavor
	w.must(w.c.Get(w.ctx, client.ObjectKey{Name: "gpu"}, &flavor))
	var nodes corev1.NodeList
	w.must(w.c.List(w.ctx, &nodes))
	for i := range nodes.Items {
		embeddedtest.Edit(w.t, w.c, &nodes.Items[i], func(n *corev1.Node) { n.Labels["pool"] = flavor.Spec.NodeLabels["pool"] })
	}
}
