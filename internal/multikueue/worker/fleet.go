// Package worker keeps the connections to worker clusters, one for each
// MultiKueueCluster, and what those clusters hold that bears our origin.
//
//	MultiKueueCluster ─► clusters ─► Fleet ─► Connection ─► a Store for each kind
//	Secret, file ────────┘                     │ watches, calls
//	                                           ▼
//	                                     the worker cluster
//
// It knows nothing of what is sent, and when: it tells of what changes, and
// makes the calls that it is asked for within the limits of their worker.
// (spec: 40 §3, §4.2)
package worker

import (
	"bytes"
	"context"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/reconcile"
)

// Options say how workers are reached, what is followed there, and who is told.
type Options struct {
	// Plan is what the configuration says; its origins tell what is ours.
	Plan *plan.Config
	// Kinds are those of the jobs that may be there.
	Kinds map[schema.GroupVersionKind]*job.Descriptor
	// Queues follows the workers' queues as well.
	Queues bool
	// Degraded lets workers be used that do not serve every kind.
	Degraded bool
	// Namespace is where the Secrets and ClusterProfiles are.
	Namespace string
	// Profiles lets clusters be known by a ClusterProfile, whose credentials come from Providers.
	Profiles bool
	// AllowHTTP lets servers and proxies be reached without TLS.
	AllowHTTP bool
	Providers []configv1beta2.ClusterProfileProvider
	// AnyPath takes kubeconfigs from any file; usually only those below /etc/multikueue/kubeconfigs/.
	AnyPath bool
	// QPS and Burst limit the calls to each worker. Negative QPS is no limit.
	QPS   float32
	Burst int
	// Concurrency is how many clusters are connected at once.
	Concurrency int
	// Events are those about MultiKueueClusters.
	Events reconcile.Events
	Now    func() time.Time

	// Changed is told of an object that came, changed or went on a worker. It must not block.
	Changed func(client.Object)
	// Turned is told of a worker that can be reached, or cannot any more, or that allows something else than before. fresh says that it was
	// connected anew.
	Turned func(ctx context.Context, cluster string, fresh bool)
}

// Pauses between attempts to connect to a cluster (spec: 40 §4.2).
const (
	firstPause = 5 * time.Second
	mostPauses = 7 // doublings: 320 s at most
	// probeEvery is how often a cluster that refuses connections is tried for a bare TCP connection between attempts, so that it is
	// used again soon after it is back.
	probeEvery = 2 * time.Second
	probeLimit = time.Second
	// startsFor is how long a cluster may take, once it takes connections again, until it answers as it should: attempts that fail
	// before do not make the pauses longer.
	startsFor = 30 * time.Second
)

// remote is one MultiKueueCluster, from its creation to its deletion.
type remote struct {
	name string

	mu          sync.Mutex
	credentials []byte // what the connection was made with
	address     string // host:port for a probe, empty if there is a proxy or the like
	connection  *Connection
	lostSince   time.Time // when there was no connection first
	firstLost   time.Time // the same across restarts, as the status says
	attempts    int
	next        time.Time     // of the next attempt
	hangs       chan struct{} // one that nobody waits for any more and that has not ended, nil if there is none
	refused     bool          // the last probe failed
	backAt      time.Time     // when it took connections again, as a probe found out
	deleted     bool
}

// Fleet is all clusters. It is a runnable that ends the connections with the manager.
type Fleet struct {
	Options
	client  client.Client
	cache   client.Reader
	live    client.Reader
	scheme  *runtime.Scheme
	compact func(any) (any, error) // of Workloads; those of all workers share what is the same
	// firstWatch is how long the watches of a cluster may take to open. It doubles with each attempt that fails.
	firstWatch time.Duration
	// touched brings a cluster back whose connection ended.
	touched chan event.GenericEvent

	mu      sync.Mutex
	remotes map[string]*remote
	thrifty sync.Once
}

// Setup adds the controller of MultiKueueClusters to the manager.
func Setup(mgr ctrl.Manager, o Options) (*Fleet, error) {
	f := &Fleet{
		Options: o, client: mgr.GetClient(), cache: mgr.GetCache(), live: mgr.GetAPIReader(), scheme: mgr.GetScheme(),
		compact: reconcile.CompactWorkloads(), firstWatch: firstWatch,
		touched: make(chan event.GenericEvent, 64), remotes: map[string]*remote{},
	}
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{f.Namespace: {}}, DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(secrets); err != nil {
		return nil, err
	}
	named := &metav1.PartialObjectMetadata{}
	named.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	c := &clusters{Fleet: f}
	err = ctrl.NewControllerManagedBy(mgr).Named("multikueue_cluster").
		For(&kueue.MultiKueueCluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind[client.Object](secrets, named, handler.EnqueueRequestsFromMapFunc(c.ofSecret))).
		WatchesRawSource(source.Channel(f.touched, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: f.Concurrency}).
		Complete(c)
	if err != nil {
		return nil, err
	}
	return f, mgr.Add(f)
}

// Start waits for the end.
func (f *Fleet) Start(ctx context.Context) error {
	<-ctx.Done()
	for _, r := range f.all() {
		r.disconnect(f.Now())
	}
	return nil
}

// get is the cluster of a name. One that is new has been lost since the manager started.
func (f *Fleet) get(name string) *remote {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.remotes[name]
	if r == nil {
		r = &remote{name: name, lostSince: f.Now(), deleted: true}
		f.remotes[name] = r
	}
	return r
}

func (f *Fleet) all() []*remote {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*remote, 0, len(f.remotes))
	for _, r := range f.remotes {
		out = append(out, r)
	}
	return out
}

// Names are those of all clusters that were ever heard of, sorted.
func (f *Fleet) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.remotes))
}

// Link is how a cluster can be reached now.
type Link struct {
	// Connection is nil while the cluster does not answer.
	Connection *Connection
	// LostSince is since when it has not, FirstLost the same across restarts, if that is known.
	LostSince, FirstLost time.Time
	// Slow says that there is a connection that only does not answer.
	Slow bool
}

// Link is how the cluster of a name can be reached now. One that nobody has heard of has been lost since the manager started.
func (f *Fleet) Link(name string) Link { return f.get(name).link() }

// Reachable says of every cluster whether it can be reached.
func (f *Fleet) Reachable() map[string]bool {
	out := map[string]bool{}
	for _, r := range f.all() {
		r.mu.Lock()
		deleted := r.deleted
		r.mu.Unlock()
		if !deleted {
			out[r.name] = r.link().Connection != nil
		}
	}
	return out
}

func (r *remote) link() Link {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connection == nil {
		return Link{LostSince: r.lostSince, FirstLost: r.firstLost}
	}
	if since := r.connection.stuckSince(); !since.IsZero() {
		return Link{LostSince: since, Slow: true}
	}
	return Link{Connection: r.connection}
}

// disconnect ends the connection and keeps the time of the first loss. It says whether there was one.
func (r *remote) disconnect(now time.Time) bool {
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
	return c != nil
}

// touch has a cluster looked at. It never blocks for long: the channel has room for all.
func (f *Fleet) touch(name string) {
	cluster := &kueue.MultiKueueCluster{}
	cluster.Name = name
	select {
	case f.touched <- event.GenericEvent{Object: cluster}:
	default:
		go func() { f.touched <- event.GenericEvent{Object: cluster} }()
	}
}

// lost ends a connection from within, and has the cluster connected again at once. One that is being made fails.
func (f *Fleet) lost(c *Connection, why error) {
	c.cancel(why)
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
	f.missed(r)
}

// missed has everything looked at that a cluster matters to whose connection ended. Most are made again at once, which makes no difference
// to anybody, so that is waited for first.
func (f *Fleet) missed(r *remote) {
	time.AfterFunc(slow, func() {
		if r.link().Connection == nil {
			f.Turned(context.Background(), r.name, false) // it only reads caches
		}
	})
}

// pause is how long to wait after the n-th failed attempt.
func pause(attempts int) time.Duration {
	return firstPause << (min(attempts, mostPauses) - 1)
}

// probe says whether a cluster that refused TCP connections takes them again. One that cannot be asked this way does not, and one that
// takes them all the time without answering, such as a load balancer in front of nothing, does not either.
func (r *remote) probe(now time.Time) bool {
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
	if was && err == nil {
		r.backAt = now
	}
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
