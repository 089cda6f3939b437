package inflight

import (
	"context"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/flowcontrol"
)

// Throttle is the one rate limit of the manager's requests to the API server. controller-runtime has a client for each kind, which would
// each have a limit of its own. It may be changed at any time. spec: 70 §2.1.3.
type Throttle struct{ bucket *rate.Limiter }

var _ flowcontrol.RateLimiter = Throttle{}

// NewThrottle returns a limit of qps requests a second, and burst at once; a negative qps is no limit.
func NewThrottle(qps float32, burst int) Throttle {
	return Throttle{rate.NewLimiter(perSecond(qps), burst)}
}

func perSecond(qps float32) rate.Limit {
	if qps < 0 {
		return rate.Inf
	}
	return rate.Limit(qps)
}

// Set changes the limit, also of requests that already wait.
func (t Throttle) Set(qps float32, burst int) {
	t.bucket.SetBurst(burst)
	t.bucket.SetLimit(perSecond(qps))
}

// Same returns a limit of its own that is always as high as t: another server's.
func (t Throttle) Same() flowcontrol.RateLimiter {
	return same{Throttle{rate.NewLimiter(t.bucket.Limit(), t.bucket.Burst())}, t}
}

// same is a Throttle that takes its limit from another one with each request.
type same struct {
	Throttle
	as Throttle
}

func (s same) adjust() {
	if limit, burst := s.as.bucket.Limit(), s.as.bucket.Burst(); s.bucket.Limit() != limit || s.bucket.Burst() != burst {
		s.bucket.SetBurst(burst)
		s.bucket.SetLimit(limit)
	}
}

// TryAccept takes a turn if there is one now.
func (s same) TryAccept() bool {
	s.adjust()
	return s.Throttle.TryAccept()
}

// Accept waits for a turn.
func (s same) Accept() {
	s.adjust()
	s.Throttle.Accept()
}

// Wait is Accept until ctx ends.
func (s same) Wait(ctx context.Context) error {
	s.adjust()
	return s.Throttle.Wait(ctx)
}

// TryAccept takes a turn if there is one now.
func (t Throttle) TryAccept() bool { return t.bucket.Allow() }

// Accept waits for a turn.
func (t Throttle) Accept() { _ = t.bucket.Wait(context.Background()) }

// Wait is Accept until ctx ends.
func (t Throttle) Wait(ctx context.Context) error { return t.bucket.Wait(ctx) }

// QPS is the limit, in requests a second.
func (t Throttle) QPS() float32 { return float32(t.bucket.Limit()) }

// Stop does nothing.
func (Throttle) Stop() {}
