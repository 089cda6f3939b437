package jobtest

import (
	"errors"
	"fmt"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// ended is an evicted job that cannot be restarted: it keeps its quota until its own controller reports its end, and then its
// Workload is finished, too.
func ended(w *world) {
	o := w.create("train", nil)
	wl := w.workloadOf(o)
	w.admit(wl)
	w.started(o)
	w.status(o, Active)
	w.waitUntilStable()
	was := w.again(o).GetGeneration()
	w.evict(wl)
	wait.Until(w.t, "the job is told to stop", func() error {
		if got := w.again(o); got.GetGeneration() == was {
			return errors.New("it is as it was")
		}
		return nil
	})
	w.waitUntilStable()
	if got := w.again(o); got.GetGeneration() != was+1 || !lifecycle.IsReserved(w.get(wl)) {
		w.t.Errorf("%d changes of a job that has to stop, want 1; reserved: %v", got.GetGeneration()-was, lifecycle.IsReserved(w.get(wl)))
	}
	w.status(o, Stopped)
	wait.Until(w.t, "the workload is let go", func() error {
		got := w.get(wl)
		if c := lifecycle.Condition(got, kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonFailed || len(got.Finalizers) > 0 {
			return fmt.Errorf("%v, finalizers %v", conditions(got), got.Finalizers)
		}
		return nil
	})
	w.tells(o, "CreatedWorkload", "FinishedWorkload", "Started", "Stopped")
}

// lost is a running job whose Workload is deleted at once, with nothing to restore from: it is stopped, restored, and queued again.
func lost(w *world) {
	o := w.create("train", nil)
	before := spec(w.t, w.again(o))
	wl := w.workloadOf(o)
	w.admit(wl)
	w.started(o)
	w.waitUntilStable()
	w.must(w.c.Patch(w.ctx, w.get(wl), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	w.must(w.c.Delete(w.ctx, wl))
	wait.Until(w.t, "the job is stopped", func() error { return w.stopped(o) })
	w.status(o, Stopped)
	wait.Until(w.t, "it is queued anew", func() error {
		if all := w.workloads(); len(all) != 1 || all[0].UID == wl.UID {
			return fmt.Errorf("%d workloads", len(all))
		}
		return w.suspended(o)
	})
	w.waitUntilStable()
	if diff := cmp.Diff(before, spec(w.t, w.again(o))); diff != "" {
		w.t.Errorf("not what the user wrote -want +got:\n%s", diff)
	}
}

// stoppedByUser is a job that its user suspends while it runs, and that is marked as by the webhook: it is restored, keeps its
// quota until its pods are gone, and stays on hold until the mark is removed (spec: 30 §6, u1).
func stoppedByUser(w *world) {
	o := w.create("train", nil)
	before := spec(w.t, w.again(o))
	wl := w.workloadOf(o)
	w.admit(wl)
	w.started(o)
	w.status(o, Active)
	w.waitUntilStable()
	mark := func(change func(job.Object, map[string]string)) {
		wait.Until(w.t, "the job can be changed", func() error {
			got := w.again(o)
			annotations := got.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			change(got, annotations)
			got.SetAnnotations(annotations)
			return w.c.Update(w.ctx, got)
		})
	}
	mark(func(got job.Object, annotations map[string]string) {
		w.kind.Descriptor.Suspend(got)
		annotations[job.UserStopAnnotation] = "true"
	})
	w.waitUntilStable()
	if !lifecycle.IsReserved(w.get(wl)) {
		w.t.Error("the quota is released while pods run")
	}
	w.status(o, Stopped)
	wait.Until(w.t, "it is on hold", func() error {
		if got := w.get(wl); !lifecycle.IsOnHold(got) {
			return fmt.Errorf("%v", conditions(got))
		}
		return nil
	})
	w.waitUntilStable()
	if diff := cmp.Diff(before, spec(w.t, w.again(o))); diff != "" {
		w.t.Errorf("not what the user wrote -want +got:\n%s", diff)
	}
	mark(func(_ job.Object, annotations map[string]string) { delete(annotations, job.UserStopAnnotation) })
	wait.Until(w.t, "it is queued again", func() error {
		if c := lifecycle.Condition(w.get(wl), kueue.WorkloadQuotaReserved); c.Reason != kueue.ReasonPendingEvaluation {
			return fmt.Errorf("%v", conditions(w.get(wl)))
		}
		return nil
	})
	w.admit(wl)
	w.started(o)
	w.tells(o, "CreatedWorkload", "Started", "Started")
}
