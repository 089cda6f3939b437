package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestKilledAtAnyWrite takes a job through its whole life, an eviction included, with the manager killed at each of its
// writes in turn and started again. The end is the same every time, and nothing is done twice.
func TestKilledAtAnyWrite(t *testing.T) {
	t.Parallel()
	embeddedtest.AtEveryWrite(t, 8, func(t *testing.T, m *embeddedtest.Mortal) {
		w := newStoppedWorld(t, defaultConfig())
		plain := w.rest
		w.rest = rest.CopyConfig(plain)
		w.rest.Wrap(m.Wrap)
		w.start()
		revive := func() {
			m.Revive(func() {
				w.stop()
				w.rest = plain
				w.start()
			})
		}
		live(t, w, revive)
	})
}

// live is the life of one job. revive starts the manager again if it was killed.
func live(t *testing.T, w *world, revive func()) {
	t.Helper()
	until := func(what string, check func() error) {
		t.Helper()
		w.until(what, func() error { revive(); return check() })
	}
	j := w.newJob("train")
	w.create(j)
	key := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.namespace, Name: w.cfg.WorkloadName(batchv1.SchemeGroupVersion.WithKind("Job"), j.Name, j.UID),
	}}
	exists := func() error {
		var list kueue.WorkloadList
		if err := w.c.List(w.ctx, &list); err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(x kueue.Workload) bool { return x.Name == key.Name && x.Namespace == key.Namespace }) {
			return errors.New("it does not exist")
		}
		return nil
	}
	runs := func() error {
		if suspended(w.job("train")) {
			return errors.New("it is suspended")
		}
		return nil
	}
	until("the workload exists", exists)
	wl := w.admit(key)
	until("the job runs", runs)
	w.setStatus("train", func(s *batchv1.JobStatus) { s.StartTime = new(metav1.Now()) })
	w.evict(wl)
	until("the quota is released", func() error {
		if lifecycle.IsReserved(w.get(wl)) {
			return fmt.Errorf("%v", conditionTypes(w.get(wl)))
		}
		return nil
	})
	w.admit(wl)
	until("the job runs again", runs)
	w.complete("train")
	until("the workload is let go", func() error {
		if got := w.get(wl); !lifecycle.IsFinished(got) || len(got.Finalizers) > 0 {
			return fmt.Errorf("%v, finalizers %v", conditionTypes(got), got.Finalizers)
		}
		return nil
	})
	w.waitUntilStable()

	end := w.job("train")
	if end.Generation != 5 { // created, started, suspended, restored, started
		t.Errorf("the spec of the job was changed %d times, want 4", end.Generation-1)
	}
	if diff := cmp.Diff(map[string]string{"zone": "a", "pool": "h100"}, end.Spec.Template.Spec.NodeSelector); diff != "" || suspended(end) || end.Annotations[kueue.JobStoppingAnnotation] != "" {
		t.Errorf("suspended %v, annotations %v, node selector -want +got:\n%s", suspended(end), end.Annotations, diff)
	}
	want := []string{
		"Admitted=True/Admitted", "Evicted=False/QuotaReserved", "Finished=True/Succeeded",
		"Preempted=False/QuotaReserved", "QuotaReserved=True/QuotaReserved", "Requeued=True/Preempted",
	}
	got := w.get(wl)
	if diff := cmp.Diff(want, conditionTypes(got)); diff != "" || got.UID != wl.UID {
		t.Errorf("same workload %v, conditions -want +got:\n%s", got.UID == wl.UID, diff)
	}
	if stats := got.Status.SchedulingStats; stats == nil || len(stats.Evictions) != 1 || stats.Evictions[0].Count != 1 {
		t.Errorf("evictions %v", stats)
	}
	var count int
	for _, reason := range w.events("train") {
		if reason == "Started" {
			count++
		}
	}
	if count > 2 {
		t.Errorf("%d events Started", count)
	}
}
