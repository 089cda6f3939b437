package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	"github.com/berth-project/berth/internal/workload/plan/slices"
)

// An elastic job is resized on the manager: a slice that shrinks is made smaller on its worker, then its job there is; one that grows gets a
// successor, which is sent to the same worker, and once it is admitted there one patch gives the job its size and its name. The slice
// before it is over on the worker by then, and is over here once the successor is admitted here (spec: 40 §4.9).

// resized is the job on a worker with the size of a slice and its name, nil if it has both. A local job that has another size than the
// slice waits for it: one that has grown for the next slice, one that has shrunk for this one to follow.
func (c *Config) resized(d *job.Descriptor, local, remote job.Object, w *kueue.Workload) (*unstructured.Unstructured, error) {
	if !c.Elastic || !job.IsElastic(w) || d.Remote.Resize == nil {
		return nil, nil
	}
	podSets, err := (&job.Setting{Config: &job.Config{ElasticJobs: true}}).PodSets(d, local)
	if err != nil {
		return nil, err
	}
	if slices.Compare(w, podSets) != slices.Same {
		return nil, nil
	}
	next := remote.DeepCopyObject().(job.Object)
	changed := d.Remote.Resize(next, local, podSets)
	if changed = c.rename(next, w) || changed; !changed {
		return nil, nil
	}
	return Tree(d, next)
}

// specOf is the spec that a copy gets. That of a slice was taken from a job that runs here: what its start put in is for this cluster.
func (d *decider) specOf(w *kueue.Workload) *kueue.WorkloadSpec {
	out := w.Spec.DeepCopy()
	if d.o.Job.Started != nil {
		out.PodSets = job.WithoutInjected(d.o.Job.Started, out.PodSets)
	}
	return out
}

// newCopy is NewCopy with that. One that follows others of its job keeps the gates of the manager: its worker was chosen before (spec: 40 §4.9).
func (d *decider) newCopy() *kueue.Workload {
	out, spec := d.NewCopy(d.w), d.specOf(d.w)
	out.Spec.PodSets = spec.PodSets
	if s := d.o.Job.Siblings; s != nil && len(s.Clusters) > 0 {
		out.Spec.PreemptionGates = spec.PreemptionGates
	}
	return out
}

// handedOver is about a slice whose place another has taken on its worker. The other is over it here as well once it is admitted here; without
// one, nothing of the job runs under a slice of ours.
func (d *decider) handedOver(c *Cluster) bool {
	if d.check.State == kueue.CheckStateReady && !d.o.Job.Heir && !lifecycle.IsEvicted(d.w) {
		d.retry(fmt.Sprintf("The workload slice was replaced on %q by one that is not here any more", c.Name), true)
	}
	return true
}

// stranded asks for another try of a slice that has inherited a cluster which is lost, or not in the configuration any more.
func (d *decider) stranded() bool {
	name := d.w.Status.ClusterName
	if d.check.State != kueue.CheckStatePending || name == "" || !d.elastic() || lifecycle.IsEvicted(d.w) || d.admitting() != nil {
		return false
	}
	switch c := d.cluster(name); {
	case c == nil || !c.Listed:
		d.retry(fmt.Sprintf("Cluster %q of the workload slice is not in the configuration any more", name), false)
	case c.Connected:
		return false
	default:
		if left := d.grace(c); left > 0 {
			d.wake(left)
			return true
		}
		d.retry(fmt.Sprintf("Cluster %q of the workload slice is lost", name), false)
	}
	return true
}
