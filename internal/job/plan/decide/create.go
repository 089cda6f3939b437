package decide

import (
	"math"
	"slices"
	"strconv"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// newWorkload makes the Workload of a job. The error says that the objects of a composite job disagree about what it is to
// copy (spec: 30 §4.4.6).
func newWorkload(c *job.Config, d *job.Descriptor, o job.Object, podSets []kueue.PodSet, priority job.Priority) (*kueue.Workload, error) {
	if whole, ok := o.(job.Composite); ok {
		return newTogether(c, d, whole, podSets, priority)
	}
	w := bareWorkload(c, o, podSets, priority)
	w.Name = c.WorkloadName(d.GVK, o.GetName(), o.GetUID())
	w.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o, d.GVK)}
	labelUID(w, o)
	copyLabels(c, w, o)
	return w, nil
}

// copyLabels gives a new Workload the labels and annotations of its job that the configuration names. Those that only metrics
// are labelled with leave what the Workload has anyway.
func copyLabels(c *job.Config, w *kueue.Workload, o job.Object) {
	copyKeys(w.Labels, c.LabelKeysToCopy, o.GetLabels(), true)
	copyKeys(w.Labels, c.SeriesLabels, o.GetLabels(), false)
	copyKeys(w.Annotations, c.SeriesAnnotations, o.GetAnnotations(), false)
}

func copyKeys(to map[string]string, keys []string, from map[string]string, overwrite bool) {
	for _, key := range keys {
		value, ok := from[key]
		if _, has := to[key]; ok && (overwrite || !has) {
			to[key] = value
		}
	}
}

// Compose makes the Workload that the job in o is to have, whether the job waits or runs. It is for jobs that ran before they
// were queued: of all others Next says when to make one. The error is that of the descriptor, or a job.MissingClassError.
func Compose(cfg *job.Config, d *job.Descriptor, o *job.Observed) (*kueue.Workload, error) {
	podSets, err := job.NewSetting(cfg, o).PodSets(d, o.Job)
	if err != nil {
		return nil, err
	}
	priority, err := resolvePriority(d, o.Job, podSets, o.Classes)
	if err != nil {
		return nil, err
	}
	w, err := newWorkload(cfg, d, o.Job, podSets, priority)
	if err == nil && d.Prebuilt && cfg.PrebuiltName(o.Job) != "" {
		w.Name = cfg.PrebuiltName(o.Job)
	}
	return w, err
}

// Describes reports whether a Workload, of which the job is the controller, is the one that Next would keep for the job.
func Describes(cfg *job.Config, d *job.Descriptor, o *job.Observed, w *kueue.Workload) bool {
	podSets, err := job.NewSetting(cfg, o).PodSets(d, o.Job)
	return err == nil && equivalent(cfg, o.Job, podSets, d.IsSuspended(o.Job), d.Prebuilt && cfg.PrebuiltName(o.Job) != "", w, o.Flavors)
}

// labelUID writes the UID of the job on its Workload, if it can be a label.
func labelUID(w *kueue.Workload, o job.Object) {
	if uid := string(o.GetUID()); len(validation.IsValidLabelValue(uid)) == 0 {
		if w.Labels == nil {
			w.Labels = map[string]string{}
		}
		w.Labels[kueue.JobUIDLabel] = uid
	}
}

// bareWorkload makes the Workload of a job without what tells whose it is: a name, labels, owners.
func bareWorkload(c *job.Config, o job.Object, podSets []kueue.PodSet, priority job.Priority) *kueue.Workload {
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Finalizers: []string{kueue.ResourceInUseFinalizer},
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec: workloadSpec(o, podSets, priority),
	}
	for key, value := range o.GetAnnotations() { //berth:unordered copies a map
		if strings.HasPrefix(key, kueue.ProvisioningRequestParameterPrefix) {
			w.Annotations[key] = value
		}
	}
	if gates := o.GetAnnotations()[kueue.AdmissionGatedByAnnotation]; c.AdmissionGatedBy && gates != "" {
		w.Annotations[kueue.AdmissionGatedByAnnotation] = gates
	}
	return w
}

func workloadSpec(o job.Object, podSets []kueue.PodSet, priority job.Priority) kueue.WorkloadSpec {
	return kueue.WorkloadSpec{
		QueueName: kueue.LocalQueueName(job.QueueName(o)), PodSets: podSets, MaximumExecutionTimeSeconds: maximumExecutionTime(o),
		PriorityClassRef: priority.Ref, Priority: new(priority.Value),
	}
}

// maximumExecutionTime reads the label. What is not a positive number of seconds counts as absent.
func maximumExecutionTime(o job.Object) *int32 {
	seconds, err := strconv.ParseInt(o.GetLabels()[kueue.MaxExecTimeSecondsLabel], 10, 32)
	if err != nil || seconds <= 0 || seconds > math.MaxInt32 {
		return nil
	}
	return new(int32(seconds))
}

// hasFinalizer reports whether Berth still holds the Workload.
func hasFinalizer(w *kueue.Workload) bool {
	return slices.Contains(w.Finalizers, kueue.ResourceInUseFinalizer)
}

// withoutFinalizer is the Workload let go.
func withoutFinalizer(w *kueue.Workload) *kueue.Workload {
	out := w.DeepCopy()
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool { return f == kueue.ResourceInUseFinalizer })
	return out
}

// resolvePriority finds the priority of a job. A class that does not exist is a MissingClassError (spec: 30 §4.6).
func resolvePriority(d *job.Descriptor, o job.Object, podSets []kueue.PodSet, classes job.Classes) (job.Priority, error) {
	workload, pod := job.ClassNames(d, o, podSets)
	switch {
	case workload != "":
		class := classes.Workload[workload]
		if class == nil {
			return job.Priority{}, &job.MissingClassError{Kind: kueue.WorkloadPriorityClassKind, Name: workload}
		}
		return workloadPriority(class), nil
	case pod != "":
		class := classes.Pod[pod]
		if class == nil {
			return job.Priority{}, &job.MissingClassError{Kind: kueue.PodPriorityClassKind, Name: pod}
		}
		return podPriority(class), nil
	case classes.Default != nil:
		return podPriority(classes.Default), nil
	default:
		return job.Priority{}, nil
	}
}

func workloadPriority(class *kueue.WorkloadPriorityClass) job.Priority {
	return job.Priority{
		Ref:   &kueue.PriorityClassRef{Group: kueue.WorkloadPriorityClassGroup, Kind: kueue.WorkloadPriorityClassKind, Name: class.Name},
		Value: class.Value,
	}
}

func podPriority(class *schedulingv1.PriorityClass) job.Priority {
	return job.Priority{
		Ref:   &kueue.PriorityClassRef{Group: kueue.PodPriorityClassGroup, Kind: kueue.PodPriorityClassKind, Name: class.Name},
		Value: class.Value,
	}
}
