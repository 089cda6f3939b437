package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

func (r *reconciler) do(ctx context.Context, key types.NamespacedName, o *job.Observed, a job.Action) reconcile.Outcome {
	switch a.Verb {
	case job.Nothing, job.Fail, job.Stall:
		r.recordState(key, o, a)
		if a.Verb == job.Fail {
			return reconcile.Retry(a.Err)
		}
		if a.Verb == job.Stall {
			return reconcile.Stalled(a.Err)
		}
		if a.After > 0 {
			return reconcile.Wait(a.After)
		}
		return reconcile.Done()
	default:
	}
	err := r.write(ctx, o, a)
	if a.Starts != nil && r.isFinal(a.Starts, err) {
		a = decide.FailedToStart(r.cfg.Load(), o.Job, a.Starts, err, o.Now)
		err = r.write(ctx, o, a)
	}
	if err != nil {
		r.recordFailure(key, o, a, err)
		if apierrors.IsNotFound(err) && a.Workload != nil {
			return reconcile.Done() // the Workload is deleted, which reconciles the job
		}
		if a.Verb == job.CreateWorkload && apierrors.IsAlreadyExists(err) {
			return r.exists(ctx, key, o, a.Workload, err)
		}
		return reconcile.Retry(err)
	}
	r.recordEvents(o, a)
	r.lastNotes.ForgetReason(key, writeFailed)
	if o.Job == nil {
		r.lastNotes.Forget(key)
	}
	return reconcile.Done()
}

// exists returns the outcome of a creation of a Workload whose name is in use: by a Workload of the job, which the cache does not show yet, or
// by one that does not belong to it. The Workload of a group is observed by its name.
func (r *reconciler) exists(ctx context.Context, key types.NamespacedName, o *job.Observed, wanted *kueue.Workload, err error) reconcile.Outcome {
	if r.composed != nil {
		return reconcile.Retry(err)
	}
	var stored kueue.Workload
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(wanted), &stored); err != nil {
		return reconcile.Retry(named(err, "reading workload", wanted))
	}
	for i := range wanted.OwnerReferences {
		uid := wanted.OwnerReferences[i].UID
		if slices.ContainsFunc(stored.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == uid }) {
			return reconcile.Retry(err)
		}
	}
	a := decide.NameTaken(&stored)
	r.recordState(key, o, a)
	return reconcile.Retry(a.Err)
}

// isFinal reports whether the API server will always refuse to start the job of a Workload: by its descriptor, or because the
// refusals last. Each admission counts its own.
func (r *reconciler) isFinal(w *kueue.Workload, err error) bool {
	if err != nil && r.d.Planned != nil && r.d.Planned.Passes(err) {
		return false
	}
	admission := fmt.Sprintf("%s/%d", w.UID, lifecycle.TrueSince(w, kueue.WorkloadAdmitted).Unix())
	last := r.refusals.IsFinal(types.UID(admission), err)
	return last || (err != nil && r.d.Planned != nil && r.d.Planned.Refused(err))
}

func (r *reconciler) write(ctx context.Context, o *job.Observed, a job.Action) error {
	manager := client.FieldOwner(lookup.Manager(r.d))
	switch a.Verb {
	case job.CreateWorkload:
		err := r.client.Create(ctx, a.Workload, manager)
		if err == nil && a.Workload.Annotations[kueue.ElasticJobAnnotation] == "true" {
			r.written.Created(a.Workload)
		}
		if err == nil && r.created != nil {
			r.created(r.d.GVK.Kind, o.Job, a.Workload)
		}
		return named(err, "creating workload", a.Workload)
	case job.UpdateWorkload:
		base := observedWorkload(o, a.Workload.UID)
		err := r.client.Patch(ctx, a.Workload, pinned(base), manager)
		if r.childCache != nil && o.Job != nil {
			r.written.Wrote(base, a.Workload, err)
		}
		return named(err, "updating workload", a.Workload)
	case job.DeleteWorkload:
		uid := a.Workload.UID
		err := r.client.Delete(ctx, a.Workload, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		return named(err, "deleting workload", a.Workload)
	case job.WriteStatus:
		_, err := r.status.Strict(ctx, a.Workload)
		return err
	case job.WriteReclaimable:
		return r.status.ReclaimablePods(ctx, a.Workload)
	case job.WritePodsReady:
		return r.status.PodsReady(ctx, a.Workload)
	case job.WriteReplacements:
		return r.status.Replacements(ctx, a.Workload, string(manager))
	case job.PatchChildren, job.DeleteChildren:
		return r.writeChildren(ctx, o, a, manager)
	default:
		return r.writeJob(ctx, o, a, manager)
	}
}

func (r *reconciler) writeJob(ctx context.Context, o *job.Observed, a job.Action, manager client.FieldOwner) error {
	observed := byUID(o.Job)
	return each(members(a.Job), func(m job.Object) error {
		switch a.Verb {
		case job.PatchJob:
			base := observed[m.GetUID()]
			gates := opened(base, m)
			err := r.client.Patch(ctx, m, pinned(base), manager)
			if err == nil {
				_, group := a.Job.(job.Composite)
				r.reportUngated(a.Starts, gates, group)
			}
			return named(err, "updating "+r.d.GVK.Kind, m)
		case job.PatchJobStatus:
			owner := manager // members are written at once
			if r.d.Once != nil {
				owner = client.FieldOwner(r.d.Once.StatusManager)
			}
			if err := r.client.Status().Patch(ctx, m, pinned(observed[m.GetUID()]), owner); err != nil {
				return named(err, "updating the status of "+r.d.GVK.Kind, m)
			}
			return r.deleteUnnamed(ctx, a.Children)
		case job.DeleteJob:
			uid, version := m.GetUID(), m.GetResourceVersion()
			err := r.client.Delete(ctx, m, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
			return named(err, "deleting "+r.d.GVK.Kind, m)
		default:
			return fmt.Errorf("unknown action %d on %s %s", a.Verb, r.d.GVK.Kind, client.ObjectKeyFromObject(o.Job))
		}
	})
}

// deleteUnnamed deletes objects that the status of their job no longer names, in whatever state they are.
func (r *reconciler) deleteUnnamed(ctx context.Context, objects []job.Object) error {
	for _, m := range objects {
		uid := m.GetUID()
		if err := client.IgnoreNotFound(r.client.Delete(ctx, m, client.Preconditions{UID: &uid})); err != nil {
			return named(err, "deleting", m)
		}
	}
	return nil
}

// pinned returns a merge patch that fails with a conflict if the object has changed since it was read.
func pinned(base client.Object) client.Patch {
	return client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
}

func named(err error, what string, o client.Object) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", what, client.ObjectKeyFromObject(o), err)
}

// observedWorkload is the observed version of the Workload that an action changes.
func observedWorkload(o *job.Observed, uid types.UID) *kueue.Workload {
	for _, w := range o.Workloads {
		if w.UID == uid {
			return w
		}
	}
	return o.Prebuilt
}

// recordEvents records the events of a write, on the job that was written, if it was.
func (r *reconciler) recordEvents(o *job.Observed, a job.Action) {
	concerned := members(o.Job)
	switch {
	case a.Job != nil:
		concerned = members(a.Job)
	case len(concerned) > 1:
		concerned = concerned[:1] // one event for all
	}
	for _, e := range a.Events {
		if e.OnWorkload {
			r.record(a.Workload, e)
			continue
		}
		for _, m := range concerned {
			r.record(m, e)
		}
	}
}

func (r *reconciler) record(target client.Object, e job.Event) {
	if e.Warning {
		r.events.Warning(target, e.Reason, e.Note)
	} else {
		r.events.Normal(target, e.Reason, e.Note)
	}
}

// writeFailed is the reason of the event about a failing write.
const writeFailed = "WriteFailed"

// recordFailure records a warning about a write that the API server does not accept: once, until a write succeeds. A refused start has an event
// when it is final.
func (r *reconciler) recordFailure(key types.NamespacedName, o *job.Observed, a job.Action, err error) {
	var answer apierrors.APIStatus // no error itself, so AsType does not find it
	if o.Job == nil || !reconcile.IsFailure(err) || !errors.As(err, &answer) || a.Starts != nil && r.isExpected(err) {
		return
	}
	if r.lastNotes.IsNews(key, writeFailed, "") {
		r.events.Warning(members(o.Job)[0], writeFailed, err.Error())
	}
}

// isExpected reports whether an error of a start is temporary by its kind, or final if it lasts.
func (r *reconciler) isExpected(err error) bool {
	return reconcile.IsRefused(err) || r.d.Planned != nil && r.d.Planned.Passes(err)
}

// recordState records the events of a state in which nothing is written: once for each text.
func (r *reconciler) recordState(key types.NamespacedName, o *job.Observed, a job.Action) {
	if o.Job == nil {
		r.lastNotes.Forget(key)
		return
	}
	for _, e := range a.Events {
		if !r.lastNotes.IsNews(key, e.Reason, e.Note) {
			continue
		}
		for i, m := range members(o.Job) {
			if i == 0 || !e.Warning { // a warning is recorded on one member only
				r.record(m, e)
			}
		}
	}
}
