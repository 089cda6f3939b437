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

// JobVerb is the operation on a job or its copy.
type JobVerb int

const (
	// NoJob is no operation.
	NoJob JobVerb = iota
	// CreateJob creates Object on the worker cluster.
	CreateJob
	// DeleteJob deletes the remote job, which belongs to an earlier run.
	DeleteJob
	// PatchStatus writes the status of Object to the local job.
	PatchStatus
)

// JobStep is the next operation on a job.
type JobStep struct {
	Do     JobVerb
	Object *unstructured.Unstructured
	// Deferred asks for another decision soon.
	Deferred bool
	// Metadata is true if labels or annotations of Object are written, too.
	Metadata bool
	// Resized is the new elastic job on the worker cluster, nil if unchanged.
	Resized *unstructured.Unstructured
	// Spec is the new remote job, nil if unchanged; SpecFault is why it could not be computed.
	Spec      *unstructured.Unstructured
	SpecFault error
}

// SyncJob decides about the local job of a Workload and its copy on the cluster that admitted it, nil if there is none. create permits
// its creation; otherwise it is only mirrored. The pass that creates does not mirror (spec: 40 §4.6).
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

// scaled returns the remote job with as many Workloads as the local one has, nil if unchanged. It grows only to the Workload that the
// worker cluster has admitted: further pods would wait there. It shrinks at once.
func scaled(d *job.Descriptor, local, remote job.Object, w *kueue.Workload) (*unstructured.Unstructured, error) {
	if d.Remote.Scale == nil {
		return nil, nil
	}
	wanted, has := d.Remote.Workloads(local), d.Remote.Workloads(remote)
	if wanted > has {
		upTo := int32(0) // without an index it shrinks only
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

// Ended returns whether a local job ran on a worker cluster and is not to run again.
func Ended(d *job.Descriptor, local job.Object) bool {
	if d.Finished == nil {
		return false
	}
	_, _, over := d.Finished(local)
	return over
}

func isFinal(d *job.Descriptor, remote job.Object) bool {
	return d.Remote.Final != nil && d.Remote.Final(remote)
}

// isOfEarlierRun reports whether a remote job belongs to another Workload than w, or to an earlier local job of its name. The job of an
// elastic Workload may name any of its slices.
func (c *Config) isOfEarlierRun(d *job.Descriptor, local, remote job.Object, w *kueue.Workload) bool {
	origin := remote.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation]
	stamped := d.Remote.OriginUID || (origin != "" && c.stamps(d, w)) // older versions did not set it
	if stamped && origin != string(local.GetUID()) {
		return true
	}
	return d.Remote.Workloads == nil && c.prebuilt(remote) != w.Name && !job.IsElastic(w)
}

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

// PlainStatus returns the unchanged status of the copy, nil if the local job has it, or must not have one.
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

// Quiet returns the local job with a status without active pods, and whether that changes it.
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

// NewJob returns the job to create on a worker cluster: the local one as before its start, without owners, finalizers, status, and
// managedBy (spec: 40 §2.6).
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
	}
	if c.stamps(d, w) {
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

// stamps reports whether copies name the UID of their job.
func (c *Config) stamps(d *job.Descriptor, w *kueue.Workload) bool {
	f := c.External[d.GVK]
	return d.Remote.OriginUID || job.IsElastic(w) || (f != nil && f.Extended)
}

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

// stopped returns a job as before its start, with the size of its Workload. An external kind stays unchanged.
func stopped(d *job.Descriptor, local job.Object, w *kueue.Workload) job.Object {
	out := local.DeepCopyObject().(job.Object)
	if d.Restore == nil {
		return out
	}
	d.Suspend(out)
	if d.ManagedChildren.CanGate() && job.IsElastic(w) {
		return out // its start added nothing
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

// mark sets the origin and, for a job with one Workload, its name on a copy.
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

const maxLabel = 63

func (c *Config) prebuilt(o job.Object) string {
	cfg := job.Config{AnnotationIdentifiers: c.Annotations}
	return cfg.PrebuiltName(o)
}

// WorkloadOf returns the name of the Workload of a remote job, empty for none.
func (c *Config) WorkloadOf(o job.Object) string { return c.prebuilt(o) }

// Tree returns a job as a new tree of maps.
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
