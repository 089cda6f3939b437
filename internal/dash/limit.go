package dash

import (
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/options"
)

// Requests in a second. spec: 70 §4.10.
const (
	perAddress = 100
	inAll      = 500

	addressesKept = 4096
)

// Connections, in total and of one caller.
const (
	maxConnections       = 1024
	connectionsPerCaller = 128
)

// Views and objects that are made at once, and that wait. A connection waits with one view at most.
const (
	viewsAtOnce      = 8
	viewsPerCaller   = 2
	objectsPerCaller = 32
)

// All views of one caller together take 1/share of the time. Cheap ones do not count.
const (
	share = 30
	cheap = 10 * time.Millisecond
)

// costly counts the open views of each caller that are not cheap.
type costly struct {
	mu sync.Mutex
	of map[string]int
}

// pause returns how long a view rests that took some time, so that all views of its caller keep within their share. before is the time that it
// took before, 0 for a new one.
func (c *costly) pause(caller string, before, took time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before >= cheap {
		c.of[caller]--
	}
	if took >= cheap {
		c.of[caller]++
	}
	n := c.of[caller]
	if n == 0 {
		delete(c.of, caller)
	}
	return (time.Duration(max(n, 1))*share - 1) * took
}

func newTurns() *inflight.Limiter {
	return &inflight.Limiter{Seats: viewsAtOnce, PerCaller: viewsPerCaller, Waiting: 2 * maxConnections, WaitingPerCaller: connectionsPerCaller + objectsPerCaller}
}

// newConnections makes a limit under which connections are refused and never wait.
func newConnections() *inflight.Limiter {
	return &inflight.Limiter{Seats: maxConnections, PerCaller: connectionsPerCaller}
}

// busy asks the client to retry.
func busy(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusTooManyRequests, why)
}

// limits bound requests.
type limits struct {
	now func() time.Time

	mu        sync.Mutex // of both: a request takes a turn of each, or of neither
	all       *rate.Limiter
	addresses *lru.Cache // of *rate.Limiter
}

func newLimits() *limits {
	return &limits{now: time.Now, all: rate.NewLimiter(inAll, inAll), addresses: lru.New(addressesKept)}
}

// allow reports whether a request is within the limits. A refused request takes no turn, neither of its address nor of the others.
func (l *limits) allow(r *http.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, own := l.now(), l.of(inflight.AddressOf(r))
	return own.TokensAt(now) >= 1 && l.all.AllowN(now, 1) && own.AllowN(now, 1)
}

// of returns the limiter of an address. Call it under the lock.
func (l *limits) of(host string) *rate.Limiter {
	if own, ok := l.addresses.Get(host); ok {
		return own.(*rate.Limiter)
	}
	own := rate.NewLimiter(perAddress, perAddress)
	l.addresses.Add(host, own)
	return own
}

// mayRead reports whether the page that sends a request, if a page does, may read. If origins are listed its origin must be one of them.
// Otherwise the page must be the dashboard's own under a name of this machine: a foreign name that resolves here is no better than a
// foreign page.
func mayRead(o *options.Dashboard, r *http.Request) bool {
	origins := o.Origins
	if origin := r.Header.Get("Origin"); origin != "" {
		if len(origins) > 0 {
			return slices.Contains(origins, origin)
		}
		u, err := url.Parse(origin)
		return err == nil && u.Host == r.Host && options.Loopback(u.Hostname())
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none": // no browser, or a user that typed the address
		return len(origins) > 0 || here(r.Host)
	case "same-origin": // browsers do not name the origin then
		if len(origins) == 0 {
			return here(r.Host)
		}
		if o.AuthMode == options.AuthTokenReview {
			return true // under a foreign name the page has no token, and a proxy may have changed the name
		}
		return slices.Contains(origins, "http://"+r.Host) || slices.Contains(origins, "https://"+r.Host)
	}
	return false
}

// here reports whether a Host header names this machine.
func here(host string) bool {
	u, err := url.Parse("//" + host)
	return err == nil && options.Loopback(u.Hostname())
}
