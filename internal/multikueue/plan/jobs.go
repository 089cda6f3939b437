package plan

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
)

// JobVerb is what is to be done about a job and its copy on the worker that admitted the Workload.
type JobVerb int

// The verbs.
const (
	// NoJob leaves both as they are.
	NoJob JobVerb = iota
	// CreateJob creates Object on the worker.
	CreateJob
	// DeleteJob deletes the job on the worker, which belongs to an earlier run.
	DeleteJob
	// PatchStatus gives the local job the status of Object.
	PatchStatus
)

// JobStep is the one thing to do about a job.
type JobStep struct {
	Do     JobVerb
	Object *unstructured.Unstructured
	// Deferred asks for another look soon.
	Deferred bool
	// Metadata says that labels or annotations of Object are to be written, too.
	Metadata bool
	// Resized is what the elastic job on the worker is to be, nil if it stays as it is.
	Resized *unstructured.Unstructured
	// Spec is what the job on the worker is to be, nil if it stays as it is; SpecFault is why that could not be found out.
	Spec      *unstructured.Unstructured
	SpecFault error
}

// SyncJob finds what to do about the local job of a Workload and its copy on the worker that admitted it, nil if there is none. create
// lets it be created; otherwise it is only mirrored. The pass that creates does not mirror (spec: 40 §4.6).
//
// cluster is the metadata of the MultiKueueCluster, for the expressions of external frameworks.
func (c *Config) SyncJob(d *job.Descriptor, local, remote job.Object, w *kueue.Workload, cluster map[string]any, create bool) (JobStep, error) {
	going := d.Groups != nil && local.GetDeletionTimestamp() != nil // one of several: its Workload stays
	switch {
	case remote == nil && create && !going && !Ended(d, local):
		o, err := c.NewJob(d, local, w, cluster)
		return JobStep{Do: CreateJob, Object: o}, err
	case remote == nil:
		return JobStep{}, nil
	case remote.GetDeletionTimestamp() != nil && !(create && !going && isFinal(d, remote)):
		return JobStep{Deferred: !going}, nil
	case going:
		return JobStep{Do: DeleteJob}, nil
	case c.isOfEarlierRun(d, local, remote, w):
		return JobStep{Do: DeleteJob, Deferred: true}, nil
	case d.Remote.Silent:
		resized, err := scaled(d, local, remote, w)
		return JobStep{Resized: resized}, err
	}
	if f := c.External[d.GVK]; f != nil {
		return c.followExternal(f, d, local, remote, w, cluster)
	}
	return c.mirror(d, local, remote, w)
}

// scaled is the job on a worker with as many Workloads as the local one has, nil if it has so many. It grows no further than to the Workload
// that the worker has admitted: pods of those to come would wait for nothing there. It shrinks at once.
func scaled(d *job.Descriptor, local, remote job.Object, w *kueue.Workload) (*unstructured.Unstructured, error) {
	if d.Remote.Scale == nil {
		return nil, nil
	}
	wanted, has := d.Remote.Workloads(local), d.Remote.Workloads(remote)
	if wanted > has {
		upTo := int32(0) // if it does not say which of them it is
		if index, err := strconv.ParseInt(w.Annotations[kueue.ComponentWorkloadIndexAnnotation], 10, 32); err == nil {
			upTo = int32(index) + 1
		}
		wanted = min(wanted, max(has, upTo))
	}
	if wanted == has {
		return nil, nil
	}
	next := remote.DeepCopyObject().(job.Object)
	d.Remote.Scale(next, wanted)
	return Tree(d, next)
}

// mirror finds the status that the local job gets, and the size that the remote one does.
func (c *Config) mirror(d *job.Descriptor, local, remote job.Object, w *kueue.Workload) (JobStep, error) {
	to, err := Tree(d, local)
	if err != nil {
		return JobStep{}, err
	}
	from, err := Tree(d, remote)
	if err != nil {
		return JobStep{}, err
	}
	wanted, deferred := from.Object["status"], false
	if d.Remote.Status != nil {
		var instead map[string]any
		if instead, deferred, err = d.Remote.Status(local, remote); err != nil {
			return JobStep{}, err
		}
		if instead != nil {
			wanted = instead
		}
	}
	step := JobStep{Deferred: deferred}
	if step.Resized, err = c.resized(d, local, remote, w); err != nil || wanted == nil || equality.Semantic.DeepEqual(to.Object["status"], wanted) {
		return step, err
	}
	to.Object["status"] = wanted
	step.Do, step.Object = PatchStatus, to
	return step, nil
}

// Ended returns whether a local job is over: it ran on a worker, and is not to run again.
func Ended(d *job.Descriptor, local job.Object) bool {
	if d.Finished == nil {
		return false
	}
	_, _, over := d.Finished(local)
	return over
}

// isFinal says whether a job that is being deleted tells how it ended.
func isFinal(d *job.Descriptor, remote job.Object) bool {
	return d.Remote.Final != nil && d.Remote.Final(remote)
}

// isOfEarlierRun says whether a job on a worker is that of another Workload than w, or of an earlier local job of its name.
func (c *Config) isOfEarlierRun(d *job.Descriptor, local, remote job.Object, w *kueue.Workload) bool {
	origin := remote.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation]
	f := c.External[d.GVK]
	stamped := d.Remote.OriginUID || (f != nil && f.Extended && origin != "") // those of a version before have none
	if stamped && origin != string(local.GetUID()) {
		return true
	}
	return d.Remote.Workloads == nil && c.prebuilt(remote) != w.Name && !job.IsElastic(w)
}

// followExternal brings a job of an external framework and its copy up to date with each other.
func (c *Config) followExternal(f *external.Framework, d *job.Descriptor, local, remote job.Object, w *kueue.Workload, cluster map[string]any) (JobStep, error) {
	scope, err := c.ExternalScope(d, local, remote, w, cluster)
	if err != nil {
		return JobStep{}, err
	}
	var step JobStep
	spec, err := f.Spec(scope)
	if step.SpecFault = err; spec != nil {
		step.Spec = &unstructured.Unstructured{Object: spec}
	}
	next, err := f.Status(scope)
	if err != nil {
		return step, err
	}
	step.Deferred, step.Metadata = next.Deferred, next.Metadata
	if next.Status || next.Metadata {
		step.Object = &unstructured.Unstructured{Object: next.Object}
	}
	if next.Status {
		step.Do = PatchStatus
	}
	return step, nil
}

// PlainStatus is the status of the copy of a job as it is, nil if the local job has it, or is to have none.
func (c *Config) PlainStatus(d *job.Descriptor, local, remote job.Object, w *kueue.Workload) (any, error) {
	f := c.External[d.GVK]
	if d.Remote.Silent || (f != nil && f.NoStatus) || remote.GetDeletionTimestamp() != nil || c.isOfEarlierRun(d, local, remote, w) {
		return nil, nil
	}
	to, err := Tree(d, local)
	if err != nil {
		return nil, err
	}
	from, err := Tree(d, remote)
	if err != nil || equality.Semantic.DeepEqual(to.Object["status"], from.Object["status"]) {
		return nil, err
	}
	return from.Object["status"], nil
}

// Quiet is the local job with a status that says that no pod of it runs, and whether that is another status than it has.
func Quiet(d *job.Descriptor, local job.Object) (*unstructured.Unstructured, bool, error) {
	next := local.DeepCopyObject().(job.Object)
	if d.Remote.Quiet != nil {
		d.Remote.Quiet(next)
	}
	out, err := Tree(d, next)
	if err != nil {
		return nil, false, err
	}
	if d.Remote.Quiet == nil {
		delete(out.Object, "status")
	}
	before, err := Tree(d, local)
	if err != nil {
		return nil, false, err
	}
	return out, !equality.Semantic.DeepEqual(before.Object["status"], out.Object["status"]), nil
}

// NewJob is the job that is created on a worker: the local one as it was before it was started, without its owners, finalizers and
// status, and without the field that keeps controllers away from it (spec: 40 §2.6).
func (c *Config) NewJob(d *job.Descriptor, local job.Object, w *kueue.Workload, cluster map[string]any) (*unstructured.Unstructured, error) {
	f := c.External[d.GVK]
	from, err := Tree(d, stopped(d, local, w))
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetGroupVersionKind(d.GVK)
	out.SetNamespace(local.GetNamespace())
	out.SetName(local.GetName())
	fields := []string{"spec"}
	if f != nil {
		fields = f.CopyFields
	}
	for _, name := range fields {
		if value, ok := from.Object[name]; ok {
			out.Object[name] = value
		}
	}
	labels, annotations := travelling(local)
	if f != nil {
		out.SetLabels(labels)
		out.SetAnnotations(annotations)
		scope, err := c.ExternalScope(d, local, nil, w, cluster)
		if err != nil {
			return nil, err
		}
		if out.Object, err = f.Create(out.Object, scope); err != nil {
			return nil, err
		}
		f.Release(out.Object)
		labels, annotations = filled(out.GetLabels()), filled(out.GetAnnotations())
		if f.Extended {
			annotations[kueue.MultiKueueOriginUIDAnnotation] = string(local.GetUID())
		}
	}
	if d.Remote.OriginUID {
		annotations[kueue.MultiKueueOriginUIDAnnotation] = string(local.GetUID())
	}
	c.mark(labels, annotations, w, d.Remote.Workloads == nil)
	out.SetLabels(labels)
	out.SetAnnotations(annotations)
	if f == nil && !d.Remote.Gated {
		unstructured.RemoveNestedField(out.Object, d.Remote.ManagedBy...)
	}
	if d.Remote.Prepare != nil {
		d.Remote.Prepare(out.Object)
	}
	if f != nil {
		name, _ := cluster["name"].(string)
		if err := f.Finish(out.Object, name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// travelling are the labels and annotations of a job that its copy gets, too.
func travelling(local job.Object) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	maps.Copy(labels, local.GetLabels())
	for key, value := range local.GetAnnotations() { //berth:unordered copies a map
		own := key == kueue.JobStoppingAnnotation || key == job.InjectedAnnotation || key == job.SuspendedAnnotation
		if !own && !strings.HasPrefix(key, annotationPrefix) {
			annotations[key] = value
		}
	}
	delete(labels, kueue.PrebuiltWorkloadLabel)
	delete(annotations, kueue.PrebuiltWorkloadLabel)
	return labels, annotations
}

// stopped is a job as it was before it was started, with the size of its Workload. A kind that is known by name only is as it is.
func stopped(d *job.Descriptor, local job.Object, w *kueue.Workload) job.Object {
	out := local.DeepCopyObject().(job.Object)
	if d.Restore == nil {
		return out
	}
	d.Suspend(out)
	if d.Family.CanLead() && job.IsElastic(w) {
		return out // nothing was put in
	}
	d.Restore(out, job.WithoutInjected(local, w.Spec.PodSets))
	if job.IsElastic(w) && d.Remote.Resize != nil {
		d.Remote.Resize(out, local, w.Spec.PodSets)
	}
	return out
}

func filled(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// mark says on a copy whose it is, and, unless there are several, which Workload it belongs to.
func (c *Config) mark(labels, annotations map[string]string, w *kueue.Workload, one bool) {
	switch {
	case !one:
	case c.Annotations || len(w.Name) > maxLabel:
		annotations[kueue.PrebuiltWorkloadLabel] = w.Name
	default:
		labels[kueue.PrebuiltWorkloadLabel] = w.Name
	}
	labels[kueue.MultiKueueOriginLabel] = c.Origin
	if c.ManagerUID != "" {
		annotations[ManagerUIDAnnotation] = c.ManagerUID
	}
}

// maxLabel is the length of the longest label value.
const maxLabel = 63

// prebuilt is the Workload that a job names.
func (c *Config) prebuilt(o job.Object) string {
	cfg := job.Config{AnnotationIdentifiers: c.Annotations}
	return cfg.PrebuiltName(o)
}

// WorkloadOf is the name of the Workload that a job on a worker belongs to, empty if it names none.
func (c *Config) WorkloadOf(o job.Object) string { return c.prebuilt(o) }

// Tree is a job as a tree of maps, of its own.
func Tree(d *job.Descriptor, o job.Object) (*unstructured.Unstructured, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.DeepCopy(), nil
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", d.GVK.Kind, o.GetName(), err)
	}
	out := &unstructured.Unstructured{Object: m}
	out.SetGroupVersionKind(d.GVK)
	return out, nil
}
