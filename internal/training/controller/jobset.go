package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan"
)

const jobSetID = "JobSet"

// applyJobSet applies the JobSet. While it runs, and the TrainJob is not suspended, it is not changed (spec: 50 §4.2).
func (r *reconciler) applyJobSet(ctx context.Context, obs *observation, wanted *jobsetv1alpha2.JobSet) (*provenance, error) {
	u, err := plan.Manifest(wanted)
	if err != nil {
		return nil, err
	}
	runs := obs.jobset != nil && !ptr.Deref(obs.jobset.Spec.Suspend, false)
	if runs && !plan.IsSuspended(obs.job) {
		return r.deriveProvenance(ctx, obs, u)
	}
	hash := contentHash(u)
	before, ok := r.memory.lastApplied(obs.job, jobSetID)
	if ok && obs.jobset == nil {
		return r.provenanceOf(obs), r.confirmJobSet(ctx, obs)
	}
	uid := types.UID("")
	if obs.jobset != nil {
		uid = obs.jobset.UID
	}
	if !ok || before.hash != hash || !before.version.isCurrent(obs.jobset, wanted) {
		r.memory.update(obs.job, func(k *known) { k.deleted = nil }) // a deletion is that of the new JobSet from now on
		if err := r.applyObject(ctx, u); err != nil {
			return r.provenanceOf(obs), r.recreateJobSet(ctx, obs, err)
		}
		uid = u.GetUID()
		r.memory.noteApplied(obs.job, jobSetID, applied{hash: hash, version: versionOf(u)})
	}
	return r.recordProvenance(ctx, obs, uid)
}

// confirmJobSet asks the API server about a JobSet that was applied and is not in the cache. If it does not exist, it was deleted by
// another client before the cache had it.
func (r *reconciler) confirmJobSet(ctx context.Context, obs *observation) error {
	switch exists, err := r.jobSetExists(ctx, obs.job); {
	case err != nil:
		return err
	case exists:
		return errWait
	}
	r.memory.noteMissing(obs.job, r.o.Now())
	return apierrors.NewNotFound(jobsetv1alpha2.GroupVersion.WithResource("jobsets").GroupResource(), obs.job.Name) // retry
}

// jobsDelay is how often the Jobs of a deleted JobSet are listed until their pods have ended, unless a failure is retried later. They are not
// watched here.
const jobsDelay = 5 * time.Second

// isJobSetAbsent reports whether the status counts Jobs of a JobSet that does not exist, and none of them has pods: deletion in the background leaves
// Jobs for a while, and the propagation policy Orphan for good. after is when to ask again; 0 is never. The cache may lag behind, so the API server
// is asked. Its webhook lets the patches of such a TrainJob change, and the queue is to release its quota, whether the JobSet can be made again or
// not.
func (r *reconciler) isJobSetAbsent(ctx context.Context, obs *observation) (absent bool, after time.Duration, err error) {
	if obs.jobset != nil || plan.IsFinished(obs.job) || !plan.CountsJobs(&obs.job.Status) {
		return false, 0, nil
	}
	if exists, err := r.jobSetExists(ctx, obs.job); err != nil || exists {
		return false, 0, err
	}
	switch runs, err := r.anyJobRuns(ctx, obs); {
	case err != nil:
		return false, 0, err
	case runs:
		return false, jobsDelay, nil
	}
	return true, 0, nil
}

// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=list,roleName=kueue-manager-training-role

// jobsPage is the number of Jobs that are listed at a time.
const jobsPage = 100

// anyJobRuns asks the API server whether a Job that a JobSet of the TrainJob left has pods, or may have some. Orphans have no owner; the Jobs of
// a JobSet of the name that is not the TrainJob's are not its own.
func (r *reconciler) anyJobRuns(ctx context.Context, obs *observation) (bool, error) {
	job := obs.job
	for next := ""; ; {
		var jobs batchv1.JobList
		err := r.live.List(ctx, &jobs, client.InNamespace(job.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: job.Name},
			client.Limit(jobsPage), client.Continue(next))
		if err != nil {
			return false, fmt.Errorf("listing the Jobs of JobSet %s: %w", job.Name, err)
		}
		if slices.ContainsFunc(jobs.Items, func(j batchv1.Job) bool {
			return plan.MayRun(j) && (obs.foreign == nil || !metav1.IsControlledBy(&j, obs.foreign))
		}) {
			return true, nil
		}
		if next = jobs.Continue; next == "" {
			return false, nil
		}
	}
}

// jobSetExists asks the API server whether a TrainJob has a JobSet.
func (r *reconciler) jobSetExists(ctx context.Context, job *trainerv1alpha1.TrainJob) (bool, error) {
	jobset := metadataOf(jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet))
	err := r.live.Get(ctx, client.ObjectKeyFromObject(job), jobset)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading JobSet %s: %w", job.Name, err)
	}
	return err == nil && metav1.IsControlledBy(jobset, job), nil
}

type version struct {
	uid        types.UID
	generation int64
}

func versionOf(o client.Object) version { return version{o.GetUID(), o.GetGeneration()} }

// isCurrent reports whether the cached JobSet has this version or an earlier one, and the wanted metadata.
func (v version) isCurrent(jobset, wanted *jobsetv1alpha2.JobSet) bool {
	return jobset != nil && v.uid == jobset.UID && jobset.Generation <= v.generation &&
		containsAll(jobset.Labels, wanted.Labels) && containsAll(jobset.Annotations, wanted.Annotations)
}

func containsAll(m, part map[string]string) bool {
	for key, value := range part {
		if got, ok := m[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// suspendJobSet suspends the JobSet of a suspended TrainJob if its objects were not applied because of a failure. The quota of the TrainJob is
// released when its Jobs have ended, which must not depend on objects of other owners.
func (r *reconciler) suspendJobSet(ctx context.Context, obs *observation, failure error) error {
	j := obs.jobset
	if failure == nil || !plan.IsSuspended(obs.job) || j == nil || j.DeletionTimestamp != nil || ptr.Deref(j.Spec.Suspend, false) {
		return nil
	}
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": j.UID}, "spec": map[string]any{"suspend": true}})
	if err != nil {
		return err
	}
	if err := r.client.Patch(ctx, j.DeepCopy(), client.RawPatch(types.MergePatchType, change), fieldOwner); err != nil {
		return fmt.Errorf("suspending JobSet %s: %w", j.Name, err)
	}
	return nil
}

// recreateJobSet deletes a JobSet whose immutable fields would have to change, so that the next reconcile creates it (spec: 50 §3.6). It
// is suspended first, by suspendJobSet, and deleted when no pods are left. Other refusals are returned.
func (r *reconciler) recreateJobSet(ctx context.Context, obs *observation, refusal error) error {
	isImmutable := obs.jobset != nil && (apierrors.IsInvalid(refusal) || apierrors.IsForbidden(refusal)) && strings.Contains(refusal.Error(), "replicatedJobs")
	if !isImmutable {
		return refusal
	}
	if !ptr.Deref(obs.jobset.Spec.Suspend, false) || !plan.IsIdle(obs.jobset) {
		return errWait
	}
	r.memory.noteRecreation(obs.jobset.UID)
	if err := r.deleteJobSet(ctx, obs.jobset, metav1.DeletePropagationForeground); err != nil {
		return fmt.Errorf("deleting JobSet %s to make it again: %w", obs.jobset.Name, err)
	}
	r.events.Event(obs.job, corev1.EventTypeNormal, trainerv1alpha1.EventJobSetRecreated,
		"The JobSet is made again, because what changed in the TrainJob cannot change in a JobSet")
	return errWait
}

func (r *reconciler) deleteJobSet(ctx context.Context, jobset *jobsetv1alpha2.JobSet, propagation metav1.DeletionPropagation) error {
	uid := jobset.UID
	return client.IgnoreNotFound(r.client.Delete(ctx, jobset.DeepCopy(), client.Preconditions{UID: &uid}, client.PropagationPolicy(propagation)))
}
