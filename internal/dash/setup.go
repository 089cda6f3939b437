package dash

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/options"
)

// Requests of the dashboard to the API server, in a second and at once. They have a limit of their own, so they delay no controller.
const (
	requestQPS   = 100
	requestBurst = 200

	// Reviews have others: of permissions, which users share fairly, and of tokens, which addresses do, since anybody can show tokens
	// that are new.
	rightsQPS, rightsBurst = 100, 200
	tokensQPS, tokensBurst = 50, 100
)

// Setup makes the dashboard of a manager, which has to run it.
func Setup(ctx context.Context, mgr ctrl.Manager, o options.Dashboard, log logr.Logger) (*Server, error) {
	account := rest.CopyConfig(mgr.GetConfig())
	account.QPS, account.Burst, account.RateLimiter = requestQPS, requestBurst, nil
	live, err := client.New(account, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("the dashboard: %w", err)
	}
	access, err := newAccess(inflight.OnBudget(account, rightsQPS, rightsBurst), inflight.OnBudget(account, tokensQPS, tokensBurst), mgr.GetHTTPClient(), &o)
	if err != nil {
		return nil, fmt.Errorf("the dashboard: %w", err)
	}
	extra, err := newExtra(ctx, mgr)
	if err != nil {
		return nil, fmt.Errorf("the dashboard: %w", err)
	}
	s := &Server{
		options: o, cache: mgr.GetCache(), extra: extra, live: live, access: access, log: log, hub: newHub(), limits: newLimits(), connections: newConnections(), turns: newTurns(), mux: http.NewServeMux(),
		pace: pace{debounce: debounce, write: writeLimit, ping: pingEvery, recheck: recheckEvery},
	}
	s.owners = newOwners(live, func(namespace string) { s.hub.changed(pods, namespace) })
	if err := s.follow(ctx); err != nil {
		return nil, fmt.Errorf("the dashboard: %w", err)
	}
	s.route()
	return s, nil
}

// Run follows pods and events until ctx ends, and finds out whose pods are whose.
func (s *Server) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- s.extra.Start(ctx)
		stop()
	}()
	s.owners.run(ctx)
	return <-ended
}

// Wait waits until everything that exists is known. It is false if ctx has ended before.
func (s *Server) Wait(ctx context.Context) bool {
	return s.cache.WaitForCacheSync(ctx) && s.extra.WaitForCacheSync(ctx)
}
