package patch

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// TransitionMessage is the refusal of a change of patches while the TrainJob runs. Clients compare it.
const TransitionMessage = "RuntimePatches can only be modified when the TrainJob is suspended before or after the update"

// stillActive is in the refusal of a change while Jobs of the previous run are active.
const stillActive = "is still active"

// IsPassing reports whether a refusal ends with the previous run of the TrainJob.
func IsPassing(refusal string) bool {
	return strings.Contains(refusal, TransitionMessage) || strings.Contains(refusal, stillActive)
}

// NeedsJobSet reports whether the JobSet decides about an update: the patches change, and the change is not refused anyway.
func NeedsJobSet(job, old *trainerv1alpha1.TrainJob) bool {
	return old != nil && Changed(job, old) && (suspended(job) || suspended(old))
}

// Changed reports whether an update changes the patches. Their order counts, their times do not.
func Changed(job, old *trainerv1alpha1.TrainJob) bool {
	return !equality.Semantic.DeepEqual(WithoutTimes(job.Spec.RuntimePatches), WithoutTimes(old.Spec.RuntimePatches))
}

// Transition refuses changes of patches while their pods may run (spec: 50 §3.5). old is nil for a new TrainJob, jobset if it does not exist;
// err is why the JobSet could not be read.
//
//	suspended before  after   change of the patches
//	no                no      refused
//	any other                 allowed, unless a replicated job of the JobSet is still active
//
// This includes TrainJobs that have finished: their patches belong to their run.
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

// WithoutTimes returns a shallow copy of patches without their times.
func WithoutTimes(patches []trainerv1alpha1.RuntimePatch) []trainerv1alpha1.RuntimePatch {
	out := slices.Clone(patches)
	for i := range out {
		out[i].Time = nil
	}
	return out
}

func suspended(job *trainerv1alpha1.TrainJob) bool { return ptr.Deref(job.Spec.Suspend, false) }
