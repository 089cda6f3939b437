package plan

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// Following is the new state of a running job and its copy, nil where unchanged.
type Following struct{ Local, Remote *unstructured.Unstructured }

// Follow synchronizes a job and its copy, for kinds that change while they run. in has the objects that the copy controls, and the
// Workloads of the job. by is the Workload that the worker cluster has admitted and that is not about to be replaced, which the copy then
// names; nil: the copy gets only what needs no quota (spec: 30 §4.10.3, Limitation 3).
func (c *Config) Follow(d *job.Descriptor, local, remote job.Object, by *kueue.Workload, in *job.Setting) (Following, error) {
	if d.Remote.Follow == nil || d.IsSuspended(local) || remote.GetDeletionTimestamp() != nil {
		return Following{}, nil
	}
	ours, theirs := local.DeepCopyObject().(job.Object), remote.DeepCopyObject().(job.Object)
	told, changed, err := d.Remote.Follow(ours, theirs, by, in)
	if err != nil {
		return Following{}, err
	}
	if by != nil && c.Elastic && job.IsElastic(by) {
		changed = c.rename(theirs, by) || changed
	}
	var out Following
	if told {
		if out.Local, err = Tree(d, ours); err != nil {
			return Following{}, err
		}
	}
	if changed {
		out.Remote, err = Tree(d, theirs)
	}
	return out, err
}

func (c *Config) rename(remote job.Object, w *kueue.Workload) bool {
	if c.prebuilt(remote) == w.Name {
		return false
	}
	labels, annotations := filled(remote.GetLabels()), filled(remote.GetAnnotations())
	delete(labels, kueue.PrebuiltWorkloadLabel)
	delete(annotations, kueue.PrebuiltWorkloadLabel)
	c.mark(labels, annotations, w, true)
	remote.SetLabels(labels)
	remote.SetAnnotations(annotations)
	return true
}
