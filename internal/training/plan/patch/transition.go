package patch

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// TransitionMessage is the refusal of a change of patches while the TrainJob runs, which clients compare.
const TransitionMessage = "RuntimePatches can only be modified when the TrainJob is suspended before or after the update"

// stillActive is in the refusal of a change while Jobs of the last run are active.
const stillActive = "is still active"

// IsPassing reports whether the text of a refusal is one that ends when the last run of the TrainJob has ended.
func IsPassing(refusal string) bool {
	return strings.Contains(refusal, TransitionMessage) || strings.Contains(refusal, stillActive)
}

// NeedsJobSet reports whether the JobSet decides about an update: the patches change, and that is not refused anyway.
func NeedsJobSet(job, old *trainerv1alpha1.TrainJob) bool {
	return old != nil && Changed(job, old) && (suspended(job) || suspended(old))
}

// Changed reports whether an update changes the patches. Their order counts, their times do not.
func Changed(job, old *trainerv1alpha1.TrainJob) bool {
	return !equality.Semantic.DeepEqual(WithoutTimes(job.Spec.RuntimePatches), WithoutTimes(old.Spec.RuntimePatches))
}

// Transition says when patches may change (spec: 50 §3.5). old is nil for a new TrainJob, jobset if there is none; err says
// why that is not known.
//
//	suspended before  after   change of the patches
//	no                no      refused
//	any other                 allowed, unless a replicated job of the JobSet is still active
//
// A TrainJob that has finished is no exception: its patches say what it ran with.
func Transition(job, old *trainerv1alpha1.TrainJob, jobset *jobsetv1alpha2.JobSet, err error) (errs field.ErrorList) {
	if old == nil || !Changed(job, old) {
		return nil
	}
	if !suspended(job) && !suspended(old) {
		return field.ErrorList{field.Forbidden(listPath, TransitionMessage)}
	}
	if err != nil {
		return field.ErrorList{field.InternalError(listPath, fmt.Errorf("reading the JobSet: %w", err))}
	}
	if jobset == nil {
		return nil
	}
	for i := range jobset.Status.ReplicatedJobsStatus {
		if s := &jobset.Status.ReplicatedJobsStatus[i]; s.Active > 0 {
			errs = append(errs, field.Forbidden(listPath, fmt.Sprintf("ReplicatedJob %s %s (%d jobs); wait until its pods have ended", s.Name, stillActive, s.Active)))
		}
	}
	return errs
}

// WithoutTimes is a shallow copy of patches that have no time.
func WithoutTimes(patches []trainerv1alpha1.RuntimePatch) []trainerv1alpha1.RuntimePatch {
	out := slices.Clone(patches)
	for i := range out {
		out[i].Time = nil
	}
	return out
}

func suspended(job *trainerv1alpha1.TrainJob) bool {
	return job.Spec.Suspend != nil && *job.Spec.Suspend
}
