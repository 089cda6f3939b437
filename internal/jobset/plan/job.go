package plan

import (
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// Job is a Job of a JobSet with the fields that every decision reads, computed once for each version. A decision without
// changes reads these alone, one cache line each; the Jobs themselves are scattered over megabytes, and
// reading ten thousand of them took fifty times as long.
type Job struct {
	// Object is the Job. It must not change afterwards.
	Object *batchv1.Job

	replicatedJob string // "" without the label
	fingerprint   string // of the fields that a resume changes, if stamped
	index         int32  // within the replicated job, or -1
	attempt       int32  // of the JobSet, or -1
	ownAttempt    int32  // of the Job alone; 0 without the label

	outcome   state
	ready     bool // as many pods run or succeeded as run at a time
	busy      bool // pods run, or the Job ends and still waits for its pods
	failing   bool // it has failed and still waits for its pods
	suspended bool
	deleting  bool
	stamped   bool // it has a fingerprint
	regular   bool // its name follows from its owner and its labels
}

// NewJob computes the fields of a Job.
func NewJob(j *batchv1.Job) Job {
	out := Job{
		Object: j, replicatedJob: j.Labels[jobsetv1alpha2.ReplicatedJobNameKey],
		index: number(j.Labels[jobsetv1alpha2.JobIndexKey]), attempt: number(j.Labels[jobsetv1alpha2.RestartAttemptKey]),
		// The label is missing without the gate: first attempt.
		ownAttempt: max(number(j.Labels[jobsetv1alpha2.JobRestartAttemptKey]), 0),
		outcome:    outcome(j), ready: isReady(j), busy: j.Status.Active > 0 || isEnding(j), suspended: isSuspended(j),
		deleting: j.DeletionTimestamp != nil,
	}
	out.failing = out.outcome == active && isTrue(j, batchv1.JobFailureTarget)
	out.fingerprint, out.stamped = j.Annotations[FingerprintAnnotation]
	for i := range j.OwnerReferences {
		if o := &j.OwnerReferences[i]; o.Controller != nil && *o.Controller {
			out.regular = j.Name == JobName(o.Name, out.replicatedJob, int(out.index))
		}
	}
	return out
}

// GetUID returns the UID of the Job.
func (j Job) GetUID() types.UID { return j.Object.UID }

// GetResourceVersion returns the resource version of the Job.
func (j Job) GetResourceVersion() string { return j.Object.ResourceVersion }

// GetDeletionTimestamp returns the deletion timestamp of the Job.
func (j Job) GetDeletionTimestamp() *metav1.Time { return j.Object.DeletionTimestamp }

// number parses a count; -1 if it is invalid.
func number(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return -1
	}
	return int32(n)
}

// outcome returns the final state of a Job. Interim conditions do not count: its pods may still exist.
func outcome(j *batchv1.Job) state {
	for i := range j.Status.Conditions {
		c := &j.Status.Conditions[i]
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobFailed:
			return failed
		case batchv1.JobComplete:
			return succeeded
		default:
		}
	}
	return active
}

// isEnding reports whether a Job has failed or succeeded and still waits for its pods to end.
func isEnding(j *batchv1.Job) bool {
	return isTrue(j, batchv1.JobFailureTarget) || isTrue(j, batchv1.JobSuccessCriteriaMet)
}

func isTrue(j *batchv1.Job, t batchv1.JobConditionType) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == t && c.Status == corev1.ConditionTrue })
}

// isReady reports whether as many pods of a Job are ready or succeeded as run at a time.
func isReady(j *batchv1.Job) bool {
	return j.Status.Succeeded+ptr.Deref(j.Status.Ready, 0) >= wantedPods(&j.Spec)
}

// wantedPods returns how many pods of a Job run or succeed at a time.
func wantedPods(s *batchv1.JobSpec) int32 {
	parallelism := ptr.Deref(s.Parallelism, 1)
	return min(parallelism, ptr.Deref(s.Completions, parallelism))
}

func isSuspended(j *batchv1.Job) bool { return ptr.Deref(j.Spec.Suspend, false) }
