package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	"github.com/berth-project/berth/internal/workload/plan/slices"
)

// An elastic job is resized on the manager. A slice that shrinks is made smaller on its cluster, then its job there. One that grows is
// replaced by a slice that is dispatched to the same cluster; once that is admitted there, one patch gives the job the new size and slice
// name. The replaced slice is finished on the cluster then, and here once the replacement is admitted here (spec: 40 §4.9).

// resized returns the remote job with the size and name of a slice, nil if it has both. A local job of another size than the slice waits:
// one that has grown for the next slice, one that has shrunk for this one to follow.
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

// specOf returns the spec of a copy. That of a slice comes from a running job: what its start added is for this cluster only.
func (d *decider) specOf(w *kueue.Workload) *kueue.WorkloadSpec {
	out := w.Spec.DeepCopy()
	if d.o.Job.Started != nil {
		out.PodSets = job.WithoutInjected(d.o.Job.Started, out.PodSets)
	}
	return out
}

// newCopy is NewCopy with specOf. A copy that follows other Workloads of its job keeps the manager's gates: its cluster is chosen
// already (spec: 40 §4.9).
func (d *decider) newCopy() *kueue.Workload {
	out, spec := d.NewCopy(d.w), d.specOf(d.w)
	out.Spec.PodSets = spec.PodSets
	if s := d.o.Job.Siblings; s != nil && len(s.Clusters) > 0 {
		out.Spec.PreemptionGates = spec.PreemptionGates
	}
	return out
}

// handedOver handles a slice that was replaced on its cluster. The replacement, once admitted here, finishes it; without one, no slice of
// ours runs the job.
func (d *decider) handedOver(c *Cluster) bool {
	if d.check.State == kueue.CheckStateReady && !d.o.Job.ReplacedBy && !lifecycle.IsEvicted(d.w) {
		d.retry(fmt.Sprintf("The workload slice was replaced on %q by one that is not here any more", c.Name), true)
	}
	return true
}

// stranded retries a slice whose inherited cluster is lost, or no longer in the configuration.
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
			d.requeueAfter(left)
			return true
		}
		d.retry(fmt.Sprintf("Cluster %q of the workload slice is lost", name), false)
	}
	return true
}
