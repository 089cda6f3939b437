package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/worker"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// deferred is how soon a job is looked at again that could not be brought up to date.
const deferred = 2 * time.Second

// carryOut does the steps of a plan in their order. All clusters are tried; once a step that blocks has failed only removals are. It
// returns when to look again because a job was deferred.
func (w *workloads) carryOut(ctx context.Context, s *sight, plan *plan.Plan) (again time.Duration, err error) {
	var errs []error
	blocked := false
	for rest := plan.Steps; len(rest) > 0; {
		now := rest[:max(1, promptOnes(rest))]
		rest = rest[len(now):]
		for i, result := range w.together(ctx, s, now, blocked) {
			step := &now[i]
			if err := result.err; err != nil {
				blocked = blocked || step.Blocks
				if l, ok := errors.AsType[*later](err); ok {
					ctrl.LoggerFrom(ctx).Info("Trying again later", "cluster", step.Cluster, "after", l.after.String(), "err", err.Error())
					again = sooner(again, l.after)
					continue
				}
				if step.Cluster != "" {
					err = fmt.Errorf("cluster %s: %w", step.Cluster, err)
				}
				errs = append(errs, err)
				continue
			}
			again = sooner(again, result.again)
			w.tell(s, result.events)
		}
	}
	return again, first(errs)
}

// later is an error that is no use in being tried again before a while has passed.
type later struct {
	error
	after time.Duration
}

// sooner is the sooner of two times to look again; 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a > 0 && b > 0 {
		return min(a, b)
	}
	return max(a, b)
}

func (w *workloads) tell(s *sight, events []lifecycle.Event) {
	for _, e := range events {
		if e.Warning {
			w.Events.Warning(s.observed.Local, e.Reason, e.Note)
		} else {
			w.Events.Normal(s.observed.Local, e.Reason, e.Note)
		}
	}
}

// first joins errors so that those that only say that a cache lags behind do not hide others.
func first(errs []error) error {
	for _, err := range errs {
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			return errors.Join(errs...)
		}
	}
	if len(errs) > 0 {
		return errs[0]
	}
	return nil
}

func (w *workloads) step(ctx context.Context, s *sight, step *plan.Step) (again time.Duration, err error) {
	var conn *worker.Connection
	if step.Cluster != "" {
		if conn = s.connections[step.Cluster]; conn == nil {
			return 0, worker.ErrStuck
		}
	}
	switch step.Do {
	case plan.RemoveCopy:
		if step.Deactivated != "" {
			w.noteFault(s, step.Cluster, plan.Fault{Code: plan.Deactivated, Text: step.Deactivated})
		}
		return 0, w.remove(ctx, s, conn)
	case plan.CreateCopy:
		return 0, w.create(ctx, s, conn, step)
	case plan.UpdateCopy:
		return 0, writeWorkload(ctx, conn, step.Workload, func(ctx context.Context, c client.Client, o *kueue.Workload) error { return c.Update(ctx, o) })
	case plan.UpdateCopyStatus:
		return 0, writeWorkload(ctx, conn, step.Workload, func(ctx context.Context, c client.Client, o *kueue.Workload) error { return c.Status().Update(ctx, o) })
	case plan.SyncJob, plan.MirrorJob:
		return w.syncStep(ctx, s, conn, step)
	case plan.EndJob:
		return time.Second, w.endJob(ctx, s, conn)
	case plan.QuietJob:
		return 0, w.quiet(ctx, s)
	case plan.Annotate:
		return 0, w.annotate(ctx, s, step)
	case plan.WriteStatus:
		return 0, w.writeStatus(ctx, s, step)
	}
	return 0, nil
}

// syncStep brings the job here and the one there up to date with each other. What fails once the job has finished counts.
func (w *workloads) syncStep(ctx context.Context, s *sight, conn *worker.Connection, step *plan.Step) (again time.Duration, err error) {
	if step.Plain {
		return 0, w.copyStatus(ctx, s, conn)
	}
	again, err = w.syncJobs(ctx, s, conn, step.Do == plan.SyncJob)
	if step.Last && err != nil && !apierrors.IsConflict(err) {
		w.records.finalSyncFailed(s.observed.Local)
		err = &later{err, tryEvery}
	}
	return again, err
}

func (w *workloads) annotate(ctx context.Context, s *sight, step *plan.Step) error {
	next := step.Workload.DeepCopy()
	patch := client.MergeFromWithOptions(s.observed.Local, client.MergeFromWithOptimisticLock{})
	if err := w.client.Patch(ctx, next, patch); err != nil {
		return fmt.Errorf("annotating workload %s: %w", s.key, err)
	}
	w.wrote(s, next)
	return nil
}

// writeStatus writes the local status. A step before it may have written the Workload already.
func (w *workloads) writeStatus(ctx context.Context, s *sight, step *plan.Step) error {
	next := step.Workload.DeepCopy()
	next.ResourceVersion = s.observed.Local.ResourceVersion
	stored, err := w.Status.Strict(ctx, next)
	if err != nil {
		return err
	}
	again := checkIn(stored, s.observed.Check).State == kueue.CheckStateRetry && s.check().State != kueue.CheckStateRetry
	w.wrote(s, stored)
	if again {
		w.records.retried(stored, step.OutOfSync)
	}
	if step.Told {
		w.records.reported(stored)
	}
	if step.Lost && w.Lost != nil {
		w.Lost(s.observed.Local.Status.ClusterName)
	}
	if step.Admitted && w.Admitted != nil {
		w.Admitted(queueOf(stored), stored.Status.ClusterName)
	}
	if lifecycle.IsFinished(stored) {
		w.records.finished(stored)
	}
	return nil
}

func queueOf(wl *kueue.Workload) string {
	if wl.Status.Admission == nil {
		return ""
	}
	return string(wl.Status.Admission.ClusterQueue)
}

// writeWorkload writes a copy.
func writeWorkload(ctx context.Context, conn *worker.Connection, wl *kueue.Workload, write func(context.Context, client.Client, *kueue.Workload) error) error {
	next := wl.DeepCopy()
	return conn.Call(ctx, func(ctx context.Context, cl client.Client) error {
		err := write(ctx, cl, next)
		if err == nil {
			conn.Store(worker.WorkloadKind).Put(next)
		}
		return err
	})
}

// remove deletes the job, then the Workload, from a cluster: a Workload that is gone already must not hide a job that is not. Nothing is
// deleted that is not ours (spec: 40 §4.4).
func (w *workloads) remove(ctx context.Context, s *sight, conn *worker.Connection) error {
	if s.kind != nil {
		for _, o := range w.jobsOf(conn, s) {
			if o.GetDeletionTimestamp() != nil {
				continue
			}
			if err := conn.Delete(ctx, s.kind.GVK, o); err != nil {
				return fmt.Errorf("deleting %s %s: %w", s.kind.GVK.Kind, o.GetName(), err)
			}
		}
	}
	o, ok := conn.Store(worker.WorkloadKind).Get(s.key).(*kueue.Workload)
	if !ok || !w.Plan.Owns(o) {
		return nil
	}
	return deleteWorkload(ctx, conn, o)
}

// deleteWorkload takes the finalizer off a copy and deletes it.
func deleteWorkload(ctx context.Context, conn *worker.Connection, o *kueue.Workload) error {
	next := o.DeepCopy()
	if controllerutil.RemoveFinalizer(next, kueue.ResourceInUseFinalizer) {
		patch := client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{})
		err := conn.Call(ctx, func(ctx context.Context, cl client.Client) error { return cl.Patch(ctx, next, patch) })
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("letting workload %s go: %w", o.Name, err)
		}
	}
	if o.DeletionTimestamp != nil {
		return nil
	}
	if err := conn.Delete(ctx, worker.WorkloadKind, next); err != nil {
		return fmt.Errorf("deleting workload %s: %w", o.Name, err)
	}
	return nil
}

// create makes a copy of the Workload. One that is there already is ours, and the watch was late, or it is not and stays.
func (w *workloads) create(ctx context.Context, s *sight, conn *worker.Connection, step *plan.Step) error {
	local, queue := s.observed.Local, queueOf(s.observed.Local)
	next := step.Workload.DeepCopy()
	err := conn.Call(ctx, func(ctx context.Context, c client.Client) error {
		err := c.Create(ctx, next)
		if err != nil {
			return err
		}
		conn.Store(worker.WorkloadKind).Put(next)
		w.records.clearFault(local, step.Cluster, plan.Deactivated, plan.NameConflict) // also if the caller no longer waits
		if w.Dispatched != nil {
			w.Dispatched(queue, step.Cluster)
		}
		return nil
	})
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		var there kueue.Workload
		if err := conn.Call(ctx, func(ctx context.Context, c client.Client) error { return c.Get(ctx, s.key, &there) }); err != nil {
			return err
		}
		if w.Plan.Owns(&there) {
			conn.Store(worker.WorkloadKind).Put(&there)
			return nil
		}
		w.noteFault(s, step.Cluster, plan.Fault{Code: plan.NameConflict, Text: "a workload of this name is there that is not ours"})
		w.wake(s.key, settle)
		return nil
	default:
		return w.failed(s, step.Cluster, err)
	}
}

// failed notes that something could not be created on a cluster.
func (w *workloads) failed(s *sight, cluster string, err error) error {
	if errors.Is(err, worker.ErrStuck) {
		return err // the cluster is at fault, and is left out until it answers
	}
	code := plan.CreateFailed
	if rejected(err) {
		code = plan.CreateRejected
	}
	w.noteFault(s, cluster, plan.Fault{Code: code, Text: err.Error()})
	ctrl.Log.WithName("multikueue").V(1).Info("Cannot create", "cluster", cluster, "workload", s.key.String(), "err", err.Error())
	return fmt.Errorf("[%s] %w", code, err)
}

// rejected says whether a worker will never take an object as it is.
func rejected(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		(apierrors.IsForbidden(err) && strings.Contains(err.Error(), "admission webhook"))
}

// syncJob creates the job on the cluster that admitted the Workload, or brings the status of the local one up to date.
func (w *workloads) syncJob(ctx context.Context, s *sight, conn *worker.Connection, create bool) (again time.Duration, err error) {
	if s.observed.Job.Carried {
		return 0, nil
	}
	if s.job == nil {
		return 0, fmt.Errorf("%s %s does not exist", s.observed.Job.Kind, s.jobName)
	}
	kept := conn.Store(s.kind.GVK)
	key := client.ObjectKey{Namespace: s.key.Namespace, Name: s.jobName}
	there := kept.Get(key)
	if there != nil && !w.Plan.Owns(there) {
		w.noteFault(s, conn.Name(), plan.Fault{Code: plan.NameConflict, Text: "the job there is another manager's"})
		return 0, errors.New("the job there is another manager's")
	}
	if there != nil && kept.Deleting(there) { // it is of an earlier run: made anew when it is gone
		if there.GetDeletionTimestamp() == nil { // it is not known whether that was done
			err = conn.Delete(ctx, s.kind.GVK, there)
		}
		return deferred, err
	}
	todo, err := w.Plan.SyncJob(s.kind, s.job, there, s.observed.Local, w.clusterTree(ctx, conn.Name()), create)
	switch fault := faultOf(err); {
	case err != nil && there != nil:
		w.noteFault(s, conn.Name(), plan.Fault{Code: plan.StatusSync, Text: err.Error()})
		if create { // the check tells; the job runs on, and what is asked of it still reaches it
			return deferred, w.forwardSpec(ctx, s, conn, there, &todo)
		}
	case fault != nil && fault.Waits:
		return 0, &later{err, fault.Until.Sub(w.Now())}
	case fault != nil:
		w.noteFault(s, conn.Name(), *fault)
	}
	if err != nil {
		return 0, err
	}
	return w.carryJob(ctx, s, conn, there, &todo, create)
}

// carryJob does what is to be done about the job, there is nil without one.
func (w *workloads) carryJob(ctx context.Context, s *sight, conn *worker.Connection, there client.Object, todo *plan.JobStep, create bool) (again time.Duration, err error) {
	if todo.Deferred {
		again = deferred
	}
	if todo.Resized != nil && create && !s.observed.Job.Heir {
		if wait, err := w.scale(ctx, s, conn, there, todo.Resized); err != nil || wait > 0 {
			return max(again, wait), err
		}
	}
	switch {
	case todo.Do == plan.CreateJob:
		return again, w.createJob(ctx, s, conn, todo.Object)
	case todo.Do == plan.DeleteJob:
		return again, conn.Delete(ctx, s.kind.GVK, there)
	case create && w.startsSoon(s, there):
		return deferred, nil // what is only true until then is not worth a write
	}
	return w.keepUp(ctx, s, conn, there, todo, create, again)
}

// keepUp copies the status of a job that is there, and carries over what was changed on either side.
func (w *workloads) keepUp(ctx context.Context, s *sight, conn *worker.Connection, there client.Object, todo *plan.JobStep, create bool, again time.Duration) (time.Duration, error) {
	if err := w.followStatus(ctx, s, conn, todo); err != nil {
		if !create || apierrors.IsConflict(err) {
			return again, err
		}
		again = deferred // as above
	}
	if err := w.followUp(ctx, s, conn, there, create); err != nil || !create {
		return again, err
	}
	return again, w.forwardSpec(ctx, s, conn, there, todo)
}

// startsSoon says whether the local job or the one there is about to be started, a worker having admitted it just now by the manager's
// clock. Until both are, the status says no more than that, and some kinds must not have that of a job that runs while they are suspended.
func (w *workloads) startsSoon(s *sight, there client.Object) bool {
	const soon = 10 * time.Second
	o, ok := there.(job.Object)
	if !ok || s.kind.Remote.Status == nil || s.kind.Remote.Gated || (!s.kind.IsSuspended(s.job) && !s.kind.IsSuspended(o)) {
		return false
	}
	if c := s.check(); c.State == kueue.CheckStateReady && w.Now().Sub(c.LastTransitionTime.Time) > soon {
		return false
	}
	_, _, finished := s.kind.Finished(o)
	return !finished
}

// followStatus gives the local job the status and the keys of its copy.
func (w *workloads) followStatus(ctx context.Context, s *sight, conn *worker.Connection, todo *plan.JobStep) error {
	var err error
	if todo.Do == plan.PatchStatus {
		err = w.patchStatus(ctx, s, todo.Object)
	}
	if err == nil && todo.Metadata {
		err = w.patchKeys(ctx, s, todo.Object)
	}
	if err != nil && !apierrors.IsConflict(err) {
		w.noteFault(s, conn.Name(), plan.Fault{Code: plan.StatusSync, Text: err.Error()})
	}
	if err == nil && todo.SpecFault == nil {
		w.records.clearFault(s.observed.Local, conn.Name(), plan.Deactivated)
	}
	return err
}

// createJob creates the job on the worker that admitted the Workload, or once more if somebody deleted it there (spec: 40 §4.14).
func (w *workloads) createJob(ctx context.Context, s *sight, conn *worker.Connection, o *unstructured.Unstructured) error {
	local, kind, name := s.observed.Local, s.kind.GVK.Kind, o.GetName()
	next, again := o.DeepCopy(), s.check().State == kueue.CheckStateReady && conn.Store(s.kind.GVK).DeletedByOthers(client.ObjectKeyFromObject(o))
	if wait := w.records.recreateAfter(local, conn.Name(), name); again && wait > 0 {
		return &later{fmt.Errorf("%s %s is deleted on %s again and again", kind, name, conn.Name()), wait}
	}
	err := conn.Call(ctx, func(ctx context.Context, c client.Client) error { return c.Create(ctx, next) })
	switch {
	case err == nil:
		w.records.clearFault(s.observed.Local, conn.Name(), plan.Deactivated)
		if again {
			w.records.recreated(local, conn.Name(), name)
			w.Events.Warning(s.observed.Local, plan.EventReason, fmt.Sprintf("%s %s was deleted on %q, and is created there again", kind, name, conn.Name()))
		}
		return keepJob(s.kind, conn, next)
	case apierrors.IsAlreadyExists(err):
		there := &metav1.PartialObjectMetadata{}
		there.SetGroupVersionKind(s.kind.GVK)
		if err := conn.Call(ctx, func(ctx context.Context, c client.Client) error {
			return c.Get(ctx, client.ObjectKeyFromObject(o), there)
		}); err != nil {
			return err
		}
		if w.Plan.Owns(there) {
			w.wake(s.key, deferred) // the watch is late
			return nil
		}
		w.noteFault(s, conn.Name(), plan.Fault{Code: plan.NameConflict, Text: "a job of this name is there that is not ours"})
		err := fmt.Errorf("[%s] a %s %s is there that is not ours", plan.NameConflict, s.kind.GVK.Kind, o.GetName())
		if s.check().State == kueue.CheckStateReady { // it is sent nowhere else
			return &later{err, conflictFor}
		}
		w.wake(s.key, settle)
		return err
	default:
		return w.failed(s, conn.Name(), err)
	}
}

// keepJob has it known at once that a job is on a worker: which other workers admit the Workload does not matter any more.
func keepJob(kind *job.Descriptor, conn *worker.Connection, created *unstructured.Unstructured) error {
	o := kind.New()
	if u, ok := o.(*unstructured.Unstructured); ok {
		u.Object = created.Object
	} else if err := runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, o); err != nil {
		return fmt.Errorf("%s %s on %s: %w", kind.GVK.Kind, created.GetName(), conn.Name(), err)
	}
	conn.Store(kind.GVK).Put(o)
	return nil
}

// patchStatus gives the local job another status. main writes it in the object itself.
func (w *workloads) patchStatus(ctx context.Context, s *sight, next *unstructured.Unstructured) error {
	next = next.DeepCopy()
	before := next.DeepCopy()
	current, err := plan.Tree(s.kind, s.job)
	if err != nil {
		return err
	}
	before.Object["status"] = current.Object["status"]
	if before.Object["status"] == nil {
		delete(before.Object, "status")
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return w.sendStatus(ctx, s, next, patch)
}

// sendStatus sends a patch of the status of a local job to where that is: a subresource, or the object itself.
func (w *workloads) sendStatus(ctx context.Context, s *sight, next *unstructured.Unstructured, patch client.Patch) error {
	f := w.external(s)
	inObject := f != nil && f.Main
	var err error
	if !inObject {
		err = w.client.Status().Patch(ctx, next.DeepCopy(), patch)
		inObject = apierrors.IsNotFound(err) && f != nil && f.AutoStatus // the kind has no such subresource
	}
	if inObject {
		err = w.client.Patch(ctx, next, patch)
	}
	if err != nil {
		return fmt.Errorf("writing the status of %s %s/%s: %w", s.kind.GVK.Kind, next.GetNamespace(), next.GetName(), err)
	}
	return nil
}

// copyStatus gives the local job the status of its copy as it is, whatever it had.
func (w *workloads) copyStatus(ctx context.Context, s *sight, conn *worker.Connection) error {
	var errs []error
	for _, o := range s.locals() {
		there, ok := conn.Store(s.kind.GVK).Get(client.ObjectKeyFromObject(o)).(job.Object)
		if !ok || !w.Plan.Owns(there) {
			continue
		}
		status, err := w.Plan.PlainStatus(s.kind, o, there, s.observed.Local)
		if err == nil && status != nil {
			err = w.replaceStatus(ctx, s, o, status)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (w *workloads) replaceStatus(ctx context.Context, s *sight, o job.Object, status any) error {
	text, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": o.GetUID()}, {"op": "add", "path": "/status", "value": status},
	})
	if err != nil {
		return err
	}
	next, err := plan.Tree(s.kind, o)
	if err != nil {
		return err
	}
	return w.sendStatus(ctx, s, next, client.RawPatch(types.JSONPatchType, text))
}

// quiet takes what says that pods run out of the status of the local job.
func (w *workloads) quiet(ctx context.Context, s *sight) error {
	for _, o := range s.locals() {
		next, changes, err := plan.Quiet(s.kind, o)
		if err == nil && changes {
			err = w.patchStatus(ctx, s.of(o), next)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
