package training

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/plan/lifecycle"
	"github.com/berth-project/berth/internal/plan/train"
	"github.com/berth-project/berth/internal/plan/train/patch"
	"github.com/berth-project/berth/internal/reconcile"
)

// maxNote is how many bytes of an error an event keeps.
const maxNote = 950

// Reconcile brings one TrainJob, its objects and its status up to date (spec: 50 §4.2).
func (r *reconciler) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	w, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	if w.job == nil {
		return reconcile.Done().Result(ctx)
	}
	return r.reconcile(ctx, w).Result(ctx)
}

func (r *reconciler) reconcile(ctx context.Context, w *world) reconcile.Outcome {
	if w.job.DeletionTimestamp != nil {
		r.memory.forget(client.ObjectKeyFromObject(w.job))
		return reconcile.Done()
	}
	if !train.IsSupported(&w.job.Spec.RuntimeRef) {
		return reconcile.Retry(r.writeStatus(ctx, w, train.Unsupported(w.job, r.o.Now())))
	}
	var built *built
	var failure error
	switch {
	case !w.finished() && !r.failsDeleted(w):
		built, failure = r.build(ctx, w)
		r.tellFailure(w, failure)
	case !train.IsFinished(w.job) && w.jobset != nil && metav1.IsControlledBy(w.jobset, w.job):
		built, failure = r.lastRecord(ctx, w)
	}
	status := train.Status(train.Observed{
		TrainJob: w.job, JobSet: w.jobset, Ended: w.ended(), Deleted: r.failsDeleted(w), Now: r.o.Now(),
	})
	if built != nil {
		status.RuntimePatches = patch.Record(w.job, &w.runtime.Spec.Template, patch.SelectedOf(w.job), &r.o.Config.Patches, built.hashes, r.o.Now())
		r.tellOverridden(w, status.RuntimePatches)
	}
	after, err := r.enforceDeadline(ctx, w, status)
	failure = errors.Join(ignoreWait(failure), err)
	if pause := r.pause(w, status); pause > 0 {
		if after == 0 || pause < after {
			after = pause
		}
	} else {
		failure = errors.Join(failure, r.writeStatus(ctx, w, status))
	}
	if train.IsFinished(w.job) {
		r.memory.forget(client.ObjectKeyFromObject(w.job))
	}
	switch {
	case failure != nil:
		return retry(failure)
	case after > 0:
		return reconcile.Wait(after)
	}
	return reconcile.Done()
}

// Counters alone are written so long after the status was written last, at the earliest: several changes come together
// then. While a TrainJob is suspended they say little.
const (
	counterPause   = time.Second
	suspendedPause = 5 * time.Second
)

// pause is how long a status can wait in which nothing but counters changed. That the last Job ended cannot: the queue
// waits for it.
func (r *reconciler) pause(w *world, status *trainerv1alpha1.TrainJobStatus) time.Duration {
	others := status.DeepCopy()
	others.JobsStatus = w.job.Status.JobsStatus
	if sameStatus(&w.job.Status, status) || !sameStatus(&w.job.Status, others) || (train.IsActive(&w.job.Status) && !train.IsActive(status)) {
		return 0
	}
	length := counterPause
	if train.IsSuspended(w.job) {
		length = suspendedPause
	}
	var told time.Time
	r.memory.use(w.job, func(k *known) { told = k.told })
	return told.Add(length).Sub(r.o.Now())
}

// retry is the outcome of a failure. Of several the first counts, so that a conflict can be told.
func retry(err error) reconcile.Outcome {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) == 1 {
		return reconcile.Retry(joined.Unwrap()[0])
	}
	return reconcile.Retry(err)
}

func ignoreWait(err error) error {
	if errors.Is(err, errWait) {
		return nil
	}
	return err
}

// failsDeleted says whether the TrainJob fails because somebody was seen to delete its unfinished JobSet.
func (r *reconciler) failsDeleted(w *world) bool {
	return r.o.KeepDeleted && w.jobset == nil && !train.IsFinished(w.job) && w.gone != nil && w.gone.end == nil
}

// ended is the condition with which a JobSet that is gone had ended.
func (w *world) ended() *metav1.Condition {
	if w.gone == nil || train.IsFinished(w.job) {
		return nil
	}
	return w.gone.end
}

// enforceDeadline fails a TrainJob that was active for too long and deletes its JobSet, until that is gone. Otherwise it
// says when to look again; 0 if never.
func (r *reconciler) enforceDeadline(ctx context.Context, w *world, status *trainerv1alpha1.TrainJobStatus) (time.Duration, error) {
	deadline, limited := train.Deadline(w.job, status)
	overdue := train.IsOverdue(w.job)
	if limited {
		if left := deadline.Sub(r.o.Now()); left > 0 {
			return max(left, time.Second), nil
		}
		train.Overdue(status, r.o.Now())
		overdue = true
	}
	if !overdue || w.jobset == nil || w.jobset.DeletionTimestamp != nil || !metav1.IsControlledBy(w.jobset, w.job) {
		return 0, nil
	}
	uid := w.jobset.UID
	err := r.client.Delete(ctx, w.jobset.DeepCopy(), client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("deleting JobSet %s after the deadline: %w", w.jobset.Name, err)
	}
	return 0, nil
}

// writeStatus patches the status if it changed. Nobody else's fields are touched. It fails with a conflict if the TrainJob
// is newer than the cache: times would be stamped twice.
func (r *reconciler) writeStatus(ctx context.Context, w *world, status *trainerv1alpha1.TrainJobStatus) error {
	if sameStatus(&w.job.Status, status) {
		return nil
	}
	next := w.job.DeepCopy()
	next.Status = *status
	lock := client.MergeFromWithOptions(w.job, client.MergeFromWithOptimisticLock{})
	err := r.client.Status().Patch(ctx, next, lock, fieldOwner)
	if err != nil {
		return fmt.Errorf("updating the status of TrainJob %s: %w", client.ObjectKeyFromObject(w.job), err)
	}
	w.job = next
	r.memory.use(w.job, func(k *known) { k.told = r.o.Now() })
	return nil
}

// tellFailure records that objects could not be made. That a write was overtaken, or has to wait, is no failure.
func (r *reconciler) tellFailure(w *world, err error) {
	if err == nil || errors.Is(err, errWait) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || errors.Is(err, context.Canceled) {
		return
	}
	reason := trainerv1alpha1.EventResourcesCreationFailed
	if _, ok := errors.AsType[unfit](err); ok {
		reason = trainerv1alpha1.EventValidationFailed
	}
	r.events.Event(w.job, corev1.EventTypeWarning, reason, lifecycle.Cut(err.Error(), maxNote))
}

// tellOverridden records, once, that a manager's patch was overridden.
func (r *reconciler) tellOverridden(w *world, now []trainerv1alpha1.RuntimePatchStatus) {
	before := map[string]bool{}
	for _, s := range w.job.Status.RuntimePatches {
		before[s.Manager] = s.State == trainerv1alpha1.RuntimePatchOverridden
	}
	for _, s := range now {
		if s.State == trainerv1alpha1.RuntimePatchOverridden && !before[s.Manager] {
			first := s.OverriddenBy[0]
			r.events.Event(w.job, corev1.EventTypeWarning, trainerv1alpha1.EventRuntimePatchesOverridden,
				lifecycle.Cut(fmt.Sprintf("Manager %s overrode %s, which %s sets too", first.Manager, first.Field, s.Manager), maxNote))
		}
	}
}

// unfit is the error of a TrainJob that no longer fits its runtime.
type unfit struct{ error }
