package wire

import (
	"context"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/berth-project/berth/internal/options"
)

// throttle is the rate limit of the manager's requests to the API server, one for objects of all kinds together: each kind
// has a client of its own, and these would have a limit each. It may be changed at any time. spec: 70 §2.1.3.
type throttle struct{ bucket *rate.Limiter }

var _ flowcontrol.RateLimiter = throttle{}

func newThrottle(c options.Client) throttle {
	return throttle{rate.NewLimiter(perSecond(c), c.Burst)}
}

func perSecond(c options.Client) rate.Limit {
	if c.QPS < 0 {
		return rate.Inf
	}
	return rate.Limit(c.QPS)
}

// limitRequests has all that is connected by the configuration share its limit.
func limitRequests(cfg *Config) {
	cfg.REST = rest.CopyConfig(cfg.REST)
	cfg.limit = newThrottle(cfg.Options.Client)
	cfg.REST.QPS, cfg.REST.Burst, cfg.REST.RateLimiter = cfg.Options.Client.QPS, cfg.Options.Client.Burst, cfg.limit
}

// unhurried is a connection with a limit of its own, so that the lease is renewed however much else there is to write.
func unhurried(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.RateLimiter = nil
	return out
}

// set changes the limit, also for those who wait already.
func (t throttle) set(c options.Client) {
	t.bucket.SetBurst(c.Burst)
	t.bucket.SetLimit(perSecond(c))
}

// TryAccept takes a turn if there is one now.
func (t throttle) TryAccept() bool { return t.bucket.Allow() }

// Accept waits for a turn.
func (t throttle) Accept() { _ = t.bucket.Wait(context.Background()) }

// Wait is Accept until ctx ends.
func (t throttle) Wait(ctx context.Context) error { return t.bucket.Wait(ctx) }

// QPS is the limit, in requests a second.
func (t throttle) QPS() float32 { return float32(t.bucket.Limit()) }

// Stop does nothing.
func (throttle) Stop() {}
