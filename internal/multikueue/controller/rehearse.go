package controller

import (
	"cmp"
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/multikueue/worker"
)

// clusterTree is what expressions may read of a worker.
func (m *shared) clusterTree(ctx context.Context, name string) map[string]any {
	out := map[string]any{"name": name, "labels": map[string]any{}, "annotations": map[string]any{}}
	var cluster kueue.MultiKueueCluster
	if err := m.cache.Get(ctx, client.ObjectKey{Name: name}, &cluster); err != nil {
		return out
	}
	for into, from := range map[string]map[string]string{"labels": cluster.Labels, "annotations": cluster.Annotations} {
		tree := map[string]any{}
		for key, value := range from {
			tree[key] = value
		}
		out[into] = tree
	}
	return out
}

// external is the framework of a Workload's job, nil if the job is of a kind that is known better.
func (w *workloads) external(s *sight) *external.Framework {
	if s.kind == nil {
		return nil
	}
	return w.Plan.External[s.kind.GVK]
}

// rehearse finds out, before anything is sent, whether a job may be sent, and whether a copy can be made for each cluster: a transform
// that is broken is to hold no quota of a worker.
func (w *workloads) rehearse(ctx context.Context, s *sight) error {
	f := w.external(s)
	o := &s.observed
	if f == nil || s.job == nil || !f.Preconditions && !f.Copied() || !waits(o.Local, o.Check) {
		return nil
	}
	scope, err := w.Plan.ExternalScope(s.kind, s.job, nil, o.Local, nil)
	if err != nil {
		return err
	}
	refused := f.Precondition(scope)
	switch {
	case refused != nil && refused.Until.IsZero():
		o.Job.Refused = refused
	case refused != nil: // no copy is made before it is known
		rehearseOn(o.Clusters, func(*plan.Cluster) error { return refused })
	case f.Copied():
		rehearseOn(o.Clusters, func(c *plan.Cluster) error {
			_, err := w.Plan.NewJob(s.kind, s.job, o.Local, w.clusterTree(ctx, c.Name))
			return err
		})
	}
	return nil
}

// rehearseOn notes what is wrong with a copy for each cluster that has none yet.
func rehearseOn(clusters []plan.Cluster, try func(*plan.Cluster) error) {
	for i := range clusters {
		if c := &clusters[i]; c.Listed && c.Copy == nil && (c.Fault == nil || !c.Fault.Skip) {
			c.Fault = cmp.Or(faultOf(try(c)), c.Fault)
		}
	}
}

// faultOf is the fault of a transform, nil if the error is another one.
func faultOf(err error) *plan.Fault {
	if e := external.As(err); e != nil {
		return &plan.Fault{Code: e.Code, Text: e.Text, Skip: true, Located: true, Until: e.Until, Waits: !e.Until.IsZero()}
	}
	return nil
}

// endOf returns how the job of a Workload on a worker ended, nil if it did not, or if its kind does not say.
func (w *workloads) endOf(conn *worker.Connection, s *sight) *plan.JobEnd {
	there := w.jobsOf(conn, s)
	if s.kind.Finished == nil || len(there) == 0 || len(there) < len(s.members) {
		return nil
	}
	out := &plan.JobEnd{Success: true}
	for _, o := range there {
		message, success, over := s.kind.Finished(o)
		if !over || o.GetDeletionTimestamp() != nil || conn.Store(s.kind.GVK).Deleting(o) { // what is being deleted is of an earlier run
			return nil
		}
		if out.Success || !success {
			out.Message = message
		}
		out.Success = out.Success && success
	}
	return out
}

// ends notes how the jobs ended whose copy is gone.
func (w *workloads) ends(s *sight) {
	for i := range s.observed.Clusters {
		c := &s.observed.Clusters[i]
		if c.HasJob && (c.Copy == nil || c.Copy.DeletionTimestamp != nil) && s.connections[c.Name] != nil {
			c.JobIsOver = w.endOf(s.connections[c.Name], s)
		}
	}
}

// lifecycle observes the jobs of a kind that nothing on the workers integrates, and those of other kinds whose copy is gone.
func (w *workloads) lifecycle(s *sight) {
	f := w.external(s)
	if f == nil || !f.Alone {
		w.ends(s)
		return
	}
	for i := range s.observed.Clusters {
		c := &s.observed.Clusters[i]
		conn := s.connections[c.Name]
		if conn == nil || !c.HasJob {
			continue
		}
		o := w.jobOf(conn, s)
		if o == nil {
			continue
		}
		tree, err := plan.Tree(s.kind, o)
		if err != nil {
			continue
		}
		done, success, message, err := f.Expressions.Finished(tree.Object)
		if err == nil && done {
			c.JobIsOver = &plan.JobEnd{Success: success, Message: message}
		}
		runs, activeErr := f.Expressions.Active(tree.Object)
		c.JobRuns = runs || activeErr != nil
		for _, err := range []error{err, activeErr} {
			if err != nil {
				c.Fault = &plan.Fault{Code: plan.StatusSync, Text: f.Name + "/lifecycle/" + err.Error()}
				if until := external.RestsUntil(err); !until.IsZero() {
					w.wake(s.key, until.Sub(w.Now()))
				}
			}
		}
	}
}
