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

// A status waits for so long, at the longest, for what else will change in it: a TrainJob that a queue starts at once is
// suspended, resumed, given its patch and seen to have Jobs within a moment. What somebody waits for is never held back.
const (
	// holdStatus is for conditions and for what became of patches.
	holdStatus = time.Second
	// holdCounters is for counters alone, from when the status was written last. While a TrainJob is suspended, or its
	// pods are still coming, they say little.
	holdCounters, holdEarlyCounters = time.Second, 5 * time.Second
)

// held is a status that is not written yet.
type held struct {
	status *trainerv1alpha1.TrainJobStatus
	since  time.Time
	// resumed says that the TrainJob was resumed, so that its progress is of a run that is over.
	resumed bool
}

// unwritten is the TrainJob with the conditions and patches that its status has, or will have when it is written. The
// times in them are those at which things happened.
func (r *reconciler) unwritten(job *trainerv1alpha1.TrainJob) *trainerv1alpha1.TrainJob {
	var h *held
	r.memory.use(job, func(k *known) { h = k.held })
	if h == nil {
		return job
	}
	out := job.DeepCopy()
	out.Status.Conditions, out.Status.RuntimePatches = h.status.Conditions, h.status.RuntimePatches
	if h.resumed {
		out.Status.TrainerStatus = nil
	}
	return out
}

// pause is how long a status can wait to be written; 0 if it cannot, or if nothing changed. That of a TrainJob which has finished does
// not wait: little changes in it, and nothing is remembered of it.
func (r *reconciler) pause(obs *observation, base, status *trainerv1alpha1.TrainJobStatus) time.Duration {
	before := &obs.job.Status
	if sameStatus(before, status) {
		r.memory.use(obs.job, func(k *known) { k.held = nil })
		return 0
	}
	if plan.HasFinished(before) || isUrgent(before, status) || (!plan.IsSuspended(obs.job) && obs.jobset != nil && plan.IsRunning(obs.jobset)) {
		return 0
	}
	now := r.o.Now()
	others := status.DeepCopy()
	others.JobsStatus = before.JobsStatus
	counters := sameStatus(before, others)
	var due time.Time
	r.memory.use(obs.job, func(k *known) {
		switch {
		case !counters:
			next := &held{status: status.DeepCopy(), since: now, resumed: plan.Resumes(base, status)}
			if k.held != nil {
				next.since, next.resumed = k.held.since, next.resumed || (k.held.resumed && !plan.IsSuspended(obs.job))
			}
			k.held = next
			due = next.since.Add(holdStatus)
		case plan.Ready(before) != plan.Ready(status):
			due = k.told.Add(holdCounters)
		default:
			due = k.told.Add(holdEarlyCounters)
		}
	})
	return due.Sub(now)
}

// isUrgent reports whether somebody waits for what changed: that the TrainJob has finished, and that its last Job has no pods
// any more, upon which the queue gives its quota away.
func isUrgent(before, after *trainerv1alpha1.TrainJobStatus) bool {
	return plan.HasFinished(before) != plan.HasFinished(after) || (plan.IsActive(before) && !plan.IsActive(after))
}

// writeStatus patches the status if it changed. Nobody else's fields are touched. It fails with a conflict if the TrainJob
// is newer than the cache: times would be stamped twice.
func (r *reconciler) writeStatus(ctx context.Context, obs *observation, status *trainerv1alpha1.TrainJobStatus) error {
	if sameStatus(&obs.job.Status, status) {
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
		r.prunes.Store(true)
	}
	if status.RuntimeSnapshot != nil && stored.Status.RuntimeSnapshot == nil {
		r.prunesSnapshot.Store(true)
	}
	obs.job = stored
	r.memory.use(obs.job, func(k *known) { k.told, k.held = r.o.Now(), nil })
	return nil
}

// recordSnapshot puts the snapshot that was read or made into the status. A status that is written for the first time before there is
// a snapshot says so, so that it is not taken for that of a version which records none.
func (r *reconciler) recordSnapshot(obs *observation, status *trainerv1alpha1.TrainJobStatus) {
	before := &obs.job.Status
	switch {
	case r.prunesSnapshot.Load():
		status.RuntimeSnapshot = nil
	case obs.hash != "":
		status.RuntimeSnapshot = &trainerv1alpha1.RuntimeSnapshotStatus{Hash: obs.hash}
	case !plan.WasWritten(before) && !sameStatus(before, status):
		status.RuntimeSnapshot = &trainerv1alpha1.RuntimeSnapshotStatus{}
	}
}

// sameStatus reports whether nothing has to be written.
func sameStatus(a, b *trainerv1alpha1.TrainJobStatus) bool { return equality.Semantic.DeepEqual(a, b) }
