// Package multikueue sends Workloads to worker clusters and follows them there.
//
//	MultiKueueCluster ─► clusters ─► fleet: a connection for each worker, and
//	Secret, file ────────┘             │    what it holds of ours, kept by watches
//	                                   ▼
//	Workload, job, check, config ─► gather ─► dispatch.Decide ─► carry out
//	                                   ▲                          │
//	                                   └──── events of workers ◄──┘
//
// What to do is decided by internal/plan/dispatch; this package connects,
// gathers and writes. One worker that does not answer must not delay what
// concerns others: every worker has a rate limit, a time limit and a number of
// calls of its own. (spec: 40 §4.1 to §4.7)
package multikueue

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/dispatch"
	"github.com/berth-project/berth/internal/plan/job"
	"github.com/berth-project/berth/internal/reconcile"
)

// Options say what to send where.
type Options struct {
	// Plan is what the configuration says. The UID of the manager is filled in.
	Plan *dispatch.Config
	// Descriptors are the enabled kinds of jobs. Those without Remote are not sent.
	Descriptors []*job.Descriptor
	// Namespace is the manager's, where the Secrets and ClusterProfiles of workers are.
	Namespace string
	// QPS and Burst limit the calls to each worker. Negative QPS is no limit.
	QPS   float32
	Burst int
	// GCInterval is the time between two looks for orphans; 0 is never.
	GCInterval time.Duration
	// Profiles lets clusters be known by a ClusterProfile, whose credentials come from Providers.
	Profiles  bool
	Providers []configv1beta2.ClusterProfileProvider
	// AnyPath takes kubeconfigs from any file; usually only those below PathPrefix.
	AnyPath bool
	// Degraded lets workers be used that do not serve every kind.
	Degraded bool
	Status   *reconcile.WorkloadStatus
	Events   reconcile.Events
	// ClusterEvents are those about MultiKueueClusters.
	ClusterEvents reconcile.Events
	// Workers is how many objects of a kind, given as Kind.group, are handled at once.
	Workers func(groupKind string) int
	Now     func() time.Time
	// Dispatched and Admitted are told of copies that were made and admitted.
	Dispatched, Admitted func(queue, cluster string)
}

// PathPrefix is where kubeconfig files may be.
const PathPrefix = "/etc/multikueue/kubeconfigs/"

// enoughWorkers is how many Workloads are handled at once at least: most of the time of each is spent waiting for workers.
const enoughWorkers = 32

// enoughClusters is how many clusters are connected at once at least, so that one that does not answer delays no other.
const enoughClusters = 32

// settle is how long events of workers are gathered before the Workload is looked at.
const settle = 200 * time.Millisecond

// system is the namespace whose UID names a cluster.
const system = "kube-system"

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks;multikueueconfigs;multikueueclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks/status;multikueueclusters/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=kubeflow.org,resources=pytorchjobs/status;tfjobs/status;xgboostjobs/status;paddlejobs/status;jaxjobs/status;mpijobs/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=ray.io,resources=rayjobs/status;rayclusters/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=workload.codeflare.dev,resources=appwrappers/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=clusterprofiles,verbs=get;list;watch

// Setup adds the controllers to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	var ns corev1.Namespace
	if err := mgr.GetAPIReader().Get(ctx, client.ObjectKey{Name: system}, &ns); err != nil {
		return fmt.Errorf("reading namespace %s, whose UID marks what is sent to workers: %w", system, err)
	}
	plan := *o.Plan
	plan.ManagerUID = string(ns.UID)
	o.Plan = &plan
	m := &shared{
		Options: o, client: mgr.GetClient(), cache: mgr.GetCache(), live: mgr.GetAPIReader(), scheme: mgr.GetScheme(),
		kinds: map[schema.GroupVersionKind]*job.Descriptor{}, started: o.Now(), clusterEvents: make(chan event.GenericEvent, 64),
	}
	for _, d := range o.Descriptors {
		if d.Remote != nil {
			m.kinds[d.GVK] = d
		}
	}
	m.fleet = newFleet(m)
	for _, add := range []func(context.Context, ctrl.Manager) error{m.addClusters, m.addChecks, m.addWorkloads} {
		if err := add(ctx, mgr); err != nil {
			return err
		}
	}
	if err := mgr.Add(m.fleet); err != nil {
		return err
	}
	if o.GCInterval == 0 {
		return nil
	}
	return mgr.Add(&collector{shared: m})
}

// shared is what all controllers of the package have in common.
type shared struct {
	Options
	client  client.Client
	cache   client.Reader
	live    client.Reader
	scheme  schemeType
	kinds   map[schema.GroupVersionKind]*job.Descriptor
	fleet   *fleet
	started time.Time
	// clusterEvents bring a cluster back whose connection ended.
	clusterEvents chan event.GenericEvent
	wake          func(types.NamespacedName, time.Duration)
}

func (m *shared) addClusters(_ context.Context, mgr ctrl.Manager) error {
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{m.Namespace: {}}, DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(secrets); err != nil {
		return err
	}
	named := &metav1.PartialObjectMetadata{}
	named.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	c := &clusters{shared: m}
	return ctrl.NewControllerManagedBy(mgr).Named("multikueue_cluster").
		For(&kueue.MultiKueueCluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind[client.Object](secrets, named, handler.EnqueueRequestsFromMapFunc(c.ofSecret))).
		WatchesRawSource(source.Channel(m.clusterEvents, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: max(m.Workers("MultiKueueCluster.kueue.x-k8s.io"), enoughClusters)}).
		Complete(c)
}

func (m *shared) addChecks(_ context.Context, mgr ctrl.Manager) error {
	c := &checks{shared: m}
	return ctrl.NewControllerManagedBy(mgr).Named("multikueue_admissioncheck").
		For(&kueue.AdmissionCheck{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&kueue.MultiKueueConfig{}, handler.EnqueueRequestsFromMapFunc(c.ofConfig)).
		Watches(&kueue.MultiKueueCluster{}, handler.EnqueueRequestsFromMapFunc(c.ofCluster)).
		Complete(c)
}

func (m *shared) addWorkloads(_ context.Context, mgr ctrl.Manager) error {
	w := &workloads{
		shared: m, faults: newFaults(m.Now), informers: mgr.GetCache(), gone: map[types.NamespacedName]*kueue.Workload{},
		forwarded: map[schema.GroupVersionKind]bool{},
	}
	queues := make(chan queueType, 1)
	m.wake = waker(queues)
	return ctrl.NewControllerManagedBy(mgr).Named("multikueue_workload").
		Watches(&kueue.Workload{}, w.ofWorkload()).
		Watches(&kueue.MultiKueueConfig{}, handler.EnqueueRequestsFromMapFunc(w.ofConfig)).
		Watches(&kueue.AdmissionCheck{}, handler.EnqueueRequestsFromMapFunc(w.ofCheck), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(func(_ context.Context, q queueType) error {
			queues <- q
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: max(m.Workers("Workload.kueue.x-k8s.io"), enoughWorkers)}).
		Complete(w)
}

// waker has a Workload looked at after a while. Before the controller has started there is nobody to wake: it looks at all of them
// when it does.
func waker(queues <-chan queueType) func(types.NamespacedName, time.Duration) {
	var q latch
	return func(key types.NamespacedName, after time.Duration) {
		if queue := q.get(queues); queue != nil {
			queue.AddAfter(ctrlreconcile.Request{NamespacedName: key}, after)
		}
	}
}
