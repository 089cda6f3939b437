package decide

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// newWorkload returns the Workload of a job. The error means that the members of a composite job disagree about a copied label
// (spec: 30 §4.4.6).
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

// copyLabels copies the configured labels and annotations of a job to its new Workload. Labels of metrics do not overwrite others.
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

// Compose returns the Workload for the job in o, whether it waits or runs, for jobs that ran before they were queued; Next creates
// all others. The error is the descriptor's, or a job.MissingClassError.
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

// Describes reports whether Next would keep a Workload that the job controls.
func Describes(cfg *job.Config, d *job.Descriptor, o *job.Observed, w *kueue.Workload) bool {
	podSets, err := job.NewSetting(cfg, o).PodSets(d, o.Job)
	return err == nil && equivalent(cfg, o.Job, podSets, d.IsSuspended(o.Job), d.Prebuilt && cfg.PrebuiltName(o.Job) != "", w, o.Flavors)
}

// labelUID labels a Workload with the UID of its job, if that is a valid label.
func labelUID(w *kueue.Workload, o job.Object) {
	if uid := string(o.GetUID()); len(validation.IsValidLabelValue(uid)) == 0 {
		metav1.SetMetaDataLabel(&w.ObjectMeta, kueue.JobUIDLabel, uid)
	}
}

// bareWorkload returns the Workload of a job without its identity: name, labels, owners.
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
	for _, key := range [...]string{berthv1alpha1.ExpectedRunSecondsKey, berthv1alpha1.MinRunSecondsKey} {
		if seconds := cmp.Or(o.GetAnnotations()[key], o.GetLabels()[key]); seconds != "" {
			w.Annotations[key] = seconds
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

// maximumExecutionTime reads the label. An invalid number of seconds counts as absent.
func maximumExecutionTime(o job.Object) *int32 {
	seconds, err := strconv.ParseInt(o.GetLabels()[kueue.MaxExecTimeSecondsLabel], 10, 32)
	if err != nil || seconds <= 0 || seconds > math.MaxInt32 {
		return nil
	}
	return new(int32(seconds))
}

func withoutFinalizer(w *kueue.Workload) *kueue.Workload {
	out := w.DeepCopy()
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool { return f == kueue.ResourceInUseFinalizer })
	return out
}

// resolvePriority returns the priority of a job. A class that does not exist is a MissingClassError (spec: 30 §4.6).
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
