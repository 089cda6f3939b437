package controller_test

import (
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestDisabledKinds: when kinds are removed from the configuration their Workloads give their quota back and pods lose their finalizer, and no
// job is changed; when they are back, running jobs are queued anew. It is not parallel, since it releases the pods of all namespaces.
func TestDisabledKinds(t *testing.T) { //nolint:paralleltest // see above
	cfg := defaultConfig()
	cfg.Kinds[corev1.SchemeGroupVersion.WithKind("Pod")] = true
	enabled := cfg.Kinds
	w := newWorld(t, cfg)
	j, running := w.started("runs")
	_, pending := w.queued("waits")
	group := w.group("g", 2)
	restart := func(kinds job.Kinds) {
		w.stop()
		next := *w.cfg
		next.Kinds = kinds
		w.cfg = &next
		w.start()
	}

	restart(job.Kinds{batchv1.SchemeGroupVersion.WithKind("Job"): false, corev1.SchemeGroupVersion.WithKind("Pod"): false})
	for _, wl := range []*kueue.Workload{running, pending, group} {
		w.until("the workload ends", func() error {
			got := w.get(wl)
			if c := lifecycle.Condition(got, kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonOutOfSync || len(got.Finalizers) > 0 {
				return fmt.Errorf("finalizers %v, condition %v", got.Finalizers, c)
			}
			return nil
		})
	}
	w.until("the pods have no finalizer", func() error {
		var pods corev1.PodList
		if err := w.c.List(w.ctx, &pods, client.InNamespace(w.namespace)); err != nil || len(pods.Items) != 2 {
			return fmt.Errorf("%d pods: %w", len(pods.Items), err)
		}
		if at := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return len(p.Finalizers) > 0 || !job.PodIsGated(&p) }); at >= 0 {
			return fmt.Errorf("pod %s: finalizers %v, gates %v", pods.Items[at].Name, pods.Items[at].Finalizers, pods.Items[at].Spec.SchedulingGates)
		}
		return nil
	})
	if *w.job("runs").Spec.Suspend || !*w.job("waits").Spec.Suspend {
		t.Error("a job was stopped or resumed")
	}

	restart(enabled)
	w.until("the job that ran is queued anew", func() error {
		stopped := w.job("runs")
		var wl kueue.Workload
		if err := w.c.Get(w.ctx, client.ObjectKeyFromObject(running), &wl); err != nil || wl.UID == running.UID || !*stopped.Spec.Suspend {
			return fmt.Errorf("suspended %v, workload %s: %w", *stopped.Spec.Suspend, wl.UID, err)
		}
		return nil
	})
	if w.job("runs").UID != j.UID {
		t.Error("it is another job")
	}
}
