package plan

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/job"
)

// IsOurs reports whether this controller manages the TrainJob.
func IsOurs(job *trainerv1alpha1.TrainJob) bool {
	return job.Spec.ManagedBy == nil || *job.Spec.ManagedBy == trainerv1alpha1.DefaultManager
}

// IsFinished reports whether a TrainJob has completed or failed.
func IsFinished(job *trainerv1alpha1.TrainJob) bool { return HasFinished(&job.Status) }

// HasFinished reports whether a status is that of a finished TrainJob.
func HasFinished(s *trainerv1alpha1.TrainJobStatus) bool {
	return isTrue(s.Conditions, string(trainerv1alpha1.ConditionComplete)) || isTrue(s.Conditions, string(trainerv1alpha1.ConditionFailed))
}

// Resumes reports whether a status change ends a suspension.
func Resumes(before, after *trainerv1alpha1.TrainJobStatus) bool {
	kind := string(trainerv1alpha1.ConditionSuspended)
	return isTrue(before.Conditions, kind) && !isTrue(after.Conditions, kind)
}

// IsSuspended reports whether spec.suspend is true.
func IsSuspended(job *trainerv1alpha1.TrainJob) bool { return ptr.Deref(job.Spec.Suspend, false) }

// IsOverdue reports whether a TrainJob failed because of its deadline.
func IsOverdue(job *trainerv1alpha1.TrainJob) bool {
	c := apimeta.FindStatusCondition(job.Status.Conditions, string(trainerv1alpha1.ConditionFailed))
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == trainerv1alpha1.ReasonDeadlineExceeded
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	return apimeta.IsStatusConditionTrue(conditions, kind)
}

// Observed is the input of Status.
type Observed struct {
	TrainJob *trainerv1alpha1.TrainJob
	// JobSet is nil if it does not exist; Ended is then the final condition that it had when it was deleted, if it had one.
	JobSet *jobsetv1alpha2.JobSet
	Ended  *metav1.Condition
	// Absent reports that the API server has no JobSet either, and that none of the Jobs that the status counts MayRun.
	Absent bool
	// Deleted reports that the unfinished JobSet was deleted, and is not created again.
	Deleted bool
	// TooLarge is why no plan can be made of the TrainJob, or empty. It fails: the number cannot change.
	TooLarge string
	// Refused is why the API server refuses objects of the TrainJob for good, or empty. It fails a TrainJob that HoldsQuota.
	Refused string
	Now     time.Time
}

// HoldsQuota reports whether a TrainJob runs by an admission: it is not suspended and has the patch of the queue. It must not wait for
// objects that it cannot have, because others wait for its quota.
func HoldsQuota(job *trainerv1alpha1.TrainJob) bool {
	return !IsSuspended(job) && isPlaced(job)
}

// isPlaced reports whether the patch of the queue changes replicated jobs.
func isPlaced(job *trainerv1alpha1.TrainJob) bool {
	return slices.ContainsFunc(job.Spec.RuntimePatches, func(p trainerv1alpha1.RuntimePatch) bool {
		return p.Manager == trainerv1alpha1.QueuePatchManager && p.TrainingRuntimeSpec != nil && p.TrainingRuntimeSpec.Template != nil &&
			p.TrainingRuntimeSpec.Template.Spec != nil && len(p.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs) > 0
	})
}

// Status returns the status with the conditions and counters that follow from the observation (spec: 50 §4.2, §5.1). A TrainJob that runs
// and was never suspended has no condition: clients take any condition for a sign that it does not run.
func Status(o Observed) *trainerv1alpha1.TrainJobStatus {
	s := o.TrainJob.Status.DeepCopy()
	set := func(kind trainerv1alpha1.ConditionType, status metav1.ConditionStatus, reason, message string, at metav1.Time) {
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: string(kind), Status: status, Reason: reason, Message: message, LastTransitionTime: at,
		})
	}
	now := metav1.NewTime(o.Now)
	switch {
	case IsSuspended(o.TrainJob):
		set(trainerv1alpha1.ConditionSuspended, metav1.ConditionTrue, trainerv1alpha1.ReasonSuspended, trainerv1alpha1.MessageSuspended, now)
	case isTrue(s.Conditions, string(trainerv1alpha1.ConditionSuspended)):
		set(trainerv1alpha1.ConditionSuspended, metav1.ConditionFalse, trainerv1alpha1.ReasonResumed, trainerv1alpha1.MessageResumed, now)
	}
	if o.JobSet != nil {
		s.JobsStatus = jobsStatus(o.JobSet)
	}
	if IsOverdue(o.TrainJob) {
		return s
	}
	end := o.Ended
	if o.JobSet != nil {
		end = End(o.JobSet)
	}
	switch {
	case end != nil && end.Type == string(jobsetv1alpha2.ConditionCompleted):
		set(trainerv1alpha1.ConditionComplete, metav1.ConditionTrue, end.Reason, end.Message, end.LastTransitionTime)
	case end != nil:
		set(trainerv1alpha1.ConditionFailed, metav1.ConditionTrue, end.Reason, end.Message, end.LastTransitionTime)
	case o.Deleted && !IsFinished(o.TrainJob):
		set(trainerv1alpha1.ConditionFailed, metav1.ConditionTrue, trainerv1alpha1.ReasonJobSetDeleted, "The JobSet was deleted", now)
	case o.impossible() != "" && !IsFinished(o.TrainJob):
		set(trainerv1alpha1.ConditionFailed, metav1.ConditionTrue, trainerv1alpha1.ReasonResourcesCreationFailed, o.impossible(), now)
	}
	if o.Absent && !HasFinished(s) { // a finished TrainJob keeps its counters
		endJobs(s.JobsStatus)
	}
	return s
}

// impossible returns why the objects of the TrainJob will never exist, or "".
func (o *Observed) impossible() string {
	if o.TooLarge == "" && o.Refused != "" && HoldsQuota(o.TrainJob) {
		return o.Refused
	}
	return o.TooLarge
}

// End returns the final condition of a JobSet, or nil.
func End(jobset *jobsetv1alpha2.JobSet) *metav1.Condition {
	for _, kind := range []jobsetv1alpha2.ConditionType{jobsetv1alpha2.ConditionCompleted, jobsetv1alpha2.ConditionFailed} {
		if c := apimeta.FindStatusCondition(jobset.Status.Conditions, string(kind)); c != nil && c.Status == metav1.ConditionTrue {
			return c
		}
	}
	return nil
}

// endJobs sets the counters of Jobs that are gone.
func endJobs(of []trainerv1alpha1.JobStatus) {
	for i := range of {
		of[i].Active, of[i].Ready = 0, 0
	}
}

// IsIdle reports whether a JobSet has no active or ready Jobs.
func IsIdle(jobset *jobsetv1alpha2.JobSet) bool {
	return !slices.ContainsFunc(jobset.Status.ReplicatedJobsStatus, func(s jobsetv1alpha2.ReplicatedJobStatus) bool { return s.Active > 0 || s.Ready > 0 })
}

// MayRun reports whether a Job has pods, or may get some: it has not ended and is not suspended.
func MayRun(j batchv1.Job) bool {
	ended := slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	})
	return !ended && (j.Status.Active > 0 || ptr.Deref(j.Status.Terminating, 0) > 0 || !ptr.Deref(j.Spec.Suspend, false))
}

// IsRunning reports whether all Jobs of a JobSet are ready or have succeeded.
func IsRunning(jobset *jobsetv1alpha2.JobSet) bool {
	reported := map[string]int32{}
	for i := range jobset.Status.ReplicatedJobsStatus {
		s := &jobset.Status.ReplicatedJobsStatus[i]
		reported[s.Name] = s.Ready + s.Succeeded
	}
	return !slices.ContainsFunc(jobset.Spec.ReplicatedJobs, func(rj jobsetv1alpha2.ReplicatedJob) bool { return reported[rj.Name] < replicas(&rj) })
}

// Ready returns the number of Jobs of a TrainJob that are ready or have ended.
func Ready(s *trainerv1alpha1.TrainJobStatus) (n int32) {
	for _, j := range s.JobsStatus {
		n += j.Ready + j.Succeeded + j.Failed
	}
	return n
}

// IsActive reports whether a Job of a TrainJob is active.
func IsActive(s *trainerv1alpha1.TrainJobStatus) bool {
	return slices.ContainsFunc(s.JobsStatus, func(j trainerv1alpha1.JobStatus) bool { return j.Active > 0 })
}

// CountsJobs reports whether a status has active or ready Jobs.
func CountsJobs(s *trainerv1alpha1.TrainJobStatus) bool {
	return slices.ContainsFunc(s.JobsStatus, func(j trainerv1alpha1.JobStatus) bool { return j.Active > 0 || j.Ready > 0 })
}

// Phases are the values of Phase.
var Phases = []string{"Suspended", "Pending", "Running", "Complete", "Failed"}

// Phase summarizes a TrainJob for metrics. It is Running when a Job has all its pods ready (spec: 50 §5.5, §6).
func Phase(job *trainerv1alpha1.TrainJob) string {
	ready := slices.ContainsFunc(job.Status.JobsStatus, func(j trainerv1alpha1.JobStatus) bool { return j.Ready > 0 })
	switch {
	case isTrue(job.Status.Conditions, string(trainerv1alpha1.ConditionComplete)):
		return "Complete"
	case isTrue(job.Status.Conditions, string(trainerv1alpha1.ConditionFailed)):
		return "Failed"
	case IsSuspended(job):
		return "Suspended"
	case ready:
		return "Running"
	}
	return "Pending"
}

func jobsStatus(jobset *jobsetv1alpha2.JobSet) []trainerv1alpha1.JobStatus {
	var out []trainerv1alpha1.JobStatus
	for i := range jobset.Status.ReplicatedJobsStatus {
		s := &jobset.Status.ReplicatedJobsStatus[i]
		out = append(out, trainerv1alpha1.JobStatus{
			Name: s.Name, Ready: s.Ready, Succeeded: s.Succeeded, Failed: s.Failed, Active: s.Active, Suspended: s.Suspended,
		})
	}
	return out
}

// Unsupported returns the status of a TrainJob whose kind of runtime is not supported.
func Unsupported(job *trainerv1alpha1.TrainJob, now time.Time) *trainerv1alpha1.TrainJobStatus {
	s := job.Status.DeepCopy()
	group, kind := RefKind(&job.Spec.RuntimeRef)
	apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: string(trainerv1alpha1.ConditionFailed), Status: metav1.ConditionTrue, Reason: trainerv1alpha1.ReasonTrainingRuntimeNotSupported,
		Message: fmt.Sprintf("Runtimes of kind %s.%s are not supported", kind, group), LastTransitionTime: metav1.NewTime(now),
	})
	return s
}

// Overdue sets the condition of a TrainJob that exceeded its deadline.
func Overdue(s *trainerv1alpha1.TrainJobStatus, now time.Time) {
	apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: string(trainerv1alpha1.ConditionFailed), Status: metav1.ConditionTrue, Reason: trainerv1alpha1.ReasonDeadlineExceeded,
		Message: trainerv1alpha1.MessageDeadlineExceeded, LastTransitionTime: metav1.NewTime(now),
	})
}

// Deadline returns when a TrainJob has been active for too long since its creation or last resume; false without a deadline, and while it is
// suspended or finished, and until its resume is in the status (spec: 50 §4.2). No deadline is longer than 68 years.
func Deadline(trainJob *trainerv1alpha1.TrainJob, s *trainerv1alpha1.TrainJobStatus) (time.Time, bool) {
	limit := trainJob.Spec.ActiveDeadlineSeconds
	if limit == nil || HasFinished(s) || IsSuspended(trainJob) || isTrue(s.Conditions, string(trainerv1alpha1.ConditionSuspended)) {
		return time.Time{}, false
	}
	start := trainJob.CreationTimestamp.Time
	if c := apimeta.FindStatusCondition(s.Conditions, string(trainerv1alpha1.ConditionSuspended)); c != nil && c.Status == metav1.ConditionFalse {
		start = c.LastTransitionTime.Time
	}
	return start.Add(time.Duration(job.Saturate(*limit)) * time.Second), true
}
