package controller

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
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/plan/patch"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// maxNote is how many bytes of an error an event keeps.
const maxNote = 950

// Reconcile brings one TrainJob, its objects and its status up to date (spec: 50 §4.2).
func (r *reconciler) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	obs, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	if obs.job == nil {
		return reconcile.Done().Result(ctx)
	}
	return r.reconcile(ctx, obs).Result(ctx)
}

func (r *reconciler) reconcile(ctx context.Context, obs *observation) reconcile.Outcome {
	if obs.job.DeletionTimestamp != nil {
		r.memory.forget(client.ObjectKeyFromObject(obs.job))
		return reconcile.Done()
	}
	if !plan.IsSupported(&obs.job.Spec.RuntimeRef) {
		return reconcile.Retry(r.writeStatus(ctx, obs, plan.Unsupported(obs.job, r.o.Now())))
	}
	var built *built
	var failure error
	switch {
	case !obs.finished() && !r.failsDeleted(obs):
		built, failure = r.build(ctx, obs)
		r.tellFailure(obs, failure)
	case !plan.IsFinished(obs.job) && obs.jobset != nil && metav1.IsControlledBy(obs.jobset, obs.job):
		built, failure = r.lastRecord(ctx, obs)
	}
	base := r.unwritten(obs.job)
	tooLarge, failure := tooLarge(failure)
	refused, failure := r.giveUp(obs, failure)
	status := plan.Status(plan.Observed{
		TrainJob: base, JobSet: obs.jobset, Ended: obs.ended(), Deleted: r.failsDeleted(obs), TooLarge: tooLarge, Refused: refused, Now: r.o.Now(),
	})
	if plan.Resumes(&base.Status, status) && !plan.HasFinished(&base.Status) {
		status.TrainerStatus = nil // of a run that is over
	}
	r.recordPatches(obs, base, built, status)
	r.recordSnapshot(obs, status)
	after, err := r.enforceDeadline(ctx, obs, status)
	failure = errors.Join(ignoreWait(failure), err)
	if built != nil {
		after = sooner(after, built.after)
	}
	if pause := r.pause(obs, &base.Status, status); pause > 0 {
		after = sooner(after, pause)
	} else {
		failure = errors.Join(failure, r.writeStatus(ctx, obs, status))
	}
	if plan.IsFinished(obs.job) {
		r.memory.forget(client.ObjectKeyFromObject(obs.job))
	}
	switch {
	case failure != nil:
		return retry(failure)
	case after > 0:
		return reconcile.Wait(after)
	}
	return reconcile.Done()
}

// tooLarge tells why no plan can be made of a TrainJob, in the place of the failure that says so. It was stored before the webhook
// refused its like.
func tooLarge(failure error) (why string, other error) {
	if e, ok := errors.AsType[plan.TooLarge](failure); ok {
		return e.Error(), nil
	}
	return "", failure
}

// giveUp tells why a TrainJob with quota can never have what it needs, in the place of the failure that says so now.
func (r *reconciler) giveUp(obs *observation, failure error) (refused string, other error) {
	if r.refusals.IsFinal(obs.job.UID, failure) && plan.HoldsQuota(obs.job) {
		return failure.Error(), nil
	}
	return "", failure
}

// recordPatches says in the status what became of the patches, unless nobody would keep it.
func (r *reconciler) recordPatches(obs *observation, base *trainerv1alpha1.TrainJob, built *built, status *trainerv1alpha1.TrainJobStatus) {
	switch {
	case r.prunes.Load():
		status.RuntimePatches = nil
	case built != nil:
		status.RuntimePatches = patch.Record(base, &obs.runtime.Spec.Template, patch.SelectedOf(base), &r.o.Config.Patches, built.hashes, r.o.Now())
		r.tellOverridden(base, status.RuntimePatches)
	}
}

// sooner is the shorter of two delays, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || (b > 0 && b < a) {
		return b
	}
	return a
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

// failsDeleted reports whether the TrainJob fails because somebody was seen to delete its unfinished JobSet.
func (r *reconciler) failsDeleted(obs *observation) bool {
	return r.o.KeepDeleted && obs.jobset == nil && !plan.IsFinished(obs.job) && obs.gone != nil && obs.gone.end == nil
}

// ended is the condition with which a JobSet that is gone had ended.
func (obs *observation) ended() *metav1.Condition {
	if obs.gone == nil || plan.IsFinished(obs.job) {
		return nil
	}
	return obs.gone.end
}

// enforceDeadline fails a TrainJob that was active for too long and deletes its JobSet, until that is gone. Otherwise it
// says when to look again; 0 if never.
func (r *reconciler) enforceDeadline(ctx context.Context, obs *observation, status *trainerv1alpha1.TrainJobStatus) (time.Duration, error) {
	deadline, limited := plan.Deadline(obs.job, status)
	overdue := plan.IsOverdue(obs.job)
	if limited {
		if left := deadline.Sub(r.o.Now()); left > 0 {
			return max(left, time.Second), nil
		}
		plan.Overdue(status, r.o.Now())
		overdue = true
	}
	if !overdue || obs.jobset == nil || obs.jobset.DeletionTimestamp != nil || !metav1.IsControlledBy(obs.jobset, obs.job) {
		return 0, nil
	}
	uid := obs.jobset.UID
	err := r.client.Delete(ctx, obs.jobset.DeepCopy(), client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("deleting JobSet %s after the deadline: %w", obs.jobset.Name, err)
	}
	return 0, nil
}

// tellFailure records that objects could not be made. That a write was overtaken, or has to wait, is no failure.
func (r *reconciler) tellFailure(obs *observation, err error) {
	if err == nil || errors.Is(err, errWait) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || errors.Is(err, context.Canceled) {
		return
	}
	reason := trainerv1alpha1.EventResourcesCreationFailed
	if _, ok := errors.AsType[unfit](err); ok {
		reason = trainerv1alpha1.EventValidationFailed
	}
	if note := lifecycle.Cut(err.Error(), maxNote); r.memory.isNews(obs.job, note, r.o.Now()) {
		r.events.Event(obs.job, corev1.EventTypeWarning, reason, note)
	}
}

// tellOverridden records, once, that a manager's patch was overridden.
func (r *reconciler) tellOverridden(job *trainerv1alpha1.TrainJob, now []trainerv1alpha1.RuntimePatchStatus) {
	before := map[string]bool{}
	for _, s := range job.Status.RuntimePatches {
		before[s.Manager] = s.State == trainerv1alpha1.RuntimePatchOverridden
	}
	for _, s := range now {
		if s.State == trainerv1alpha1.RuntimePatchOverridden && !before[s.Manager] {
			first := s.OverriddenBy[0]
			r.events.Event(job, corev1.EventTypeWarning, trainerv1alpha1.EventRuntimePatchesOverridden,
				lifecycle.Cut(fmt.Sprintf("Manager %s overrode %s, which %s sets too", first.Manager, first.Field, s.Manager), maxNote))
		}
	}
}

// unfit is the error of a TrainJob that no longer fits its runtime.
type unfit struct{ error }
