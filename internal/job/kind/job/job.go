// Package job is the integration of batch/v1 Job: one descriptor.
//
// A Job is stopped in up to three writes, because its pod template can change
// only while it is suspended and has no pods:
//
//	(1) suspend, and mark the stop with an annotation
//	    … the Job controller removes the pods …
//	(2) status: remove the start time, so that the template may change
//	(3) restore the template, and remove the mark
//
// A Job with the mark does not count as suspended, so a stop continues after a
// crash (spec: 30 §4.9).
package job

import (
	"math"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// mainPodSet is the name of the one pod set.
const mainPodSet = "main"

// ownLabels are labels that the Job controller sets on the pod template. They name this Job, so a Workload's template does not have
// them, and a restore keeps them.
var ownLabels = []string{"job-name", "controller-uid", batchv1.ControllerUidLabel}

// keptLabels are labels that a restore does not change.
var keptLabels = append([]string{batchv1.JobNameLabel}, ownLabels...)

// Descriptor describes batch/v1 Job.
func Descriptor() *plan.Descriptor {
	return &plan.Descriptor{
		Framework:    "batch/job",
		GVK:          batchv1.SchemeGroupVersion.WithKind("Job"),
		Resource:     "jobs",
		Listing:      plan.Listing{Workers: 5},
		New:          func() plan.Object { return &batchv1.Job{} },
		NewList:      func() runtime.Object { return &batchv1.JobList{} },
		PodSets:      podSets,
		Owns:         []plan.Child{{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Made: madePod}},
		Open:         &plan.Open{Templates: []string{"spec.template"}},
		IsSuspended:  func(o plan.Object) bool { return isSuspended(o.(*batchv1.Job)) },
		Suspend:      func(o plan.Object) { o.(*batchv1.Job).Spec.Suspend = new(true) },
		Resume:       resume,
		Start:        start,
		Restore:      func(o plan.Object, podSets []kueue.PodSet) bool { return restore(o.(*batchv1.Job), podSets) },
		Stops:        &plan.Stops{Next: stop, Begun: func(o plan.Object) bool { return suspended(o.(*batchv1.Job)) && isMarked(o.(*batchv1.Job)) }},
		Finished:     finished,
		IsActive:     func(o plan.Object) bool { return o.(*batchv1.Job).Status.Active != 0 },
		PodsReady:    podsReady,
		Reclaimable:  reclaimable,
		ManagedBy:    managedBy,
		SetManagedBy: func(o plan.Object, name string) { o.(*batchv1.Job).Spec.ManagedBy = &name },
		OwnManager:   batchv1.JobControllerName,
		PodLabels:    plan.PodsByName(batchv1.JobNameLabel),
		Prebuilt:     true,
		Elastic:      &plan.Elastic{GatesPods: true},
		Validate:     validate,
		Sizes: func(o plan.Object, _ *plan.Setting) []plan.Size {
			return []plan.Size{{Path: specPath.Child("parallelism"), What: "pods", N: podCount(o.(*batchv1.Job))}}
		},
		Remote: &plan.Remote{ManagedBy: []string{"spec", "managedBy"}, Prepare: prepare, Status: deferStatus, Quiet: quiet, Resize: resize},
		Default: func(o plan.Object, managed bool, in *plan.Setting) {
			if managed && in.ElasticJobs && plan.IsElastic(o) {
				podset.Gate(&o.(*batchv1.Job).Spec.Template)
			}
		},
	}
}

func managedBy(o plan.Object) string {
	if name := o.(*batchv1.Job).Spec.ManagedBy; name != nil {
		return *name
	}
	return ""
}

func suspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func isMarked(job *batchv1.Job) bool { return job.Annotations[kueue.JobStoppingAnnotation] == "true" }

func isSuspended(job *batchv1.Job) bool { return suspended(job) && !isMarked(job) }

func parallelism(job *batchv1.Job) int32 { return ptr.Deref(job.Spec.Parallelism, 1) }

// podCount is the number of concurrent pods.
func podCount(job *batchv1.Job) int32 {
	if job.Spec.Completions == nil {
		return parallelism(job)
	}
	return min(parallelism(job), *job.Spec.Completions)
}

// minParallelism reads the annotation for partial admission. An invalid number counts as absent.
func minParallelism(job *batchv1.Job) (int32, bool) {
	n, err := strconv.ParseInt(job.Annotations[kueue.JobMinParallelismAnnotation], 10, 32)
	return int32(n), err == nil
}

// completionsFollow reports whether completions change with parallelism.
func completionsFollow(job *batchv1.Job) bool {
	follow, err := strconv.ParseBool(job.Annotations[kueue.JobCompletionsEqualParallelismAnnotation])
	return err == nil && follow
}

func podSets(o plan.Object, in *plan.Setting) ([]kueue.PodSet, error) {
	job := o.(*batchv1.Job)
	set := kueue.PodSet{Name: mainPodSet, Template: *job.Spec.Template.DeepCopy(), Count: podCount(job)}
	for _, key := range ownLabels {
		delete(set.Template.Labels, key)
	}
	if n, ok := minParallelism(job); ok {
		set.MinCount = &n
	}
	set.TopologyRequest = in.TopologyRequest(&job.Spec.Template.ObjectMeta, plan.Ranks{PodIndex: batchv1.JobCompletionIndexAnnotation})
	return []kueue.PodSet{set}, nil
}

// resume lets the Job run without Berth. The gate of elastic Jobs is removed; the next start adds it again.
func resume(o plan.Object) {
	o.(*batchv1.Job).Spec.Suspend = new(false)
	podset.Ungate(&o.(*batchv1.Job).Spec.Template)
}

// start lets the Job run with the values of its only pod set.
func start(o plan.Object, infos []plan.PodSetInfo, _ *plan.Setting) error {
	job := o.(*batchv1.Job)
	if len(infos) != 1 {
		return podset.Permanent("the admission has %d pod sets and the Job has 1", len(infos))
	}
	if err := infos[0].MergeInto(&job.Spec.Template); err != nil {
		return err
	}
	if _, ok := minParallelism(job); ok {
		setParallelism(job, infos[0].Count)
	}
	job.Spec.Suspend = new(false)
	return nil
}

func setParallelism(job *batchv1.Job, n int32) {
	job.Spec.Parallelism = new(n)
	if completionsFollow(job) {
		job.Spec.Completions = new(n)
	}
}

// restore reverts start, except suspend.
func restore(job *batchv1.Job, podSets []kueue.PodSet) bool {
	if len(podSets) != 1 {
		return false
	}
	changed := podset.Restore(&job.Spec.Template, &podSets[0].Template, keptLabels...)
	if _, ok := minParallelism(job); ok && podCount(job) != podSets[0].Count {
		setParallelism(job, podSets[0].Count)
		changed = true
	}
	return changed
}

// stop returns the next of the three writes. A Job whose template was never changed is only suspended.
func stop(o plan.Object, podSets []kueue.PodSet, _ plan.StopReason) (plan.Step, plan.Object) {
	job := o.(*batchv1.Job)
	restored := job.DeepCopy()
	changed := restore(restored, podSets)
	switch {
	case !suspended(job):
		begun := job.DeepCopy()
		begun.Spec.Suspend = new(true)
		if changed {
			mark(begun)
		}
		return plan.Change, begun
	case !changed && !isMarked(job):
		return plan.Stopped, nil
	case changed && job.Status.Active != 0:
		return plan.Wait, nil // the API server refuses template changes while pods run
	case changed && job.Status.StartTime != nil:
		forgotten := job.DeepCopy()
		forgotten.Status.StartTime = nil
		return plan.ChangeStatus, forgotten
	default:
		delete(restored.Annotations, kueue.JobStoppingAnnotation)
		return plan.Change, restored
	}
}

func mark(job *batchv1.Job) { podset.Annotate(job, kueue.JobStoppingAnnotation, "true") }

func finished(o plan.Object) (message string, success, done bool) {
	for _, c := range o.(*batchv1.Job).Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return c.Message, c.Type == batchv1.JobComplete, true
		}
	}
	return "", false, false
}

func podsReady(o plan.Object, _ *plan.Setting) bool {
	status := &o.(*batchv1.Job).Status
	ready := status.Succeeded
	if status.Ready != nil {
		ready += *status.Ready
	}
	if status.UncountedTerminatedPods != nil {
		ready += int32(len(status.UncountedTerminatedPods.Succeeded))
	}
	return ready >= podCount(o.(*batchv1.Job))
}

// reclaimable counts the pods that will not be replaced when they end. A Job that is about to finish reclaims nothing: its finish
// releases all quota.
func reclaimable(o plan.Object, _ *plan.Setting) []kueue.ReclaimablePod {
	job := o.(*batchv1.Job)
	done := terminal(job)
	if parallelism(job) <= 1 || done == 0 || isEnding(job) {
		return nil
	}
	completions := ptr.Deref(job.Spec.Completions, parallelism(job))
	spare := podCount(job) - max(completions-done, 0)
	if spare <= 0 {
		return nil
	}
	return []kueue.ReclaimablePod{{Name: mainPodSet, Count: spare}}
}

// isEnding reports whether the outcome of the Job is decided and it has no pods: Complete or Failed come next.
func isEnding(job *batchv1.Job) bool {
	if job.Status.Active > 0 || (job.Status.Terminating != nil && *job.Status.Terminating > 0) {
		return false
	}
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobSuccessCriteriaMet || c.Type == batchv1.JobFailureTarget)
	})
}

// terminal is the number of decided completions. An Indexed Job does not use status.succeeded, which is stale after a scale-down;
// failed attempts that may be retried do not count.
func terminal(job *batchv1.Job) int32 {
	if job.Spec.CompletionMode == nil || *job.Spec.CompletionMode != batchv1.IndexedCompletion {
		return job.Status.Succeeded
	}
	ranges := parseIndexes(job.Status.CompletedIndexes)
	if job.Status.FailedIndexes != nil {
		ranges = append(ranges, parseIndexes(*job.Status.FailedIndexes)...)
	}
	return countBelow(ranges, ptr.Deref(job.Spec.Completions, math.MaxInt32))
}

// indexRange is a range of indexes, ends included.
type indexRange struct{ from, to int32 }

// parseIndexes reads a list such as "1,3-5". Malformed parts are ignored.
func parseIndexes(text string) []indexRange {
	var out []indexRange
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseInt(first, 10, 32)
		to, err2 := strconv.ParseInt(last, 10, 32)
		if err == nil && err2 == nil && from >= 0 && from <= to {
			out = append(out, indexRange{int32(from), int32(to)})
		}
	}
	return out
}

// countBelow counts the distinct indexes below limit.
func countBelow(ranges []indexRange, limit int32) int32 {
	slices.SortFunc(ranges, func(a, b indexRange) int { return int(a.from) - int(b.from) })
	var n, next int32
	for _, r := range ranges {
		from, to := max(r.from, next), min(r.to, limit-1)
		if from <= to {
			n += to - from + 1
			next = to + 1
		}
	}
	return n
}
