package wire

import (
	"context"
	"crypto/tls"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/engine/feed"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/listen"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/visibility"
)

// visibilityCertDir is the mounted folder of a provided certificate of the visibility API. spec: 70 §4.4.
const visibilityCertDir = "/visibility"

// addVisibility adds the visibility API, on every replica.
func addVisibility(ctx context.Context, mgr ctrl.Manager, e *engine.Engine, follow *feed.Feed, cfg Config) error {
	if !install.ServesVisibility(&cfg.Options) {
		return nil
	}
	log := cfg.Log.WithName("visibility")
	config, err := cfg.servingTLS(mgr, cfg.keeper != nil, visibilityCertDir)
	if err != nil {
		log.Error(err, "The visibility API is not served: there is no certificate for it")
		return nil
	}
	workloads, err := reconcile.WorkloadsOf(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	access, learn, err := visibility.Delegate(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	err = mgr.Add(everywhere(func(ctx context.Context) error {
		learn(ctx)
		return nil
	}))
	if err != nil {
		return err
	}
	config.ClientAuth = tls.RequestClientCert // verified for each request
	var starts visibility.Starts
	if cfg.forecast != nil {
		starts = cfg.forecast
	}
	server := visibility.New(visibility.Server{
		Starts: starts,
		Model:  e.Model, Read: e.Read, Places: cfg.places, Workload: workloads.Get, Visit: workloads.Visit, Requests: follow.Requests, Access: access, Log: log,
		Ready: func() error { return follow.Check(nil) },
	})
	return mgr.Add(&listen.Listener{
		What: "the visibility API", Setting: "visibilityServer.bindPort", Address: cfg.Options.VisibilityAddress, Shared: cfg.Reserved[cfg.Options.VisibilityAddress],
		TLS: config, Server: server.HTTP(), Log: log,
	})
}
