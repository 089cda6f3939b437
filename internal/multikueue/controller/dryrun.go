package controller

import (
	"cmp"
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/multikueue/worker"
)

func (m *shared) clusterTree(ctx context.Context, name string) map[string]any {
	out := map[string]any{"name": name, "labels": map[string]any{}, "annotations": map[string]any{}}
	var cluster kueue.MultiKueueCluster
	if err := m.cache.Get(ctx, client.ObjectKey{Name: name}, &cluster); err != nil {
		return out
	}
	out["labels"], out["annotations"] = view.Texts(cluster.Labels), view.Texts(cluster.Annotations)
	return out
}

func (w *workloads) external(s *observation) *external.Framework {
	if s.kind == nil {
		return nil
	}
	return w.Plan.External[s.kind.GVK]
}

// dryRun evaluates preconditions and creates the copies for each cluster without sending them: a broken transform must not hold quota of
// a worker cluster.
func (w *workloads) dryRun(ctx context.Context, s *observation) error {
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
	case refused != nil: // unknown yet: no copy is created
		dryRunOn(o.Clusters, func(*plan.Cluster) error { return refused })
	case f.Copied():
		dryRunOn(o.Clusters, func(c *plan.Cluster) error {
			_, err := w.Plan.NewJob(s.kind, s.job, o.Local, w.clusterTree(ctx, c.Name))
			return err
		})
	}
	return nil
}

func dryRunOn(clusters []plan.Cluster, try func(*plan.Cluster) error) {
	for i := range clusters {
		if c := &clusters[i]; c.Listed && c.Copy == nil && (c.Fault == nil || !c.Fault.Skip) {
			c.Fault = cmp.Or(faultOf(try(c)), c.Fault)
		}
	}
}

func faultOf(err error) *plan.Fault {
	if e := external.As(err); e != nil {
		return &plan.Fault{Code: e.Code, Text: e.Text, Skip: true, Located: true, Until: e.Until, Waits: !e.Until.IsZero()}
	}
	return nil
}

// jobEnd returns how the job of a Workload on a worker cluster ended, nil if it did not or its kind does not say.
func (w *workloads) jobEnd(conn *worker.Connection, s *observation) *plan.JobEnd {
	there := w.jobsOf(conn, s)
	if s.kind.Finished == nil || len(there) == 0 || len(there) < len(s.members) {
		return nil
	}
	out := &plan.JobEnd{Success: true}
	for _, o := range there {
		message, success, over := s.kind.Finished(o)
		if !over || o.GetDeletionTimestamp() != nil || conn.Store(s.kind.GVK).Deleting(o) { // being deleted: of an earlier run
			return nil
		}
		if out.Success || !success {
			out.Message = message
		}
		out.Success = out.Success && success
	}
	return out
}

func (w *workloads) observeFinishedJobs(s *observation) {
	for i := range s.observed.Clusters {
		c := &s.observed.Clusters[i]
		if c.HasJob && (c.Copy == nil || c.Copy.DeletionTimestamp != nil) && s.connections[c.Name] != nil {
			c.JobIsOver = w.jobEnd(s.connections[c.Name], s)
		}
	}
}

// observeJobEnds observes jobs of kinds without an integration on the worker clusters, and for other kinds the jobs without a copy.
func (w *workloads) observeJobEnds(s *observation) {
	f := w.external(s)
	if f == nil || !f.Alone {
		w.observeFinishedJobs(s)
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
				if until := external.SuspendedUntil(err); !until.IsZero() {
					w.requeue(s.key, until.Sub(w.Now()))
				}
			}
		}
	}
}
