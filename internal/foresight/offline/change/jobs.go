package change

import (
	"fmt"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// newJob is a job of a file.
type newJob struct {
	kind *job.Descriptor
	o    job.Object
	at   offline.At
	new  bool // it is submitted
}

// readJob reads an object of a file that may be a job.
func (e *edit) readJob(o *unstructured.Unstructured, at offline.At, submit bool) error {
	gvk := o.GroupVersionKind()
	d := e.descriptor(gvk.GroupKind())
	switch {
	case d == nil && submit:
		return at("kind", "it is no kind of jobs: only jobs and Workloads are submitted")
	case d == nil:
		e.b.note("%v", at("", "does not matter to queues: left out"))
		return nil
	case d.GVK != gvk:
		return at("apiVersion", fmt.Sprintf("write %s, not %s", d.GVK.GroupVersion(), o.GetAPIVersion()))
	case d.Serving || d.Refers != nil || d.PodSets == nil:
		return at("kind", "its pods depend on other objects: give the Workload instead, as kubectl get workload -o yaml shows one")
	}
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(o.GetGenerateName() + "new")
	}
	if o.GetName() == "" {
		return at("metadata.name", "a name is missing")
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(e.namespace())
	}
	typed := d.New()
	if tree, is := typed.(*unstructured.Unstructured); is {
		tree.Object = o.Object
	} else if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true); err != nil {
		return at("", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	e.jobs = append(e.jobs, newJob{d, typed, at, submit})
	return nil
}

// putJob adds the Workload of a job, or replaces it.
func (e *edit) putJob(j *newJob) error {
	e.setQueue(j)
	if group := e.b.Jobs.GroupName(j.o); j.kind.Groups != nil && group != "" {
		return j.at("metadata.labels", "it belongs to the pod group "+group+": give the Workload of the group instead")
	}
	observed := &job.Observed{Job: j.o, Classes: e.classes()}
	setting := job.NewSetting(e.b.Jobs, observed)
	setting.Mode = job.Managed
	if j.kind.Default != nil { // as the webhook does before it validates
		j.kind.Default(j.o, true, setting)
	}
	if j.kind.Validate != nil {
		for _, err := range j.kind.Validate(j.o, nil, setting) {
			return j.at(err.Field, strings.ReplaceAll(err.ErrorBody(), "\n", " "))
		}
	}
	w, err := decide.Compose(e.b.Jobs, j.kind, observed)
	if err != nil {
		return j.at("", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	for _, ps := range w.Spec.PodSets {
		if ps.Count < 0 {
			return j.at("spec", fmt.Sprintf("the number of pods of %s must not be negative", ps.Name))
		}
	}
	if err := convert.ValidateRunTimes(j.o); err != nil { // the Workload has the annotations
		path, detail, _ := strings.Cut(err.Error(), ": ")
		return j.at(path, detail)
	}
	if old := e.workloadOf(j); old != nil {
		if j.new {
			return j.at("metadata.name", "it exists already: replace it instead")
		}
		w.Name, w.UID, w.ResourceVersion, w.CreationTimestamp = old.Name, old.UID, old.ResourceVersion, old.CreationTimestamp
		w.OwnerReferences = old.OwnerReferences
		if decide.Describes(e.b.Jobs, j.kind, observed, old) {
			w.Spec.PodSets, w.Status = old.Spec.PodSets, old.Status
		}
	}
	return e.add(w, "metadata.labels["+kueue.QueueNameLabel+"]", j.at)
}

// setQueue labels a job with the queue of the change, or with the default LocalQueue of its namespace if it names none.
func (e *edit) setQueue(j *newJob) {
	labels := j.o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	if j.new && e.change.Queue != "" {
		labels[kueue.QueueNameLabel] = e.change.Queue
	}
	if labels[kueue.QueueNameLabel] == "" {
		if _, has := offline.GetIn[*kueue.LocalQueue](e.after, j.o.GetNamespace(), string(kueue.DefaultLocalQueueName)); has {
			labels[kueue.QueueNameLabel] = string(kueue.DefaultLocalQueueName)
		}
	}
	j.o.SetLabels(labels)
}

// classes returns the priority classes after the change.
func (e *edit) classes() job.Classes {
	out := job.Classes{Workload: map[string]*kueue.WorkloadPriorityClass{}, Pod: map[string]*schedulingv1.PriorityClass{}}
	for _, class := range offline.All[*kueue.WorkloadPriorityClass](e.after) {
		out.Workload[class.Name] = class
	}
	var pods []schedulingv1.PriorityClass
	for _, class := range offline.All[*schedulingv1.PriorityClass](e.after) {
		out.Pod[class.Name] = class
		pods = append(pods, *class)
	}
	out.Default = job.DefaultClass(pods)
	return out
}

// workloadOf returns the Workload of a job that exists, nil for none.
func (e *edit) workloadOf(j *newJob) *kueue.Workload {
	for _, w := range offline.All[*kueue.Workload](e.after) {
		if w.Namespace == j.o.GetNamespace() && isOf(w, j.kind, j.o.GetName()) {
			return w
		}
	}
	return nil
}

// isOf reports whether a Workload is that of a job of a kind and a name.
func isOf(w *kueue.Workload, d *job.Descriptor, name string) bool {
	for _, ref := range w.OwnerReferences {
		if ref.Controller != nil && *ref.Controller && ref.Kind == d.GVK.Kind && ref.Name == name && ref.APIVersion == d.GVK.GroupVersion().String() {
			return true
		}
	}
	return false
}
