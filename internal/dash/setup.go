package dash

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/reconcile"
)

// Requests of the dashboard to the API server, in a second and at once. This separate limit keeps them from delaying controllers.
const (
	requestQPS   = 100
	requestBurst = 200

	// Reviews have further limits: users share the one of permissions fairly, and addresses the one of tokens, since any client can send
	// new tokens.
	rightsQPS, rightsBurst = 100, 200
	tokensQPS, tokensBurst = 50, 100
)

// Setup makes the dashboard of a manager, which must call Run.
func Setup(ctx context.Context, mgr ctrl.Manager, o options.Dashboard, from Sources, log logr.Logger) (*Server, error) {
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
		Sources: from, options: o,
		history: newHistory(time.Now), usage: newUsage(), cache: mgr.GetCache(), extra: extra, live: live, access: access, log: log,
		hub: newHub(), limits: newLimits(), connections: newConnections(), turns: newTurns(), questions: newQuestions(), costly: costly{of: map[string]int{}}, mux: http.NewServeMux(),
		pace: pace{debounce: debounce, write: writeLimit, ping: pingEvery, recheck: recheckEvery, places: placesEvery, samples: sampleEvery, whatIf: whatIfLimit, progress: progressEvery},
	}
	s.owners = newOwners(live, func(namespace string) { s.hub.changed(pods, namespace) })
	if s.all, err = reconcile.WorkloadsOf(ctx, mgr.GetCache()); err != nil {
		return nil, fmt.Errorf("the dashboard: %w", err)
	}
	if err := s.follow(ctx); err != nil {
		return nil, fmt.Errorf("the dashboard: %w", err)
	}
	s.route()
	return s, nil
}

// Run runs the cache of pods and events and reads the owners of pods, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- s.extra.Start(ctx)
		stop()
	}()
	if s.Places != nil {
		go s.followPlaces(ctx)
	}
	if s.Model != nil {
		go s.sampleUsage(ctx)
	}
	s.owners.run(ctx)
	return <-ended
}

// Wait waits until the caches are complete. It is false if ctx has ended before.
func (s *Server) Wait(ctx context.Context) bool {
	return s.cache.WaitForCacheSync(ctx) && s.extra.WaitForCacheSync(ctx)
}
