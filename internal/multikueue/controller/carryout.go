package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

const deferred = 2 * time.Second

// carryOut runs the steps of a plan in order, on all clusters. After a blocking step failed it only runs removals. It returns when to
// reconcile again, 0 for never.
func (w *workloads) carryOut(ctx context.Context, s *observation, plan *plan.Plan) (again time.Duration, err error) {
	var errs []error
	blocked := false
	for rest := plan.Steps; len(rest) > 0; {
		now := rest[:max(1, independentSteps(rest))]
		rest = rest[len(now):]
		for i, result := range w.runSteps(ctx, s, now, blocked) {
			step := &now[i]
			if err := result.err; err != nil {
				blocked = blocked || step.Blocks
				if l, ok := errors.AsType[*delayedError](err); ok {
					ctrl.LoggerFrom(ctx).Info("Trying again later", "cluster", step.Cluster, "after", l.after.String(), "err", err.Error())
					again = reconcile.Earliest(again, l.after)
					continue
				}
				if step.Cluster != "" {
					err = fmt.Errorf("cluster %s: %w", step.Cluster, err)
				}
				errs = append(errs, err)
				continue
			}
			again = reconcile.Earliest(again, result.again)
			w.Events.Tell(s.observed.Local, result.events...)
		}
	}
	return again, joinErrors(errs)
}

// delayedError is an error that is not worth a retry before after.
type delayedError struct {
	error
	after time.Duration
}

// joinErrors joins all errors but stale-cache errors, which would make the join look like one of them. If there are no others it returns the
// first, which is retried soon and without a log entry.
func joinErrors(errs []error) error {
	var others []error
	for _, err := range errs {
		if !reconcile.IsStale(err) {
			others = append(others, err)
		}
	}
	if len(others) == 0 && len(errs) > 0 {
		return errs[0]
	}
	return errors.Join(others...)
}

func (w *workloads) step(ctx context.Context, s *observation, step *plan.Step) (again time.Duration, err error) {
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
		return 0, w.noteWrite(s, step.Cluster, w.remove(ctx, s, conn))
	case plan.CreateCopy:
		return 0, w.create(ctx, s, conn, step)
	case plan.UpdateCopy:
		err = writeWorkload(ctx, conn, step.Workload, func(ctx context.Context, c client.Client, o *kueue.Workload) error { return c.Update(ctx, o) })
		return 0, w.noteWrite(s, step.Cluster, err)
	case plan.UpdateCopyStatus:
		err = writeWorkload(ctx, conn, step.Workload, func(ctx context.Context, c client.Client, o *kueue.Workload) error { return c.Status().Update(ctx, o) })
		return 0, w.noteWrite(s, step.Cluster, err)
	case plan.SyncJob, plan.MirrorJob:
		return w.syncStep(ctx, s, conn, step)
	case plan.EndJob:
		return time.Second, w.endJob(ctx, s, conn)
	case plan.QuietJob:
		return 0, w.clearActive(ctx, s)
	case plan.Annotate:
		return 0, w.annotate(ctx, s, step)
	case plan.WriteStatus:
		return 0, w.writeStatus(ctx, s, step)
	}
	return 0, nil
}

// syncStep synchronizes the local job and its copy. Failures count once the job has finished.
func (w *workloads) syncStep(ctx context.Context, s *observation, conn *worker.Connection, step *plan.Step) (again time.Duration, err error) {
	if step.Plain {
		return 0, w.copyStatus(ctx, s, conn)
	}
	again, err = w.syncJobs(ctx, s, conn, step.Do == plan.SyncJob)
	if step.Last && err != nil && !apierrors.IsConflict(err) {
		w.records.finalSyncFailed(s.observed.Local)
		err = &delayedError{err, tryEvery}
	}
	return again, err
}

func (w *workloads) annotate(ctx context.Context, s *observation, step *plan.Step) error {
	next := step.Workload.DeepCopy()
	patch := client.MergeFromWithOptions(s.observed.Local, client.MergeFromWithOptimisticLock{})
	if err := w.client.Patch(ctx, next, patch); err != nil {
		return fmt.Errorf("annotating workload %s: %w", s.key, err)
	}
	w.wrote(s, next)
	return nil
}

func (w *workloads) writeStatus(ctx context.Context, s *observation, step *plan.Step) error {
	next := step.Workload.DeepCopy()
	next.ResourceVersion = s.observed.Local.ResourceVersion
	var stored *kueue.Workload
	var err error
	if step.OnlyCheck {
		stored, err = w.Status.Check(ctx, next, checkIn(next, s.observed.Check), kueue.MultiKueueControllerName)
	} else {
		stored, err = w.Status.Strict(ctx, next)
	}
	if err != nil {
		return err
	}
	again := checkIn(stored, s.observed.Check).State == kueue.CheckStateRetry && s.check().State != kueue.CheckStateRetry
	w.wrote(s, stored)
	if again {
		w.records.retried(stored, step.OutOfSync)
	}
	if step.Reported {
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

// noteWrite records whether a worker cluster refuses to change, evict or remove a copy, and returns err. The job may run on there. A cluster that
// does not answer, and a copy that has changed, are not recorded.
func (w *workloads) noteWrite(s *observation, cluster string, err error) error {
	switch {
	case err == nil:
		w.records.clearWriteFault(s.observed.Local, cluster)
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !reconcile.IsStale(err):
		fault := plan.Fault{Code: plan.WriteFailed, Text: err.Error()}
		w.noteFault(s, cluster, fault)
		warning := plan.Warning{Code: plan.WriteFailed + cluster, Text: fmt.Sprintf("[%s] %s: %s", fault.Code, cluster, fault.Text)}
		w.Events.Tell(s.observed.Local, w.records.warnings(s.observed.Local, []plan.Warning{warning})...)
	}
	return err
}

// remove deletes the job, then the copy, from a cluster: a missing copy must not hide a job that remains. It only deletes our own objects
// (spec: 40 §4.4).
func (w *workloads) remove(ctx context.Context, s *observation, conn *worker.Connection) error {
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

func deleteWorkload(ctx context.Context, conn *worker.Connection, o *kueue.Workload) error {
	next := o.DeepCopy()
	if controllerutil.RemoveFinalizer(next, kueue.ResourceInUseFinalizer) {
		patch := client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{})
		err := conn.Call(ctx, func(ctx context.Context, cl client.Client) error { return cl.Patch(ctx, next, patch) })
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing the finalizer of workload %s: %w", o.Name, err)
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

// create creates a copy. An existing one is either ours, and the watch is late, or foreign, and stays.
func (w *workloads) create(ctx context.Context, s *observation, conn *worker.Connection, step *plan.Step) error {
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
		w.requeue(s.key, copyEventDelay)
		return nil
	default:
		return w.failed(s, step.Cluster, err)
	}
}

func (w *workloads) failed(s *observation, cluster string, err error) error {
	if errors.Is(err, worker.ErrStuck) {
		return err // the cluster is at fault, and is skipped until it answers
	}
	code := plan.CreateFailed
	if reconcile.IsRefused(err) {
		code = plan.CreateRejected
	}
	w.noteFault(s, cluster, plan.Fault{Code: code, Text: err.Error()})
	ctrl.Log.WithName("multikueue").V(1).Info("Cannot create", "cluster", cluster, "workload", s.key.String(), "err", err.Error())
	failure := fmt.Errorf("[%s] %w", code, err)
	if apierrors.IsNotFound(err) { // the namespace does not exist there: no cache that lags behind
		return &delayedError{failure, tryEvery}
	}
	return failure
}

func (w *workloads) syncJob(ctx context.Context, s *observation, conn *worker.Connection, create bool) (again time.Duration, err error) {
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
	if there != nil && kept.Deleting(there) { // of an earlier run: created anew once it is deleted
		if there.GetDeletionTimestamp() == nil { // the request may have failed
			err = conn.Delete(ctx, s.kind.GVK, there)
		}
		return deferred, err
	}
	todo, err := w.Plan.SyncJob(s.kind, s.job, there, s.observed.Local, w.clusterTree(ctx, conn.Name()), create)
	switch fault := faultOf(err); {
	case err != nil && there != nil:
		w.noteFault(s, conn.Name(), plan.Fault{Code: plan.StatusSync, Text: err.Error()})
		if create { // the check reports it; changes of the spec are still forwarded
			return deferred, w.forwardSpec(ctx, s, conn, there, &todo)
		}
	case fault != nil && fault.Waits:
		return 0, &delayedError{err, fault.Until.Sub(w.Now())}
	case fault != nil:
		w.noteFault(s, conn.Name(), *fault)
	}
	if err != nil {
		return 0, err
	}
	return w.applyJobStep(ctx, s, conn, there, &todo, create)
}

func (w *workloads) applyJobStep(ctx context.Context, s *observation, conn *worker.Connection, there client.Object, todo *plan.JobStep, create bool) (again time.Duration, err error) {
	if todo.Deferred {
		again = deferred
	}
	if todo.Resized != nil && create && !s.observed.Job.ReplacedBy {
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
		return deferred, nil // an intermediate state is not worth a write
	}
	return w.syncExisting(ctx, s, conn, there, todo, create, again)
}

func (w *workloads) syncExisting(ctx context.Context, s *observation, conn *worker.Connection, there client.Object, todo *plan.JobStep, create bool, again time.Duration) (time.Duration, error) {
	if err := w.followStatus(ctx, s, conn, todo); err != nil {
		if !create || apierrors.IsConflict(err) {
			return again, err
		}
		again = deferred
	}
	if err := w.syncElastic(ctx, s, conn, there, create); err != nil || !create {
		return again, err
	}
	return again, w.forwardSpec(ctx, s, conn, there, todo)
}

// startsSoon reports whether the local job or its copy is about to start, a worker cluster having admitted the Workload just now by the
// manager's clock. Until both have started the status is incomplete, and some kinds refuse the status of a running job while they are
// suspended.
func (w *workloads) startsSoon(s *observation, there client.Object) bool {
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

func (w *workloads) followStatus(ctx context.Context, s *observation, conn *worker.Connection, todo *plan.JobStep) error {
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

// createJob creates the job on the cluster that admitted the Workload, also again after others deleted it there (spec: 40 §4.14).
func (w *workloads) createJob(ctx context.Context, s *observation, conn *worker.Connection, o *unstructured.Unstructured) error {
	local, kind, name := s.observed.Local, s.kind.GVK.Kind, o.GetName()
	next, again := o.DeepCopy(), s.check().State == kueue.CheckStateReady && conn.Store(s.kind.GVK).DeletedByOthers(client.ObjectKeyFromObject(o))
	if wait := w.records.recreateAfter(local, conn.Name(), name); again && wait > 0 {
		return &delayedError{fmt.Errorf("%s %s is deleted on %s again and again", kind, name, conn.Name()), wait}
	}
	err := conn.Create(ctx, s.kind.GVK, next, func() error { return storeJob(s.kind, conn, next) })
	switch {
	case err == nil:
		w.records.clearFault(s.observed.Local, conn.Name(), plan.Deactivated)
		if again {
			w.records.recreated(local, conn.Name(), name)
			w.Events.Warning(s.observed.Local, plan.EventReason, fmt.Sprintf("%s %s was deleted on %q, and is created there again", kind, name, conn.Name()))
		}
		return nil
	case apierrors.IsAlreadyExists(err):
		there := s.kind.New()
		if err := conn.Call(ctx, func(ctx context.Context, c client.Client) error {
			return c.Get(ctx, client.ObjectKeyFromObject(o), there)
		}); err != nil {
			return err
		}
		if w.Plan.Owns(there) { // the watch is late
			conn.Store(s.kind.GVK).Put(there)
			return nil
		}
		w.noteFault(s, conn.Name(), plan.Fault{Code: plan.NameConflict, Text: "a job of this name is there that is not ours"})
		err := fmt.Errorf("[%s] a %s %s is there that is not ours", plan.NameConflict, s.kind.GVK.Kind, o.GetName())
		if s.check().State == kueue.CheckStateReady { // no other cluster will get it
			return &delayedError{err, conflictFor}
		}
		w.requeue(s.key, copyEventDelay)
		return err
	default:
		return w.failed(s, conn.Name(), err)
	}
}

// storeJob makes a created job visible before the watch does: admission by other clusters no longer matters then.
func storeJob(kind *job.Descriptor, conn *worker.Connection, created *unstructured.Unstructured) error {
	o := kind.New()
	if u, ok := o.(*unstructured.Unstructured); ok {
		u.Object = created.Object
	} else if err := runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, o); err != nil {
		return fmt.Errorf("%s %s on %s: %w", kind.GVK.Kind, created.GetName(), conn.Name(), err)
	}
	conn.Store(kind.GVK).Put(o)
	return nil
}

func (w *workloads) patchStatus(ctx context.Context, s *observation, next *unstructured.Unstructured) error {
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

// sendStatus patches the status of a local job: the subresource, or the object itself.
func (w *workloads) sendStatus(ctx context.Context, s *observation, next *unstructured.Unstructured, patch client.Patch) error {
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

func (w *workloads) copyStatus(ctx context.Context, s *observation, conn *worker.Connection) error {
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

func (w *workloads) replaceStatus(ctx context.Context, s *observation, o job.Object, status any) error {
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

func (w *workloads) clearActive(ctx context.Context, s *observation) error {
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
