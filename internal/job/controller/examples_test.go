package controller_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestFinishedEventIsRecordedOnce starts the manager again and again over a Job that is through (spec: 30 §7 example 27).
func TestFinishedEventIsRecordedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, defaultConfig())
	w.started("train")
	w.complete("train")
	w.expectEvents("train", "CreatedWorkload", "FinishedWorkload", "Started")
	before := len(w.writes.in(w.namespace))
	for range 5 {
		w.stop()
		w.start()
		w.waitUntilStable()
	}
	w.expectEvents("train", "CreatedWorkload", "FinishedWorkload", "Started")
	if after := w.writes.in(w.namespace); len(after) > before+1 { // the finalizer of the Workload may have been left to the next one
		t.Errorf("written after the end: %v", after[before:])
	}
}

// TestRecreated deletes a Job and makes another of its name, while no manager looks (spec: 30 §7 example 19).
func TestRecreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, defaultConfig())
	j, old := w.started("train")
	w.stop()
	w.must(w.c.Delete(w.ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	again := w.newJob("train")
	w.create(again)
	w.start()
	w.until("the old workload ends", func() error {
		got := w.get(old)
		if c := lifecycle.Condition(got, kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonOwnerNotFound || len(got.Finalizers) > 0 {
			return fmt.Errorf("conditions %v, finalizers %v", conditionTypes(got), got.Finalizers)
		}
		return nil
	})
	if found := w.workloadOf(again); found.Name == old.Name || lifecycle.IsReserved(found) {
		t.Errorf("workload %s, conditions %v; the old one is %s", found.Name, conditionTypes(found), old.Name)
	}
}

// TestAdmissionTakenBack clears the admission of a Job that runs by hand (spec: 30 §7 example 65).
func TestAdmissionTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, defaultConfig())
	_, wl := w.started("train")
	w.play(wl, func(x *kueue.Workload) bool {
		return w.cfg.Lifecycle.Pending(x, kueue.ReasonPendingEvaluation, "by hand", metav1.Now())
	})
	w.until("the job is stopped, with its own selectors", func() error {
		got := w.job("train")
		if diff := cmp.Diff(map[string]string{"zone": "a"}, got.Spec.Template.Spec.NodeSelector); !suspended(got) || diff != "" {
			return fmt.Errorf("suspended %v, node selector -want +got:\n%s", suspended(got), diff)
		}
		return nil
	})
	w.waitUntilStable()
	if got := w.get(wl); got.UID != wl.UID {
		t.Error("the workload was replaced")
	}
	w.expectEvents("train", "CreatedWorkload", "Started", "Stopped")
}

// TestKilledWhileReplacing edits a Job whose Workload has a quota reservation and waits for a check: the Workload is released,
// deleted and created again, with the manager killed at each of these writes in turn (spec: 30 §7 example 21).
func TestKilledWhileReplacing(t *testing.T) {
	t.Parallel()
	embeddedtest.AtEveryWrite(t, 4, func(t *testing.T, m *embeddedtest.Mortal) {
		w := newStoppedWorld(t, defaultConfig())
		plain := w.rest
		w.rest = rest.CopyConfig(plain)
		w.rest.Wrap(m.Wrap)
		w.start()
		until := func(what string, check func() error) {
			t.Helper()
			w.until(what, func() error {
				m.Revive(func() { w.stop(); w.rest = plain; w.start() })
				return check()
			})
		}
		j := w.newJob("train")
		w.create(j)
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: w.cfg.WorkloadName(batchv1.SchemeGroupVersion.WithKind("Job"), j.Name, j.UID),
		}}
		until("the workload exists", func() error { return w.c.Get(w.ctx, client.ObjectKeyFromObject(wl), wl) })
		w.play(wl, func(x *kueue.Workload) bool {
			a := &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(2))}}}
			return w.cfg.Lifecycle.Reserve(x, a, []kueue.AdmissionCheckReference{"slow"}, metav1.Now())
		})
		w.until("the job can be edited", func() error {
			current := w.job("train")
			current.Spec.Parallelism = new(int32(1))
			return w.c.Update(w.ctx, current)
		})
		until("there is one workload, a new one", func() error {
			var list kueue.WorkloadList
			if err := w.c.List(w.ctx, &list, client.InNamespace(w.namespace)); err != nil {
				return err
			}
			if len(list.Items) != 1 || list.Items[0].UID == wl.UID {
				return errors.New("not yet")
			}
			if got := &list.Items[0]; got.Name != wl.Name || got.Spec.PodSets[0].Count != 1 || lifecycle.IsReserved(got) || len(got.Finalizers) != 1 {
				return fmt.Errorf("%s of %d pods, %v, finalizers %v", got.Name, got.Spec.PodSets[0].Count, conditionTypes(got), got.Finalizers)
			}
			return nil
		})
		if !suspended(w.job("train")) {
			t.Error("the job runs")
		}
	})
}
