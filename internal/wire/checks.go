package wire

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/berth-project/berth/internal/check/provisioning"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/reconcile"
)

// addProvisioning adds the admission check that asks a cluster autoscaler for nodes.
func addProvisioning(ctx context.Context, mgr ctrl.Manager, cfg Config) error {
	return provisioning.Setup(ctx, mgr, provisioning.Options{
		DeleteOnEviction: cfg.Options.Gates.On(feature.CleanupProvisioningRequestsOnEviction),
		Events:           reconcile.NewEvents(mgr.GetEventRecorder("kueue-provisioning-request"), cfg.events),
		Workers:          cfg.Options.Concurrency("Workload.kueue.x-k8s.io"), Now: time.Now, Log: cfg.Log.WithName("provisioning"),
	})
}
