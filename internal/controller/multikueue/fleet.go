package multikueue

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/event"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Pauses between attempts to connect to a cluster (spec: 40 §4.2).
const (
	firstPause = 5 * time.Second
	mostPauses = 7 // doublings: 320 s at most
	// probeEvery is how often a cluster that refuses connections is tried for a bare TCP connection between attempts, so that it is
	// used again soon after it is back.
	probeEvery = 2 * time.Second
	probeLimit = time.Second
)

// remote is one MultiKueueCluster, from its creation to its deletion.
type remote struct {
	name string

	mu          sync.Mutex
	credentials []byte // what the connection was made with
	address     string // host:port for a probe, empty if there is a proxy or the like
	connection  *connection
	lostSince   time.Time // when there was no connection first
	firstLost   time.Time // the same across restarts, as the status says
	attempts    int
	next        time.Time // of the next attempt
	refused     bool      // the last probe failed
	deleted     bool
}

// fleet is all clusters. It is a runnable that ends the connections with the manager.
type fleet struct {
	*shared
	mu      sync.Mutex
	remotes map[string]*remote
}

func newFleet(m *shared) *fleet { return &fleet{shared: m, remotes: map[string]*remote{}} }

// Start waits for the end.
func (f *fleet) Start(ctx context.Context) error {
	<-ctx.Done()
	for _, r := range f.all() {
		r.disconnect(f.Now())
	}
	return nil
}

// get is the cluster of a name. One that is new has been lost since the manager started.
func (f *fleet) get(name string) *remote {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.remotes[name]
	if r == nil {
		r = &remote{name: name, lostSince: f.Now(), deleted: true}
		f.remotes[name] = r
	}
	return r
}

func (f *fleet) all() []*remote {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*remote, 0, len(f.remotes))
	for _, r := range f.remotes {
		out = append(out, r)
	}
	return out
}

// connected is the connection of a cluster that answers; without one, since when there is none, and the same across restarts.
func (r *remote) connected() (c *connection, lost, first time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connection == nil {
		return nil, r.lostSince, r.firstLost
	}
	if since := r.connection.stuckSince(); !since.IsZero() {
		return nil, since, time.Time{}
	}
	return r.connection, time.Time{}, time.Time{}
}

// disconnect ends the connection and keeps the time of the first loss.
func (r *remote) disconnect(now time.Time) {
	r.mu.Lock()
	c := r.connection
	r.connection = nil
	if c != nil {
		r.lostSince, r.firstLost = now, time.Time{}
	}
	r.mu.Unlock()
	if c != nil {
		c.close()
	}
}

// touch has a cluster looked at. It never blocks for long: the channel has room for all.
func (m *shared) touch(name string) {
	cluster := &kueue.MultiKueueCluster{}
	cluster.Name = name
	select {
	case m.clusterEvents <- event.GenericEvent{Object: cluster}:
	default:
		go func() { m.clusterEvents <- event.GenericEvent{Object: cluster} }()
	}
}

// lost ends a connection from within, and has the cluster connected again at once.
func (f *fleet) lost(c *connection, _ error) {
	r := f.get(c.name)
	r.mu.Lock()
	current := r.connection == c
	if current {
		r.connection, r.lostSince, r.firstLost = nil, f.Now(), time.Time{}
	}
	r.mu.Unlock()
	if !current {
		return
	}
	go func() {
		c.close()
		f.touch(c.name)
	}()
}

// pause is how long to wait after the n-th failed attempt.
func pause(attempts int) time.Duration {
	return firstPause << (min(attempts, mostPauses) - 1)
}

// probe says whether a cluster that refused TCP connections takes them again. One that cannot be asked this way does not, and one that
// takes them all the time without answering, such as a load balancer in front of nothing, does not either.
func (r *remote) probe() bool {
	r.mu.Lock()
	address := r.address
	r.mu.Unlock()
	if address == "" {
		return false
	}
	conn, err := net.DialTimeout("tcp", address, probeLimit)
	if err == nil {
		_ = conn.Close() // it was only to see
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.refused
	r.refused = err != nil
	return was && err == nil
}

// addressOf is what to probe of a configuration.
func addressOf(cfg *rest.Config) string {
	u, err := url.Parse(cfg.Host)
	if err != nil || u.Host == "" || cfg.Proxy != nil || cfg.Dial != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = "443"
		if u.Scheme == "http" {
			port = "80"
		}
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// same says whether the credentials are those that were used last.
func (r *remote) same(credentials []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Equal(r.credentials, credentials)
}
