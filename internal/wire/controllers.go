package wire

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/admission"
	"github.com/berth-project/berth/internal/admission/conversion"
	"github.com/berth-project/berth/internal/admission/conversion/rewrite"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/engine/feed"
	"github.com/berth-project/berth/internal/inspect"
	"github.com/berth-project/berth/internal/install"
	jobcontroller "github.com/berth-project/berth/internal/job/controller"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/job/warn"
	"github.com/berth-project/berth/internal/occupancy"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/placement/standing"
	queuecontroller "github.com/berth-project/berth/internal/queue/controller"
	plan "github.com/berth-project/berth/internal/queue/plan"
	"github.com/berth-project/berth/internal/queue/populate"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/training/runtimes"
	"github.com/berth-project/berth/internal/wire/reload"
	"github.com/berth-project/berth/internal/workload/admit"
	"github.com/berth-project/berth/internal/workload/evict"
	"github.com/berth-project/berth/internal/workload/follow"
	"github.com/berth-project/berth/internal/workload/plan/convert"
	"github.com/berth-project/berth/internal/workload/plan/variants"
	"github.com/berth-project/berth/internal/workload/priorities"
)

// addEverything adds all controllers, servers and webhooks of the enabled groups to the manager.
func addEverything(ctx context.Context, mgr ctrl.Manager, cfg Config) error {
	options := StateOptions(&cfg.Options)
	s := state.New(options)
	s.RecordDecided(inspect.FlightEvents)
	e := engine.New(s, time.Now)
	cfg.places = occupancy.New(e.Model, options.Topology)
	if err := addMetrics(mgr, e, &cfg); err != nil {
		return err
	}
	cfg.reloader = reload.New(&cfg.Options, cfg.Reload, cfg.limit, cfg.Log.WithName("options"))
	if err := cmp.Or(mgr.Add(cfg.reloader), addEngine(mgr, e, &cfg)); err != nil {
		return err
	}
	cfg.runtimes = runtimes.New(mgr.GetClient(), mgr.GetAPIReader())
	kinds, err := newJobKinds(ctx, mgr, &cfg)
	if err != nil {
		return err
	}
	requests, counts, err := newRequests(ctx, mgr, &cfg)
	if err != nil {
		return err
	}
	placed, err := reconcile.NewStartedPods(ctx, mgr)
	if err != nil {
		return err
	}
	follow, err := newFeed(mgr, e, requests, placed, counts, cfg)
	if err != nil {
		return err
	}
	nominate := &nominator{}
	for _, part := range []struct {
		group install.Group
		add   func() error
	}{
		{install.Scheduler, func() error { return addWriters(ctx, mgr, e, requests, nominate, cfg) }},
		{install.Queues, func() error {
			if cfg.Groups.Has(install.Scheduler) {
				return nil
			}
			return addWriters(ctx, mgr, e, requests, nominate, cfg) // they write why Workloads wait
		}},
		{install.Scheduler, func() error { return addForecaster(mgr, e, follow, &cfg) }},
		{install.Queues, func() error { return addQueues(ctx, mgr, e, follow, counts, cfg) }},
		{install.Queues, func() error { return addNodeQuota(mgr, cfg) }},
		{install.Integrations, func() error { return addJobs(ctx, mgr, kinds, cfg) }},
		{install.Integrations, func() error { return addRightsCheck(mgr, kinds, cfg) }},
		{install.Integrations, func() error { return addUngater(ctx, mgr, placed, cfg) }},
		{install.Scheduler, func() error { return addNodeFailures(ctx, mgr, placed, cfg) }},
		{install.Integrations, func() error { return addRecovery(mgr, cfg) }},
		{install.Integrations, func() error { return addWarner(ctx, mgr, kinds, cfg) }},
		{install.JobSet, func() error { return addJobSets(ctx, mgr, cfg) }},
		{install.Training, func() error { return jobSetsServed(mgr.GetRESTMapper(), cfg.Groups) }},
		{install.Training, func() error { return addTraining(ctx, mgr, kinds, cfg) }},
		{install.Integrations, func() error { return warnOfExternalKinds(mgr, cfg) }},
		{install.Checks, func() error { return addProvisioning(ctx, mgr, cfg) }},
		{install.MultiKueue, func() error { return addMultiKueue(ctx, mgr, nominate, kinds, cfg) }},
		{install.Webhooks, func() error { return addWebhooks(ctx, mgr, kinds, cfg) }},
	} {
		if !cfg.Groups.Has(part.group) {
			continue
		}
		if err := part.add(); err != nil {
			return err
		}
	}
	for _, add := range []func() error{
		func() error { return mgr.Add(follow) },
		func() error { return addRewriter(mgr, cfg) },
		func() error { return addVisibility(ctx, mgr, e, follow, cfg) },
		func() error { return addDashboard(ctx, mgr, e, follow, &cfg) },
		func() error { return addReadiness(mgr, follow, cfg) },
	} {
		if err := add(); err != nil {
			return err
		}
	}
	return nil
}

// newFeed returns the feed of the engine. Without a scheduler the engine makes no decision about quota.
func newFeed(mgr ctrl.Manager, e *engine.Engine, requests convert.Requests, pods *reconcile.Pods, counts *deviceCounts, cfg Config) (*feed.Feed, error) {
	capacity, err := addCapacity(mgr, e, cfg)
	if err != nil {
		return nil, err
	}
	follow := &feed.Feed{Cache: mgr.GetCache(), Engine: e, Requests: requests, Capacity: capacity}
	counts.feedFrom(follow)
	if capacity != nil {
		left := standing.New(pods)
		left.Changed, follow.Requests.Places, follow.Deleted = follow.Reconvert, left.Places, left.Forget
		if err := mgr.Add(left); err != nil {
			return nil, err
		}
	}
	if afs := cfg.Options.AdmissionFairSharing; afs.Enabled {
		follow.Sampling = afs.SamplingInterval
	}
	if cfg.Groups.Has(install.Scheduler) || cfg.Groups.Has(install.Queues) {
		follow.Lead = mgr.Elected()
	}
	if !cfg.Groups.Has(install.Scheduler) {
		e.Pause()
	}
	return follow, nil
}

// addEngine adds the engine and its diagnostics: at the metrics address, and in the log.
func addEngine(mgr ctrl.Manager, e *engine.Engine, cfg *Config) error {
	return cmp.Or(
		addDiagnostics(mgr, cfg, map[string]http.Handler{inspect.FlightPath: inspect.Flight(e), inspect.DumpPath: inspect.Dump(e)}),
		mgr.Add(everywhere(inspect.DumpOnSignal(e, cfg.Log))),
		mgr.Add(everywhere(e.Run)),
	)
}

// addDiagnostics serves handlers by path at the metrics address. They show the objects of all namespaces, so they are guarded also if the
// metrics are open to everybody. spec: 70 §4.12.
func addDiagnostics(mgr ctrl.Manager, cfg *Config, handlers map[string]http.Handler) error {
	guard := func(_ logr.Logger, handler http.Handler) (http.Handler, error) { return handler, nil } // the server's own filter guards all paths
	if cfg.Options.Metrics.Open {
		var err error
		if guard, err = inspect.Guard(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
			return err
		}
	}
	for path, handler := range handlers {
		guarded, err := guard(cfg.Log.WithValues("path", path), handler)
		if err != nil {
			return err
		}
		if err := mgr.AddMetricsServerExtraHandler(path, guarded); err != nil {
			return err
		}
	}
	return nil
}

// newRequests returns how the requests of Workloads are computed, for all components, and adds the catalog of devices.
func newRequests(ctx context.Context, mgr ctrl.Manager, cfg *Config) (convert.Requests, *deviceCounts, error) {
	counts, err := newDeviceCounts(ctx, mgr, cfg)
	out := Requests(&cfg.Options)
	if err == nil && (cfg.Groups.Has(install.Scheduler) || cfg.Groups.Has(install.Queues)) { // the others may not list LimitRanges
		out.Around, err = around(ctx, mgr)
	}
	out.Around.Devices = counts.count()
	return out, counts, err
}

func around(ctx context.Context, mgr ctrl.Manager) (convert.Around, error) {
	list := func() client.ObjectList { return &corev1.LimitRangeList{} }
	namespace := func(o client.Object) []string { return []string{o.GetNamespace()} }
	ranges, err := reconcile.NewIndex(ctx, mgr.GetCache(), &corev1.LimitRange{}, list, "inNamespace", namespace)
	return feed.Around(ctx, mgr.GetCache(), func(namespace string) []client.Object { return ranges.Find(ctx, namespace, namespace) }), err
}

func addJobs(ctx context.Context, mgr ctrl.Manager, kinds *jobKinds, cfg Config) error {
	return jobcontroller.Setup(ctx, mgr, jobcontroller.Options{
		Kept:   cfg.reloader.Deactivated,
		Config: lookup.NewConfig(&cfg.Options), Pods: kinds.pods, Ready: kinds.ready, Ungated: ungated(cfg.meter), Descriptors: kinds.list,
		Workers: cfg.Options.Concurrency, Now: time.Now,
		Events: cfg.events, Created: jobCreated(cfg.meter),
	})
}

func addWebhooks(ctx context.Context, mgr ctrl.Manager, kinds *jobKinds, cfg Config) (err error) {
	mgr.GetWebhookServer().Register(conversion.Path, conversion.Handler())
	o := install.WebhookOptions(&cfg.Options, cfg.Groups)
	o.Descriptors = kinds.list
	if kinds.pods != nil {
		if o.Gated, err = kinds.dependents(ctx, mgr.GetCache()); err != nil {
			return err
		}
	}
	if cfg.Options.HonourUserSuspend || cfg.Groups.Has(install.Integrations) {
		if o.Self, err = account(ctx, mgr); err != nil {
			return err
		}
	}
	return admission.Setup(mgr, o)
}

func addWarner(ctx context.Context, mgr ctrl.Manager, kinds *jobKinds, cfg Config) error {
	return warn.Setup(ctx, mgr, warn.Options{
		Config: lookup.NewConfig(&cfg.Options), Now: time.Now, Descriptors: kinds.list,
	})
}

// addWriters adds the writers of the engine's decisions. Without a scheduler they only write why Workloads wait.
func addWriters(ctx context.Context, mgr ctrl.Manager, e *engine.Engine, requests convert.Requests, nominate *nominator, cfg Config) error {
	status := reconcile.NewWorkloadStatus(mgr.GetClient())
	events := reconcile.NewEvents(mgr.GetEventRecorder("kueue-admission"), cfg.events)
	admission := &admit.Writer{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Status: status, Events: events,
		Engine: e, Machine: lookup.Machine(&cfg.Options), Requests: requests, Now: time.Now,
		Log: cfg.Log.WithName("admission"), Took: written(cfg.meter), Nominated: nominate.names, Paused: !cfg.Groups.Has(install.Scheduler),
	}
	admission.Init()
	e.AddWriter(admission)
	all, err := reconcile.WorkloadsOf(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	if err := cmp.Or(mgr.Add(admission), mgr.Add(admit.NewTeller(admission, all))); err != nil || admission.Paused {
		return err
	}
	preemptor := &evict.Preemptor{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Status: status, Events: events,
		Engine: e, Machine: lookup.Machine(&cfg.Options), Requests: requests, Now: time.Now,
		Log: cfg.Log.WithName("preemption"), Preempted: cfg.meter.Preempted,
	}
	preemptor.Init()
	e.AddWriter(preemptor)
	return mgr.Add(preemptor)
}

// addQueues adds the controllers of queues and of their Workloads.
func addQueues(ctx context.Context, mgr ctrl.Manager, e *engine.Engine, feed *feed.Feed, counts *deviceCounts, cfg Config) error {
	o := &cfg.Options
	workers := queuecontroller.Workers{
		ClusterQueue:   o.Concurrency("ClusterQueue.kueue.x-k8s.io"),
		LocalQueue:     o.Concurrency("LocalQueue.kueue.x-k8s.io"),
		Cohort:         o.Concurrency("Cohort.kueue.x-k8s.io"),
		ResourceFlavor: o.Concurrency("ResourceFlavor.kueue.x-k8s.io"),
	}
	if err := queuecontroller.Setup(mgr, e, feed.Delivered, o.Gates.On(feature.ConcurrentAdmission), workers); err != nil {
		return err
	}
	if err := addPopulator(mgr, cfg); err != nil {
		return err
	}
	keeper := &priorities.Keeper{Client: mgr.GetClient()}
	if err := keeper.Setup(mgr); err != nil {
		return err
	}
	follower := &follow.Follower{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Status: reconcile.NewWorkloadStatus(mgr.GetClient()),
		Events:  reconcile.NewEvents(mgr.GetEventRecorder("kueue-workload-controller"), cfg.events),
		Devices: feed.Requests.Uncharged, Recount: counts.follow(), Rules: lookup.Rules(o), Changed: cfg.reloader.Rules, Now: time.Now, Slices: o.Gates.On(feature.ElasticJobsViaWorkloadSlices),
	}
	if err := follower.Setup(mgr, o.Concurrency("Workload.kueue.x-k8s.io")); err != nil {
		return err
	}
	divider := &follow.Divider{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Status: follower.Status, Events: follower.Events, Now: time.Now,
		Plan: variants.Config{
			Machine: lookup.Machine(o), On: o.Gates.On(feature.ConcurrentAdmission), Gated: o.Gates.On(feature.AdmissionGatedBy),
		},
	}
	return divider.Setup(ctx, mgr, o.Concurrency("Workload.kueue.x-k8s.io"))
}

// addPopulator adds the generation of LocalQueues, if it is configured.
func addPopulator(mgr ctrl.Manager, cfg Config) error {
	name := kueue.DefaultLocalQueueName
	switch cfg.Options.GenerateLocalQueues {
	case configv1beta2.GenerateDefault:
	case configv1beta2.GenerateAsClusterQueue:
		name = ""
	default:
		return nil
	}
	p := &populate.Populator{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: reconcile.NewEvents(mgr.GetEventRecorder("berth-populator"), cfg.events),
		Config: plan.Config{Managed: cfg.Options.ManagedNamespaces, Name: name},
	}
	return p.Setup(mgr)
}

// addRewriter adds the storage migration to the present versions of the kinds of the groups that run.
func addRewriter(mgr ctrl.Manager, cfg Config) error {
	names, err := install.CrdNames(cfg.Groups)
	if err != nil {
		return err
	}
	return mgr.Add(rewrite.New(mgr.GetClient(), mgr.GetAPIReader(), names, cfg.Log.WithName("storage")))
}

// everywhere is a runnable of every replica, also without leadership.
type everywhere func(context.Context) error

// Start runs the function.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection is false.
func (everywhere) NeedLeaderElection() bool { return false }

var _ manager.LeaderElectionRunnable = everywhere(nil)

// addReadiness adds the readiness probe, and calls OnReady once the caches are filled, the webhooks answer and the leader decides. The caches do not
// count for the probe of a manager with webhooks: while objects are stored in an earlier version, lists need its conversion, which the API server
// calls only through a Service with a ready pod (spec: 70 §4.2).
func addReadiness(mgr ctrl.Manager, follow *feed.Feed, cfg Config) error {
	checks := []healthz.Checker{follow.Check}
	probe, name := follow.Check, "caches"
	if cfg.Groups.Has(install.Webhooks) {
		probe, name = serving(cfg.Options.Webhook.Host, cfg.Options.Webhook.Port), "webhooks"
		checks = append(checks, probe)
	}
	if err := cfg.probes.AddReadiness(mgr, name, probe); err != nil {
		return err
	}
	return mgr.Add(everywhere(func(ctx context.Context) error {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for slices.ContainsFunc(checks, func(check healthz.Checker) bool { return check(nil) != nil }) {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
		if cfg.OnReady != nil {
			cfg.OnReady()
		}
		return nil
	}))
}
