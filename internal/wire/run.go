// Package wire composes the manager: it installs the manifests, adds all enabled controllers, servers and webhooks, and runs them.
package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/admission/certs"
	"github.com/berth-project/berth/internal/admission/conversion"
	"github.com/berth-project/berth/internal/foresight/forecaster"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/inspect"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/install/upstream"
	jobsetcontroller "github.com/berth-project/berth/internal/jobset/controller"
	"github.com/berth-project/berth/internal/listen"
	"github.com/berth-project/berth/internal/metrics"
	"github.com/berth-project/berth/internal/occupancy"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/placement/capacity"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/training/runtimes"
	"github.com/berth-project/berth/internal/wire/reload"
)

// Config are the options and the surroundings of a manager.
type Config struct {
	REST    *rest.Config
	Options options.Options // with the flags applied
	Groups  install.Groups
	// ServingCertDir holds the user's tls.crt and tls.key; if empty, the manager creates a certificate and shares it in a Secret.
	ServingCertDir string
	// MetricsCertDir is where a provided certificate of the metrics is mounted; empty is options.MetricsCertDir.
	MetricsCertDir string
	// WebhookURL is the base URL under which the API server reaches the webhooks; if empty, by the Service of the manager's namespace.
	WebhookURL string
	// Reserved are the addresses of Options, host:port, for which the caller holds a listen.Reservation while Run runs.
	Reserved map[string]bool
	// Install applies the manifests before the manager starts.
	Install bool
	// OnlyV1beta2 is what is installed, see install.Options.
	OnlyV1beta2 bool
	// Reload, if not nil, reads the configuration file again, with the same flags as for Options.
	Reload func() (options.Options, error)
	// OnReady, if not nil, is called once: when the caches are filled, the webhooks are served and the leader decides.
	OnReady func()
	Log     logr.Logger

	Build metrics.Build // of the binary, for the metrics

	keeper   *certs.Keeper          // of our own certificate, nil if certificates are provided
	meter    *metrics.Recorder      // set by addMetrics
	events   *reconcile.EventBudget // shared by all controllers; set by addMetrics
	limit    inflight.Throttle      // of requests to the API server
	reloader *reload.Reloader       // of the configuration file
	runtimes *runtimes.Store        // shared by the controller, webhooks and job kind of TrainJobs
	forecast *forecaster.Forecaster // of the starts of pending Workloads; nil without a scheduler
	places   *occupancy.Map         // what is free in the domains of topologies; nil without topologies
	probes   *listen.Probes         // also if their address is reserved
}

// Run builds the manager and runs it until ctx ends. The libraries' own logs are not its concern: see LeadLogs.
func Run(ctx context.Context, cfg Config) (err error) {
	defer func() {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil // ctx ended during the start
		}
	}()
	cfg.probes = &listen.Probes{}
	announce(&cfg)
	limitRequests(&cfg)
	if err := locateProgress(&cfg); err != nil {
		return err
	}
	// Compression would reduce the traffic of watches, and cost processor time on both ends.
	cfg.REST.DisableCompression = true
	if err := prepare(ctx, &cfg); err != nil {
		return err
	}
	mgr, err := newManager(cfg)
	if err != nil {
		return fmt.Errorf("starting the manager: %w", err)
	}
	if cfg.keeper != nil {
		if err := mgr.Add(cfg.keeper); err != nil {
			return fmt.Errorf("starting the manager: %w", err)
		}
	}
	if err := addEverything(ctx, mgr, cfg); err != nil {
		return fmt.Errorf("starting the manager: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}

// announce logs what may be a mistake in the configuration, and the feature gates in it that change nothing.
func announce(cfg *Config) {
	log := cfg.Log.WithName("options")
	for _, w := range cfg.Options.Warnings {
		log.Info(w)
	}
	for _, gate := range cfg.Options.InertGates() {
		log.Info("This feature gate changes nothing in this version", "gate", gate)
	}
}

func newManager(cfg Config) (ctrl.Manager, error) {
	o, scheme := cfg.Options, install.Scheme()
	informers, err := reconcile.FastInformers(cfg.REST, scheme)
	if err != nil {
		return nil, err
	}
	opts := ctrl.Options{
		Scheme: scheme, Logger: libraryLogger(cfg.Log),
		Cache: cache.Options{
			NewInformer:      informers,
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&batchv1.Job{}: {Transform: compactJobs()}, &kueue.Workload{}: {Transform: reconcile.CompactWorkloads()},
				&corev1.Node{}:        {Transform: capacity.Trim},
				&corev1.PodTemplate{}: {Label: labels.SelectorFromSet(labels.Set{kueue.ManagedLabel: "true"})},
			},
			ReaderFailOnMissingInformer: false,
		},
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&corev1.Secret{}},
		}},
		HealthProbeBindAddress: o.Health.Address,
		ReadinessEndpointName:  o.Health.ReadinessPath,
		LivenessEndpointName:   o.Health.LivenessPath,
		PprofBindAddress:       o.PprofAddress,
		Metrics: metricsserver.Options{
			BindAddress: o.Metrics.Address, SecureServing: !o.Metrics.Plain,
			CertDir: metricsCerts(&cfg), TLSOpts: []func(*tls.Config){cfg.limitTLS, cfg.useOwnCertificate},
		},
		LeaderElectionConfig: leaseConnection(cfg.REST),
		LeaderElection:       o.LeaderElection.Enabled, LeaderElectionID: o.LeaderElection.Name,
		LeaderElectionNamespace: o.LeaderElection.Namespace, LeaderElectionReleaseOnCancel: true,
		LeaderElectionLabels: map[string]string{upstream.LeaderLabel: "true"},
		LeaseDuration:        &o.LeaderElection.LeaseDuration, RenewDeadline: &o.LeaderElection.RenewDeadline,
		RetryPeriod: &o.LeaderElection.RetryPeriod,
		Controller: ctrlconfig.Controller{
			CacheSyncTimeout: o.CacheSyncTimeout, SkipNameValidation: new(true), // several managers in one test process
			GroupKindConcurrency: o.GroupKindConcurrency, // of controllers that do not ask for theirs
		},
	}
	if cfg.Reserved[o.Metrics.Address] {
		opts.Metrics.ListenConfig = listen.Sharing()
	}
	if cfg.Reserved[o.Health.Address] {
		opts.HealthProbeBindAddress = "0" // probes serves them
	}
	if !o.Metrics.Open {
		opts.Metrics.FilterProvider = inspect.Guard
	}
	if cfg.Groups.Has(install.Webhooks) {
		callers, err := webhookCallers(&cfg)
		if err != nil {
			return nil, err
		}
		// The API server presents no certificate to webhooks that convert.
		opts.WebhookServer = listen.Webhooks(newWebhookServer(&cfg), callers, conversion.Path)
	}
	mgr, err := ctrl.NewManager(cfg.REST, opts)
	if err != nil {
		return nil, err
	}
	if cfg.Reserved[o.Health.Address] {
		if err := cfg.probes.Serve(mgr, &o.Health); err != nil {
			return nil, err
		}
	}
	if err := cfg.probes.AddLiveness(mgr, "ping", healthz.Ping); err != nil {
		return nil, err
	}
	return mgr, nil
}

func compactJobs() func(object any) (any, error) {
	var specs reconcile.PodSpecs
	return func(object any) (any, error) {
		if j, ok := object.(*batchv1.Job); ok {
			specs.Share(&j.Spec.Template.Spec)
		}
		return jobsetcontroller.Compact(object)
	}
}

func serving(host string, port int) healthz.Checker {
	return func(*http.Request) error {
		if host == "" {
			host = "127.0.0.1"
		}
		dialer := &net.Dialer{Timeout: time.Second}
		conn, err := tls.DialWithDialer(dialer, "tcp", net.JoinHostPort(host, fmt.Sprint(port)), &tls.Config{
			InsecureSkipVerify: true, //nolint:gosec // this only checks whether it answers
		})
		if err != nil {
			return fmt.Errorf("the webhook server does not answer: %w", err)
		}
		return conn.Close()
	}
}

type logWriter struct{ log logr.Logger }

func (w logWriter) Write(p []byte) (int, error) {
	w.log.Info(string(p[:max(0, len(p)-1)]))
	return len(p), nil
}
