package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/plan/patch"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

const maxNote = 950

// Reconcile brings one TrainJob, its objects and its status up to date (spec: 50 §4.2).
func (r *reconciler) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	obs, err := r.observe(ctx, req.NamespacedName)
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
	base := r.withPendingStatus(obs.job)
	deadline, limited := plan.Deadline(base, &base.Status)
	obs.overdue = limited && !deadline.After(r.o.Now())
	var built *provenance
	var failure, suspension error
	switch {
	case !obs.isFinished() && !obs.overdue && !r.failsByDeletion(obs):
		built, failure = r.applyObjects(ctx, obs)
		r.recordFailure(obs, failure)
		suspension = r.suspendJobSet(ctx, obs, failure)
	case !plan.IsFinished(obs.job) && obs.jobset != nil:
		built, failure = r.recordEnded(ctx, obs)
	}
	absent, again, unread := r.isJobSetAbsent(ctx, obs)
	tooLarge, failure := tooLarge(failure)
	refused, failure := r.finalRefusal(obs, failure)
	status := plan.Status(plan.Observed{
		TrainJob: base, JobSet: obs.jobset, Ended: obs.endOfDeleted(), Absent: absent, Deleted: r.failsByDeletion(obs), TooLarge: tooLarge,
		Refused: refused, Now: r.o.Now(),
	})
	if plan.Resumes(&base.Status, status) && !plan.HasFinished(&base.Status) {
		status.TrainerStatus = nil // of the previous run
	}
	r.recordPatches(obs, base, built, status)
	r.recordSnapshot(obs, status)
	after, err := r.enforceDeadline(ctx, obs, status)
	after = reconcile.Earliest(after, again)
	failure = errors.Join(ignoreWait(failure), suspension, unread, err)
	if built != nil {
		after = reconcile.Earliest(after, built.after)
	}
	if pause := r.statusDelay(obs, &base.Status, status); pause > 0 {
		after = reconcile.Earliest(after, pause)
	} else {
		failure = errors.Join(failure, r.writeStatus(ctx, obs, status))
	}
	if plan.IsFinished(obs.job) {
		r.memory.forget(client.ObjectKeyFromObject(obs.job))
	}
	return outcome(failure, after)
}

func outcome(failure error, after time.Duration) reconcile.Outcome {
	switch {
	case failure != nil:
		return retry(failure)
	case after > 0:
		return reconcile.Wait(after)
	}
	return reconcile.Done()
}

// tooLarge separates the reason why a TrainJob is too large to be planned from other failures. Webhooks of earlier versions accepted it.
func tooLarge(failure error) (why string, other error) {
	if e, ok := errors.AsType[plan.TooLarge](failure); ok {
		return e.Error(), nil
	}
	return "", failure
}

// finalRefusal separates a refusal of the API server that is final for a TrainJob that holds quota from other failures. Refusals of a TrainJob that
// waits do not count, nor do those about a TrainJob whose JobSet runs: they are reported, and set no condition (spec: 50 §4.2).
func (r *reconciler) finalRefusal(obs *observation, failure error) (refused string, other error) {
	counted := failure
	if runs := obs.jobset != nil && !ptr.Deref(obs.jobset.Spec.Suspend, false); runs || !plan.HoldsQuota(obs.job) {
		counted = nil
	}
	if r.refusals.IsFinal(obs.job.UID, counted) {
		return lifecycle.Cut(failure.Error(), lifecycle.MaxMessage), nil
	}
	return "", failure
}

// recordPatches sets status.runtimePatches, unless the CRD that is served does not have the field.
func (r *reconciler) recordPatches(obs *observation, base *trainerv1alpha1.TrainJob, built *provenance, status *trainerv1alpha1.TrainJobStatus) {
	switch {
	case r.prunesPatches.Load():
		status.RuntimePatches = nil
	case built != nil:
		status.RuntimePatches = patch.Record(base, &obs.runtime.Spec.Template, patch.SelectedOf(base), &r.o.Config.Patches, built.hashes, r.o.Now())
		r.recordOverridden(base, status.RuntimePatches)
	}
}

// retry unwraps a single joined error, so that a conflict is recognized.
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

// failsByDeletion reports whether the TrainJob fails because its unfinished JobSet was deleted.
func (r *reconciler) failsByDeletion(obs *observation) bool {
	return r.o.KeepDeleted && obs.jobset == nil && !plan.IsFinished(obs.job) && !obs.overdue && obs.deleted != nil && obs.deleted.end == nil
}

func (obs *observation) endOfDeleted() *metav1.Condition {
	if obs.deleted == nil || plan.IsFinished(obs.job) {
		return nil
	}
	return obs.deleted.end
}

// enforceDeadline fails a TrainJob that exceeds its deadline, and deletes its JobSet. Before the deadline it returns the time that is left;
// 0 is no deadline.
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
	if !overdue || obs.jobset == nil || obs.jobset.DeletionTimestamp != nil {
		return 0, nil
	}
	if err := r.deleteJobSet(ctx, obs.jobset, metav1.DeletePropagationBackground); err != nil {
		return 0, fmt.Errorf("deleting JobSet %s after the deadline: %w", obs.jobset.Name, err)
	}
	return 0, nil
}

// recordFailure emits an event about objects that could not be created. Conflicts and waits are no failures.
func (r *reconciler) recordFailure(obs *observation, err error) {
	if !reconcile.IsFailure(err) || errors.Is(err, errWait) {
		return
	}
	reason := trainerv1alpha1.EventResourcesCreationFailed
	if _, ok := errors.AsType[unfit](err); ok {
		reason = trainerv1alpha1.EventValidationFailed
	}
	if note := lifecycle.Cut(err.Error(), maxNote); r.memory.isNewFailure(obs.job, note, r.o.Now()) {
		r.events.Event(obs.job, corev1.EventTypeWarning, reason, note)
	}
}

// recordOverridden emits one event when a manager's patch becomes overridden.
func (r *reconciler) recordOverridden(job *trainerv1alpha1.TrainJob, now []trainerv1alpha1.RuntimePatchStatus) {
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

type unfit struct{ error }
