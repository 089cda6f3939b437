package wire

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/lookup"
	multikueuecontroller "github.com/berth-project/berth/internal/multikueue/controller"
	"github.com/berth-project/berth/internal/multikueue/frameworks"
	multikueueplan "github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/worker"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/reconcile"
)

func addMultiKueue(ctx context.Context, mgr ctrl.Manager, nominate *nominator, kinds *jobKinds, cfg Config) error {
	o := &cfg.Options
	if !o.Gates.On(feature.MultiKueue) {
		return nil
	}
	enabled := managed(o, kinds.list)
	log := cfg.Log.WithName("multikueue")
	plan := multikueueConfig(o)
	var misnamed func() []string
	if len(o.MultiKueue.ExternalFrameworks) > 0 {
		served, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
		if err != nil {
			return err
		}
		for _, f := range o.MultiKueue.ExternalFrameworks {
			name := f.GVK.Kind + "." + f.GVK.Version + "." + f.GVK.Group
			f.Observed = func(phase, result string, cost uint64, took time.Duration) {
				cfg.meter.Transformed(name, phase, result, cost, took)
			}
			f.Suspended = func(phase string) { cfg.meter.Suspended(name, phase) }
		}
		more, external, err := frameworks.External(o.MultiKueue.ExternalFrameworks, enabled, served, time.Now, log)
		if err != nil {
			return err
		}
		plan.External = external
		var names []frameworks.Name
		for i, d := range more {
			names = append(names, frameworks.Name{
				Field: fmt.Sprintf("multiKueue.externalFrameworks[%d].name", i), Configured: o.MultiKueue.ExternalFrameworks[i].GVK, Used: d.GVK,
			})
		}
		misnamed = func() []string { return frameworks.Warnings(names, served) }
		logWarnings(log, misnamed())
		enabled = append(more, enabled...) // known kinds win
	}
	log.Info("Workers are picked by a dispatcher", "dispatcher", o.MultiKueue.Dispatcher)
	var err error
	nominate.ask, err = multikueuecontroller.Setup(ctx, mgr, multikueuecontroller.Options{
		Plan: plan, Jobs: lookup.NewConfig(o), Descriptors: enabled, GCInterval: o.MultiKueue.GCInterval,
		Worker: worker.Options{
			Namespace: o.Namespace, Limit: cfg.limit, AllowHTTP: o.MultiKueue.AllowHTTP,
			Profiles: o.Gates.On(feature.MultiKueueClusterProfile), Providers: o.MultiKueue.AccessProviders,
			AnyPath: !o.Gates.On(feature.MultiKueueKubeConfigPathValidation), Degraded: o.Gates.On(feature.MultiKueueDegradedFrameworks),
			Events: reconcile.NewEvents(mgr.GetEventRecorder("kueue-multikueue-cluster"), cfg.events),
		},
		Quota:   o.Gates.On(feature.MultiKueueManagerQuotaAutomation),
		Status:  reconcile.NewWorkloadStatus(mgr.GetClient()),
		Events:  reconcile.NewEvents(mgr.GetEventRecorder("kueue-multikueue-controller"), cfg.events),
		Workers: o.Concurrency, Now: time.Now, Dispatched: cfg.meter.Dispatched, Admitted: cfg.meter.RemotelyAdmitted,
		Lost: cfg.meter.WorkerLost, Connected: cfg.meter.SetClusters, Misnamed: misnamed,
	})
	return err
}

// warnOfExternalKinds logs the names of integrations.externalFrameworks that differ from the served kinds: jobs of such a kind are not
// recognised as owners.
func warnOfExternalKinds(mgr ctrl.Manager, cfg Config) error {
	if len(cfg.Options.ExternalFrameworks) == 0 {
		return nil
	}
	served, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	var names []frameworks.Name
	for i, gvk := range cfg.Options.ExternalFrameworks {
		names = append(names, frameworks.Name{Field: fmt.Sprintf("integrations.externalFrameworks[%d]", i), Configured: gvk})
	}
	logWarnings(cfg.Log.WithName("options"), frameworks.Warnings(names, served))
	return nil
}

func logWarnings(log logr.Logger, warnings []string) {
	for _, w := range warnings {
		log.Info("Warning: " + w)
	}
}

// nominator is the Nominate of MultiKueue, empty if MultiKueue does not run.
type nominator struct{ ask multikueuecontroller.Nominate }

func (n *nominator) names(wl *kueue.Workload, required []kueue.AdmissionCheckReference) []string {
	if n.ask == nil {
		return nil
	}
	return n.ask(wl, required)
}

func multikueueConfig(o *options.Options) *multikueueplan.Config {
	out := &multikueueplan.Config{
		Lifecycle: lookup.Machine(o), Origin: o.MultiKueue.Origin, WorkerLostTimeout: o.MultiKueue.WorkerLostTimeout, Mode: multikueueplan.External,
		StepSize: o.MultiKueue.StepSize, RoundTimeout: o.MultiKueue.RoundTimeout, ConfigOrder: o.Gates.On(feature.MultiKueueIncrementalDispatcherRespectConfigOrder),
		Elastic: o.Gates.On(feature.ElasticJobsViaWorkloadSlices), Annotations: o.Gates.On(feature.WorkloadIdentifierAnnotations),
	}
	out.PreviousOrigins, out.Retention = o.MultiKueue.PreviousOrigins, o.MultiKueue.Retention
	out.Orchestrated, out.PreemptionTimeout = o.Gates.On(feature.MultiKueueOrchestratedPreemption), o.MultiKueue.PreemptionTimeout
	switch o.MultiKueue.Dispatcher {
	case configv1beta2.DispatcherAllAtOnce:
		out.Mode = multikueueplan.AllAtOnce
	case configv1beta2.DispatcherIncremental:
		out.Mode = multikueueplan.Incremental
	}
	return out
}
