package wire

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/placement/health"
	plan "github.com/berth-project/berth/internal/placement/plan/health"
	"github.com/berth-project/berth/internal/placement/ungate"
	"github.com/berth-project/berth/internal/reconcile"
)

// addUngater adds the controller that ungates the pods of elastic jobs, and of jobs with a topology assignment.
func addUngater(ctx context.Context, mgr ctrl.Manager, pods *reconcile.Pods, cfg Config) error {
	gates := cfg.Options.Gates
	if !gates.On(feature.ElasticJobsViaWorkloadSlices) && !gates.On(feature.TopologyAwareScheduling) {
		return nil
	}
	return ungate.Setup(ctx, mgr, ungate.Options{Config: lookup.NewConfig(&cfg.Options), Pods: pods, Now: time.Now, Ungated: ungated(cfg.meter)})
}

// addNodeFailures adds the controller that follows the nodes of Workloads with a topology assignment.
func addNodeFailures(ctx context.Context, mgr ctrl.Manager, pods *reconcile.Pods, cfg Config) error {
	gates := cfg.Options.Gates
	if !gates.On(feature.TopologyAwareScheduling) || !gates.On(feature.TASFailedNodeReplacement) {
		return nil
	}
	return health.Setup(ctx, mgr, health.Options{
		Namespaces: lookup.NewGate(lookup.NewConfig(&cfg.Options), nil, mgr.GetCache(), mgr.GetAPIReader()), Machine: lookup.Machine(&cfg.Options),
		Pods: pods, Status: reconcile.NewWorkloadStatus(mgr.GetClient()), Now: time.Now,
		Events: reconcile.NewEvents(mgr.GetEventRecorder("kueue-node-failures"), cfg.events),
		Gates: plan.Gates{
			OnPodTermination: gates.On(feature.TASReplaceNodeOnPodTermination), OnTaints: gates.On(feature.TASReplaceNodeOnNodeTaints),
			AfterFixedTime: gates.On(feature.TASReplaceNodeDueToNotReadyOverFixedTime), KeepPodOwned: gates.On(feature.SkipReassignmentForPodOwnedWorkloads),
		},
	})
}
