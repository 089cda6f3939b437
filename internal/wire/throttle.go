package wire

import (
	"k8s.io/client-go/rest"

	"github.com/berth-project/berth/internal/inflight"
)

// limitRequests has all that is connected by the configuration share its limit.
func limitRequests(cfg *Config) {
	cfg.REST = rest.CopyConfig(cfg.REST)
	c := &cfg.Options.Client
	cfg.limit = inflight.NewThrottle(c.QPS, c.Burst)
	cfg.REST.QPS, cfg.REST.Burst, cfg.REST.RateLimiter = c.QPS, c.Burst, cfg.limit
}

// unhurried is a connection with a limit of its own, so that the lease is renewed however much else there is to write.
func unhurried(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.RateLimiter = nil
	return out
}
