// Package worker keeps the connections to worker clusters, one for each MultiKueueCluster, and the objects with our origin in them.
//
//	MultiKueueCluster ─► clusters ─► Fleet ─► Connection ─► a Store for each kind
//	Secret, file ────────┘                     │ watches, calls
//	                                           ▼
//	                                     the worker cluster
//
// It does not decide what is sent: it reports changes, and makes calls within the limits of each worker cluster. (spec: 40 §3, §4.2)
package worker

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/reconcile"
)

// Options configure connections and the callbacks for changes.
type Options struct {
	// Plan has the origins.
	Plan *plan.Config
	// Kinds are the kinds of jobs and their children.
	Kinds map[schema.GroupVersionKind]*job.Descriptor
	// Queues also watches ClusterQueues and LocalQueues.
	Queues bool
	// Degraded permits worker clusters that do not serve every kind.
	Degraded bool
	// Namespace has the Secrets and ClusterProfiles.
	Namespace string
	// Profiles permits references to a ClusterProfile, whose credentials come from Providers.
	Profiles bool
	// AllowHTTP permits servers and proxies without TLS.
	AllowHTTP bool
	Providers []configv1beta2.ClusterProfileProvider
	// AnyPath permits kubeconfig files outside of /etc/multikueue/kubeconfigs/.
	AnyPath bool
	// Limit is how many calls each worker cluster gets a second.
	Limit inflight.Throttle
	// Concurrency is how many clusters are connected at once.
	Concurrency int
	// Events are about MultiKueueClusters.
	Events reconcile.Events
	Now    func() time.Time

	// ObjectChanged is called with an object of a worker cluster that was added, changed or deleted. It must not block.
	ObjectChanged func(client.Object)
	// ClusterChanged is called when a cluster is connected or lost, or permits other operations than before. fresh is true for a new
	// connection.
	ClusterChanged func(ctx context.Context, cluster string, fresh bool)
}

// Pauses between attempts to connect to a cluster (spec: 40 §4.2).
const (
	firstPause = 5 * time.Second
	mostPauses = 7 // doublings: 320 s at most
	// probeEvery is the interval of TCP probes between attempts, so that a cluster that refused connections is used again soon.
	probeEvery = 2 * time.Second
	probeLimit = time.Second
	// startsFor is how long a cluster may take to become ready once it accepts TCP connections: failed attempts before that do not
	// lengthen the pauses.
	startsFor = 30 * time.Second
	// provenAfter is how long calls must work after connecting: a connection that they end before is a failed attempt, so that a cluster
	// that answers lists and fails writes is not listed again and again.
	provenAfter = time.Minute
)

// workerCluster is one MultiKueueCluster, or a name of one, as long as it exists or a MultiKueueConfig names it.
type workerCluster struct {
	name string

	mu          sync.Mutex
	credentials []byte // of the connection
	source      kueue.ClusterSource
	address     string // host:port of a probe, empty behind a proxy or a custom dialer
	connection  *Connection
	connectedAt time.Time
	unproven    error     // why calls ended the last connection early, until that is counted as a failed attempt
	lostSince   time.Time // since when there is no connection
	firstLost   time.Time // the same across restarts, from the status
	tried       bool      // an attempt has ended since the manager started, or none can be made
	attempts    int
	next        time.Time     // time of the next attempt
	hangs       chan struct{} // closed when an abandoned attempt ends, nil without one
	refused     bool          // the last probe failed
	backAt      time.Time     // when a probe found that it accepts connections again
	deleted     bool
}

// Fleet is all worker clusters. It is a runnable that ends the connections with the manager.
type Fleet struct {
	Options
	client     client.Client
	cache      client.Reader
	live       client.Reader
	scheme     *runtime.Scheme
	compact    func(any) (any, error) // of Workloads; equal parts are shared between clusters
	firstWatch time.Duration
	touched    chan event.GenericEvent

	mu      sync.Mutex
	workers map[string]*workerCluster
	gcOnce  sync.Once
}

// Setup adds the controller of MultiKueueClusters to the manager.
func Setup(mgr ctrl.Manager, o Options) (*Fleet, error) {
	f := &Fleet{
		Options: o, client: mgr.GetClient(), cache: mgr.GetCache(), live: mgr.GetAPIReader(), scheme: mgr.GetScheme(),
		compact: reconcile.CompactWorkloads(), firstWatch: firstWatch,
		touched: make(chan event.GenericEvent, 64), workers: map[string]*workerCluster{},
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
		For(&kueue.MultiKueueCluster{}, builder.WithPredicates(editedOrReported)).
		WatchesRawSource(source.Kind[client.Object](secrets, named, handler.EnqueueRequestsFromMapFunc(c.ofSecret))).
		WatchesRawSource(source.Channel(f.touched, &handler.EnqueueRequestForObject{})).
		WithOptions(reconcile.ControllerOptions(f.Concurrency)).
		Complete(c)
	if err != nil {
		return nil, err
	}
	return f, mgr.Add(f)
}

// Start waits for the end of the manager, then disconnects.
func (f *Fleet) Start(ctx context.Context) error {
	<-ctx.Done()
	for _, r := range f.all() {
		r.disconnect(f.Now())
	}
	return nil
}

// get returns the cluster of a name. A new one counts as lost from now on.
func (f *Fleet) get(name string) *workerCluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.workers[name]
	if r == nil {
		r = &workerCluster{name: name, lostSince: f.Now(), deleted: true}
		f.workers[name] = r
	}
	return r
}

// find returns the cluster of a name, nil for none.
func (f *Fleet) find(name string) *workerCluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.workers[name]
}

// drop forgets a cluster.
func (f *Fleet) drop(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.workers, name)
}

func (f *Fleet) all() []*workerCluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*workerCluster, 0, len(f.workers))
	for _, r := range f.workers {
		out = append(out, r)
	}
	return out
}

// Names returns the names of all clusters that exist or that a MultiKueueConfig names, and maybe of others that did until a minute ago;
// sorted.
func (f *Fleet) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.workers))
}

// Link is the connection to a cluster, or since when there is none.
type Link struct {
	// Connection is nil while the cluster does not answer.
	Connection *Connection
	// LostSince is since when it does not answer, FirstLost the same across restarts if that is known.
	LostSince, FirstLost time.Time
	// Untried reports that no attempt to connect to it has ended since the manager started.
	Untried bool
	// Slow is a connection that exists and only does not answer, nil for none: what its stores show was last seen.
	Slow *Connection
}

// Link returns how to reach a cluster now.
func (f *Fleet) Link(name string) Link {
	r := f.find(name)
	if r == nil {
		r = f.get(name)
		f.requeue(name) // a name without a cluster is forgotten again
	}
	return r.link()
}

// Reachable returns for every cluster whether it is connected.
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

func (r *workerCluster) link() Link {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connection == nil {
		return Link{LostSince: r.lostSince, FirstLost: r.firstLost, Untried: !r.tried}
	}
	if since := r.connection.stuckSince(); !since.IsZero() {
		return Link{LostSince: since, Slow: r.connection}
	}
	return Link{Connection: r.connection}
}

// noteTried notes the end of an attempt to connect, and reports whether it is the first one.
func (r *workerCluster) noteTried() (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first = !r.tried
	r.tried = true
	return first
}

// disconnect ends the connection, keeps the time of the loss, and returns whether there was one.
func (r *workerCluster) disconnect(now time.Time) bool {
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

// requeue reconciles a cluster. The channel has room for all, so it rarely starts a goroutine.
func (f *Fleet) requeue(name string) {
	cluster := &kueue.MultiKueueCluster{}
	cluster.Name = name
	select {
	case f.touched <- event.GenericEvent{Object: cluster}:
	default:
		go func() { f.touched <- event.GenericEvent{Object: cluster} }()
	}
}

// lost ends a connection from within and reconnects at once, unless its calls failed from the start. An attempt in progress fails.
func (f *Fleet) lost(c *Connection, why error) {
	c.cancel(why)
	r := f.find(c.name)
	if r == nil {
		return
	}
	r.mu.Lock()
	current := r.connection == c
	if current {
		r.connection, r.lostSince, r.firstLost = nil, f.Now(), time.Time{}
		if errors.Is(why, errCallsFail) && r.lostSince.Sub(r.connectedAt) < provenAfter {
			r.unproven = why
		} else {
			r.attempts = 0
		}
	}
	r.mu.Unlock()
	if !current {
		return
	}
	go func() {
		c.close()
		f.requeue(c.name)
	}()
	f.reportLoss(r)
}

// reportLoss calls ClusterChanged after a while: most connections are back by then.
func (f *Fleet) reportLoss(r *workerCluster) {
	time.AfterFunc(slow, func() {
		if r.link().Connection == nil {
			f.ClusterChanged(context.Background(), r.name, false) // only reads caches
		}
	})
}

func pause(attempts int) time.Duration {
	return firstPause << (min(attempts, mostPauses) - 1)
}

// probe reports whether a cluster that refused TCP connections accepts them again. It is false without an address to probe, and for one
// that always accepts connections without answering, such as a load balancer without backends.
func (r *workerCluster) probe(now time.Time) bool {
	r.mu.Lock()
	address := r.address
	r.mu.Unlock()
	if address == "" {
		return false
	}
	conn, err := net.DialTimeout("tcp", address, probeLimit)
	if err == nil {
		_ = conn.Close() // nothing was sent
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

func (r *workerCluster) same(credentials []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Equal(r.credentials, credentials)
}

// uses reports whether it is connected with credentials of a source.
func (r *workerCluster) uses(source *kueue.ClusterSource) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connection != nil && equality.Semantic.DeepEqual(&r.source, source)
}
