package wire

import (
	"k8s.io/client-go/rest"

	"github.com/berth-project/berth/internal/inflight"
)

// limitRequests sets one rate limit for all clients of the manager.
func limitRequests(cfg *Config) {
	cfg.REST = rest.CopyConfig(cfg.REST)
	c := &cfg.Options.Client
	cfg.limit = inflight.NewThrottle(c.QPS, c.Burst)
	cfg.REST.QPS, cfg.REST.Burst, cfg.REST.RateLimiter = c.QPS, c.Burst, cfg.limit
}

// leaseConnection returns a connection with a limit of its own, so that other requests cannot delay the renewal of the lease.
func leaseConnection(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.RateLimiter = nil
	return out
}
