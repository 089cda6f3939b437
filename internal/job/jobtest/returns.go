package jobtest

import (
	"errors"
	"fmt"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// away removes the namespace of a running job from management for a while. The job keeps running; once the namespace is managed
// again it is stopped once, restored, and queued with a new Workload. early changes the job together with the label, so that either
// event may come first.
func (w *world) away(start trouble, early bool) {
	w.t.Helper()
	revive := start(w)
	until := func(what string, check func() error) {
		w.t.Helper()
		wait.Until(w.t, what, revive.before(check))
	}
	kind := w.kind
	o := w.create("train", nil)
	before := spec(w.t, w.again(o))
	key := &kueue.Workload{}
	key.Namespace, key.Name = w.namespace, w.cfg.WorkloadName(kind.Descriptor.GVK, o.GetName(), o.GetUID())
	until("the workload exists", func() error { return w.c.Get(w.ctx, client.ObjectKeyFromObject(key), &kueue.Workload{}) })
	wl := w.get(key)
	w.admit(wl)
	until("the job runs", func() error { return w.runs(o) })
	w.status(o, Active)
	relabel := func(to string) {
		if early {
			w.touch(o)
		}
		w.relabel(to)
		w.touch(o)
	}
	relabel("no")
	until("the workload is out of sync", func() error { return isOutOfSync(w.get(wl)) })
	was := w.again(o).GetGeneration()
	must := w.again(o)
	if kind.Descriptor.IsSuspended(must) {
		w.t.Error("the job was stopped when it left management")
	}
	relabel("yes")
	if w.stoppedForGood(o, was, until) {
		return
	}
	until("the job is stopped", func() error { return w.stopped(o) })
	w.status(o, Stopped)
	fresh := &kueue.Workload{}
	until("it is queued anew", func() error {
		all := w.workloads()
		if len(all) != 1 || all[0].UID == wl.UID || lifecycle.IsFinished(&all[0]) {
			return fmt.Errorf("%d workloads", len(all))
		}
		fresh = &all[0]
		return w.suspended(o)
	})
	if diff := cmp.Diff(before, spec(w.t, w.again(o))); diff != "" {
		w.t.Errorf("not what the user wrote -want +got:\n%s", diff)
	}
	w.admit(fresh)
	until("the job runs again", func() error { return w.runs(o) })
	w.started(o)
	if job.IsSuspendedByBerth(w.again(o)) {
		w.t.Error("a job that runs is marked as suspended")
	}
}

// stoppedForGood is the end of a job that cannot be stopped and started again.
func (w *world) stoppedForGood(o job.Object, was int64, until func(string, func() error)) bool {
	w.t.Helper()
	switch {
	case w.kind.Deleted:
		until("the job is gone", func() error {
			err := w.c.Get(w.ctx, client.ObjectKeyFromObject(o), w.kind.Descriptor.New())
			if err == nil {
				return errors.New("it exists")
			}
			return client.IgnoreNotFound(err)
		})
	case w.kind.Ends:
		until("the job is told to stop", func() error {
			if w.again(o).GetGeneration() == was {
				return errors.New("it is as it was")
			}
			return nil
		})
	default:
		return false
	}
	return true
}

func isOutOfSync(wl *kueue.Workload) error {
	if c := lifecycle.Condition(wl, kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonOutOfSync || len(wl.Finalizers) > 0 {
		return fmt.Errorf("%v, finalizers %v", conditions(wl), wl.Finalizers)
	}
	return nil
}

// touch changes a job without an effect on queueing.
func (w *world) touch(o job.Object) {
	w.t.Helper()
	w.must(client.IgnoreNotFound(w.c.Patch(w.ctx, w.again(o), client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{"touched":%q}}}`, w.again(o).GetResourceVersion())))))
}

// comesBack is a job whose namespace is not managed for a while, with events that explain it, and a constant number of writes.
func comesBack(w *world) {
	w.away(func(*world) revival { return nil }, false)
	w.waitUntilStable()
	if w.kind.Deleted || w.kind.Ends {
		return
	}
	var o job.Object
	wait.Until(w.t, "the job is there", func() error {
		o = w.kind.Descriptor.New()
		return w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "train"}, o)
	})
	w.tells(o, "CreatedWorkload", "CreatedWorkload", "DeletedWorkload", "NamespaceUnmanaged", "Started", "Started", "Stopped")
}

// givenBack are jobs that Berth suspended when their namespace leaves management: they run as their users wrote them. A job that
// its user suspended stays suspended.
func givenBack(w *world) {
	d := w.kind.Descriptor
	marked := w.create("marked", func(o job.Object) { // as the webhook does
		if d.Once == nil {
			job.MarkSuspended(o)
		}
	})
	w.workloadOf(marked)
	w.relabel("no")
	w.resumes(marked)
	if d.Once != nil {
		return
	}
	mine := w.create("mine", nil)
	w.relabel("yes")
	w.workloadOf(mine)
	w.relabel("no")
	wait.Until(w.t, "the workload is let go", func() error { return isOutOfSync(w.workloadOf(mine)) })
	w.waitUntilStable()
	w.must(w.suspended(mine))
	if w.kind.Ends {
		return
	}
	moment := w.create("moment", d.Resume)
	before := spec(w.t, w.again(moment))
	w.relabel("yes")
	wait.Until(w.t, "a job that ran is stopped", func() error { return w.stopped(moment) })
	w.relabel("no")
	w.status(moment, Stopped)
	w.resumes(moment)
	if diff := cmp.Diff(before, spec(w.t, w.again(moment))); diff != "" {
		w.t.Errorf("not what the user wrote -want +got:\n%s", diff)
	}
	wait.Until(w.t, "its user stops it", func() error {
		got := w.again(moment)
		d.Suspend(got)
		return w.c.Update(w.ctx, got)
	})
	w.waitUntilStable()
	w.must(w.suspended(moment))
	w.must(w.suspended(mine))
}

func (w *world) resumes(o job.Object) {
	w.t.Helper()
	wait.Until(w.t, "the job is given back", func() error {
		if got := w.again(o); job.IsSuspendedByBerth(got) {
			return errors.New("it is marked as suspended")
		}
		return w.runs(o)
	})
	w.waitUntilStable()
	w.must(w.runs(o))
}
