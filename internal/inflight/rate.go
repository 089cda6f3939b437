package inflight

import (
	"context"
	"net"
	"net/http"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Limits of queued requests in a Rate, in all and of one caller.
const (
	rateWaiting   = 1024
	ratePerCaller = 256
)

// Rate is the rate limit of a client of the API server that serves many callers in turn. The context of a request names its caller: see
// For.
type Rate struct {
	bucket *rate.Limiter
	turns  Limiter
}

var _ flowcontrol.RateLimiter = (*Rate)(nil)

// NewRate returns a limit of qps requests a second, and burst at once.
func NewRate(qps float32, burst int) *Rate {
	return &Rate{
		bucket: rate.NewLimiter(rate.Limit(qps), burst),
		turns:  Limiter{Seats: 1, PerCaller: 1, Waiting: rateWaiting, WaitingPerCaller: ratePerCaller},
	}
}

// OnBudget returns a connection with a budget of its own, which its callers share fairly.
func OnBudget(cfg *rest.Config, qps float32, burst int) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.QPS, out.Burst, out.RateLimiter = qps, burst, NewRate(qps, burst)
	return out
}

// AddressOf returns the address of a request without the port: the caller's name before it is authenticated.
func AddressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

type callerKey struct{}

// For names the caller of requests to the API server.
func For(ctx context.Context, caller string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// Wait waits for the caller's turn, and for the rate. spec: 70 §2.1.3.
func (r *Rate) Wait(ctx context.Context) error {
	caller, _ := ctx.Value(callerKey{}).(string)
	release, err := r.turns.Acquire(ctx, caller, 1)
	if err != nil {
		return err
	}
	defer release()
	return r.bucket.Wait(ctx)
}

// Accept is Wait without a deadline.
func (r *Rate) Accept() { _ = r.Wait(context.Background()) }

// TryAccept takes a turn if there is one now: not before callers that wait for theirs.
func (r *Rate) TryAccept() bool {
	release, ok := r.turns.tryAcquire("", 1)
	if !ok {
		return false
	}
	defer release()
	return r.bucket.Allow()
}

// QPS is the limit in requests a second.
func (r *Rate) QPS() float32 { return float32(r.bucket.Limit()) }

// Stop does nothing.
func (*Rate) Stop() {}
