package job

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
)

// adapterReason is the reason of the condition Suspended while a Job runs on a worker and is not started here yet.
const adapterReason = "MultiKueueAdapter"

// prepare removes from the copy the fields that the API server set on the local Job, and the TTL, by which the worker could delete
// the copy before the manager has observed its end.
func prepare(tree map[string]any) {
	unstructured.RemoveNestedField(tree, "spec", "selector")
	unstructured.RemoveNestedField(tree, "spec", "ttlSecondsAfterFinished")
	for _, key := range ownLabels {
		unstructured.RemoveNestedField(tree, "spec", "template", "metadata", "labels", key)
	}
}

// deferStatus withholds the status of a running Job while the local one is still suspended: the API server refuses it. Until then
// the local Job is reported as suspended.
func deferStatus(local, remote plan.Object) (map[string]any, bool, error) {
	l, r := local.(*batchv1.Job), remote.(*batchv1.Job)
	if _, _, done := finished(r); done || !suspended(l) || suspended(r) {
		status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(goOn(l, r))
		return status, false, err
	}
	status := l.Status.DeepCopy()
	at := slices.IndexFunc(status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended })
	if at < 0 {
		status.Conditions = append(status.Conditions, batchv1.JobCondition{Type: batchv1.JobSuspended})
		at = len(status.Conditions) - 1
	}
	if c := &status.Conditions[at]; c.Status != corev1.ConditionTrue {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, adapterReason, "The job runs on a worker cluster and is not started here yet"
		c.LastTransitionTime, c.LastProbeTime = r.CreationTimestamp, r.CreationTimestamp
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	return tree, true, err
}

// goOn adapts the status of a remote Job to a local one that began with another copy, which was deleted. The API server refuses a
// second start time of a running Job, and decreasing counters, unless the Job may shrink.
func goOn(local, remote *batchv1.Job) *batchv1.JobStatus {
	next := remote.Status.DeepCopy()
	if local.Status.StartTime != nil && !suspended(local) {
		next.StartTime = local.Status.StartTime
	}
	next.Failed = max(next.Failed, local.Status.Failed)
	if !mayShrink(remote) {
		next.Succeeded = max(next.Succeeded, local.Status.Succeeded)
	}
	return next
}

// mayShrink reports whether completions follow parallelism, so that status.succeeded may decrease.
func mayShrink(j *batchv1.Job) bool {
	indexed := j.Spec.CompletionMode != nil && *j.Spec.CompletionMode == batchv1.IndexedCompletion
	return indexed && j.Spec.Completions != nil && j.Spec.Parallelism != nil && *j.Spec.Completions == *j.Spec.Parallelism
}

// quiet sets the status of a Job without pods.
func quiet(o plan.Object) {
	status := &o.(*batchv1.Job).Status
	status.Active, status.Ready, status.Terminating = 0, nil, nil
}

// resize sets the parallelism of a copy to the local Job's, or to its slice's if the Job has another size by now.
func resize(remote, local plan.Object, podSets []kueue.PodSet) bool {
	r, l := remote.(*batchv1.Job), local.(*batchv1.Job)
	if len(podSets) != 1 {
		return false
	}
	n := podSets[0].Count
	if podCount(l) == n {
		n = parallelism(l)
	}
	if parallelism(r) == n {
		return false
	}
	r.Spec.Parallelism = new(n)
	return true
}
