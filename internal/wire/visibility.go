package wire

import (
	"context"
	"crypto/tls"
	"fmt"

	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/engine/feed"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/listen"
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
	workloads, err := workloadStore(ctx, mgr)
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
		Model:  e.Model, Read: e.Read, Places: cfg.places, Workload: workloads, Requests: follow.Requests, Access: access, Log: log,
		Ready: func() error { return follow.Check(nil) },
	})
	return mgr.Add(&listen.Listener{
		What: "the visibility API", Setting: "visibilityServer.bindPort", Address: cfg.Options.VisibilityAddress, Shared: cfg.Reserved[cfg.Options.VisibilityAddress],
		TLS: config, Server: server.HTTP(), Log: log,
	})
}

// workloadStore returns a lookup of Workloads in the cache without copies: a page may have 100,000.
func workloadStore(ctx context.Context, mgr ctrl.Manager) (func(namespace, name string) *kueue.Workload, error) {
	informer, err := mgr.GetCache().GetInformer(ctx, &kueue.Workload{})
	if err != nil {
		return nil, fmt.Errorf("watching Workloads: %w", err)
	}
	shared, ok := informer.(cache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("the cache of Workloads is a %T, which gives out only copies", informer)
	}
	return func(namespace, name string) *kueue.Workload {
		object, _, _ := shared.GetIndexer().GetByKey(namespace + "/" + name)
		w, _ := object.(*kueue.Workload)
		return w
	}, nil
}
