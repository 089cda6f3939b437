package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan"
)

// A status write is delayed to combine changes: a TrainJob that a queue starts at once is suspended, patched, resumed and has Jobs
// within a second. Urgent changes are written at once.
const (
	// conditionDelay is for conditions and runtimePatches.
	conditionDelay = time.Second
	// counterDelay is for counters alone, from the last write. earlyCounterDelay is for counters that do not change the number of ready Jobs.
	counterDelay, earlyCounterDelay = time.Second, 5 * time.Second
)

type pendingStatus struct {
	status *trainerv1alpha1.TrainJobStatus
	since  time.Time
	// resumed reports that the TrainJob was resumed: its trainerStatus is that of the previous run.
	resumed bool
}

// withPendingStatus returns the TrainJob with the conditions and runtimePatches of the delayed status, whose times it keeps.
func (r *reconciler) withPendingStatus(job *trainerv1alpha1.TrainJob) *trainerv1alpha1.TrainJob {
	var pending *pendingStatus
	r.memory.update(job, func(k *known) { pending = k.pending })
	if pending == nil {
		return job
	}
	out := job.DeepCopy()
	out.Status.Conditions, out.Status.RuntimePatches = pending.status.Conditions, pending.status.RuntimePatches
	if pending.resumed {
		out.Status.TrainerStatus = nil
	}
	return out
}

// statusDelay returns the time until the status is to be written; 0 to write it now, or if it is unchanged. The memory has no entry for a
// TrainJob that has finished, so its status is written at once.
func (r *reconciler) statusDelay(obs *observation, base, status *trainerv1alpha1.TrainJobStatus) time.Duration {
	before := &obs.job.Status
	if equalStatus(before, status) {
		r.memory.update(obs.job, func(k *known) { k.pending = nil })
		return 0
	}
	if plan.HasFinished(before) || isUrgent(before, status) || (!plan.IsSuspended(obs.job) && obs.jobset != nil && plan.IsRunning(obs.jobset)) {
		return 0
	}
	now := r.o.Now()
	others := status.DeepCopy()
	others.JobsStatus = before.JobsStatus
	counters := equalStatus(before, others)
	var due time.Time
	r.memory.update(obs.job, func(k *known) {
		switch {
		case !counters:
			next := &pendingStatus{status: status.DeepCopy(), since: now, resumed: plan.Resumes(base, status)}
			if k.pending != nil {
				next.since, next.resumed = k.pending.since, next.resumed || (k.pending.resumed && !plan.IsSuspended(obs.job))
			}
			k.pending = next
			due = next.since.Add(conditionDelay)
		case plan.Ready(before) != plan.Ready(status):
			due = k.statusWritten.Add(counterDelay)
		default:
			due = k.statusWritten.Add(earlyCounterDelay)
		}
	})
	return due.Sub(now)
}

// isUrgent reports whether the TrainJob has finished, or its last Job has become inactive, upon which the queue releases its quota.
func isUrgent(before, after *trainerv1alpha1.TrainJobStatus) bool {
	return plan.HasFinished(before) != plan.HasFinished(after) || (plan.IsActive(before) && !plan.IsActive(after))
}

// writeStatus patches the fields of the status that changed. It fails with a conflict if the TrainJob is newer than the cache: the times
// of conditions would be set twice.
func (r *reconciler) writeStatus(ctx context.Context, obs *observation, status *trainerv1alpha1.TrainJobStatus) error {
	if equalStatus(&obs.job.Status, status) {
		return nil
	}
	next := obs.job.DeepCopy()
	next.Status = *status
	change, err := client.MergeFromWithOptions(obs.job, client.MergeFromWithOptimisticLock{}).Data(next)
	if err != nil {
		return fmt.Errorf("updating the status of TrainJob %s: %w", client.ObjectKeyFromObject(obs.job), err)
	}
	stored := &trainerv1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: obs.job.Namespace, Name: obs.job.Name}}
	if err := r.client.Status().Patch(ctx, stored, client.RawPatch(types.MergePatchType, change), fieldOwner); err != nil {
		return fmt.Errorf("updating the status of TrainJob %s: %w", client.ObjectKeyFromObject(obs.job), err)
	}
	if len(status.RuntimePatches) > 0 && len(stored.Status.RuntimePatches) == 0 {
		r.prunesPatches.Store(true)
	}
	if status.RuntimeSnapshot != nil && stored.Status.RuntimeSnapshot == nil {
		r.prunesSnapshot.Store(true)
	}
	obs.job = stored
	r.memory.update(obs.job, func(k *known) { k.statusWritten, k.pending = r.o.Now(), nil })
	return nil
}

// recordSnapshot sets status.runtimeSnapshot. A first status without a snapshot records an empty hash, which distinguishes it from the
// status of a version that does not record snapshots.
func (r *reconciler) recordSnapshot(obs *observation, status *trainerv1alpha1.TrainJobStatus) {
	before := &obs.job.Status
	switch {
	case r.prunesSnapshot.Load():
		status.RuntimeSnapshot = nil
	case obs.hash != "":
		status.RuntimeSnapshot = &trainerv1alpha1.RuntimeSnapshotStatus{Hash: obs.hash}
	case !plan.WasWritten(before) && !equalStatus(before, status):
		status.RuntimeSnapshot = &trainerv1alpha1.RuntimeSnapshotStatus{}
	}
}

func equalStatus(a, b *trainerv1alpha1.TrainJobStatus) bool { return equality.Semantic.DeepEqual(a, b) }
