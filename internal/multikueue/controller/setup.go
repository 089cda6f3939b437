// Package controller sends Workloads to worker clusters and follows them there.
//
//	MultiKueueCluster ─► worker.Fleet: a connection for each worker, and what
//	                                   │    it holds of ours, kept by watches
//	                                   ▼
//	Workload, job, check, config ─► gather ─► dispatch.Decide ─► carry out
//	                                   ▲                          │
//	                                   └──── events of workers ◄──┘
//
// What to do is decided by internal/multikueue/plan; this package gathers and
// writes, through the connections of its package worker. One worker that does not answer must not delay what
// concerns others: every worker has a rate limit, a time limit and a number of
// calls of its own. (spec: 40 §4.1 to §4.7)
package controller

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/worker"
	"github.com/berth-project/berth/internal/reconcile"
)

// Options say what to send where.
type Options struct {
	// Plan is what the configuration says. The UID of the manager is filled in.
	Plan *plan.Config
	// Jobs is how jobs are read.
	Jobs *job.Config
	// Descriptors are the enabled kinds of jobs, external frameworks first. Those without Remote are not sent.
	Descriptors []*job.Descriptor
	// Namespace is the manager's, where the Secrets and ClusterProfiles of workers are.
	Namespace string
	// QPS and Burst limit the calls to each worker. Negative QPS is no limit.
	QPS   float32
	Burst int
	// GCInterval is the time between two looks for orphans; 0 is never.
	GCInterval time.Duration
	// Profiles lets clusters be known by a ClusterProfile, whose credentials come from Providers.
	Profiles bool
	// AllowHTTP lets workers and their proxies be reached without TLS.
	AllowHTTP bool
	Providers []configv1beta2.ClusterProfileProvider
	// AnyPath takes kubeconfigs from any file; usually only those below PathPrefix.
	AnyPath bool
	// Degraded lets workers be used that do not serve every kind.
	Degraded bool
	// Quota keeps the quota of ClusterQueues at the sum of the workers', where their MultiKueueConfig asks for it.
	Quota  bool
	Status *reconcile.WorkloadStatus
	Events reconcile.Events
	// ClusterEvents are those about MultiKueueClusters.
	ClusterEvents reconcile.Events
	// Workers is how many objects of a kind, given as Kind.group, are handled at once.
	Workers func(groupKind string) int
	Now     func() time.Time
	// Dispatched and Admitted are told of copies that were made and admitted.
	Dispatched, Admitted func(queue, cluster string)
	// Lost is told of Workloads that are sent again since their cluster is lost, Connected how to look up which clusters can be reached. Nil:
	// nobody is told.
	Lost      func(cluster string)
	Connected func(func() map[string]bool)
	// Misnamed returns what is wrong now with the names of external frameworks, one sentence each, for the condition of the checks. Nil: nothing
	// ever is.
	Misnamed func() []string
}

// enoughWorkers is how many Workloads are handled at once at least: most of the time of each is spent waiting for workers.
const enoughWorkers = 32

// enoughClusters is how many clusters are connected at once at least, so that one that does not answer delays no other.
const enoughClusters = 32

// settle is how long events of workers are gathered before the Workload is looked at: less for those of copies, which decide what happens
// next, than for those of jobs, whose status changes several times while they start and end (spec: 40 §4.1).
const (
	settle    = 200 * time.Millisecond
	settleJob = time.Second
)

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks;clusterqueues,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=multikueueconfigs;multikueueclusters,verbs=get;list;watch,roleName=kueue-manager-multikueue-role
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues,verbs=patch,roleName=kueue-manager-multikueue-role
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues/status;admissionchecks/status;multikueueclusters/status,verbs=patch,roleName=kueue-manager-multikueue-role

// Nominate are the worker clusters that a Workload may be sent to as soon as it has quota, given the checks that it has to pass; none if
// that is to be found out later.
type Nominate func(wl *kueue.Workload, required []kueue.AdmissionCheckReference) []string

// Setup adds the controllers to the manager. Whoever reserves quota should ask what it returns, and write the answer with the reservation:
// that saves a write for each Workload.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (Nominate, error) {
	var ns corev1.Namespace
	if err := mgr.GetAPIReader().Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &ns); err != nil {
		return nil, fmt.Errorf("reading namespace %s, whose UID marks what is sent to workers: %w", metav1.NamespaceSystem, err)
	}
	plan := *o.Plan
	plan.ManagerUID = string(ns.UID)
	o.Plan = &plan
	m := &shared{
		Options: o, client: mgr.GetClient(), cache: mgr.GetCache(), live: mgr.GetAPIReader(),
		kinds: map[schema.GroupVersionKind]*job.Descriptor{}, records: newRecords(o.Now), quotaEvents: make(chan event.GenericEvent, 1),
	}
	for _, d := range o.Descriptors {
		switch known := m.kinds[d.GVK]; {
		case d.Remote != nil:
			m.kinds[d.GVK] = d
		case known != nil: // an external framework whose jobs this manager starts and stops itself: then it also knows whether they run
			both := *known
			both.IsActive = d.IsActive
			m.kinds[d.GVK] = &both
		}
	}
	for _, add := range []func(ctrl.Manager) error{m.addClusters, m.addChecks, m.addWorkloads, m.addQuotas} {
		if err := add(mgr); err != nil {
			return nil, err
		}
	}
	if o.Connected != nil {
		o.Connected(m.fleet.Reachable)
	}
	if o.GCInterval == 0 {
		return m.nominate, nil
	}
	return m.nominate, mgr.Add(&collector{shared: m})
}

// shared is what all controllers of the package have in common.
type shared struct {
	Options
	client      client.Client
	cache       client.Reader
	live        client.Reader
	kinds       map[schema.GroupVersionKind]*job.Descriptor
	fleet       *worker.Fleet
	records     *records
	quotaEvents chan event.GenericEvent // a worker's queues changed
	wake        func(types.NamespacedName, time.Duration)
	nominate    Nominate
}

func (m *shared) addClusters(mgr ctrl.Manager) (err error) {
	m.fleet, err = worker.Setup(mgr, worker.Options{
		Plan: m.Plan, Kinds: withChildren(m.kinds), Queues: m.Quota, Degraded: m.Degraded, Namespace: m.Namespace, Profiles: m.Profiles, AllowHTTP: m.AllowHTTP, Providers: m.Providers,
		AnyPath: m.AnyPath, QPS: m.QPS, Burst: m.Burst, Events: m.ClusterEvents, Now: m.Now, ObjectChanged: m.changed, ClusterChanged: m.turned,
		Concurrency: max(m.Workers("MultiKueueCluster.kueue.x-k8s.io"), enoughClusters),
	})
	return err
}

// withChildren are kinds of jobs with those of the objects that their copies control, where these matter here.
func withChildren(kinds map[schema.GroupVersionKind]*job.Descriptor) map[schema.GroupVersionKind]*job.Descriptor {
	out := maps.Clone(kinds)
	for _, d := range kinds {
		if d.Remote.Follow == nil || out[d.Family.Child] != nil {
			continue
		}
		gvk := d.Family.Child
		out[gvk] = &job.Descriptor{
			GVK: gvk, Resource: strings.ToLower(gvk.Kind) + "s",
			New: func() job.Object { return view.New(gvk) }, NewList: func() runtime.Object { return view.NewList(gvk) },
		}
	}
	return out
}

// changed has the Workload looked at that an object of a worker belongs to, if it is here.
func (m *shared) changed(o client.Object) {
	ctx, key, after := context.Background(), client.ObjectKeyFromObject(o), settle // it only reads a cache
	switch o.(type) {
	case *kueue.ClusterQueue, *kueue.LocalQueue:
		m.touchQuotas()
		return
	case *kueue.Workload:
	default:
		if m.wakeLeader(o) {
			return
		}
		key.Name, after = m.Plan.WorkloadOf(o), settleJob
	}
	if key.Name == "" {
		m.wakeJob(ctx, o)
	}
	if key.Name != "" && m.cache.Get(ctx, key, &kueue.Workload{}, client.UnsafeDisableDeepCopy) == nil {
		m.wake(key, after)
	}
}

// wakeLeader has the Workloads of a job looked at whose copy controls an object, if that matters, and tells whether it does. The object may
// name an earlier one of them.
func (m *shared) wakeLeader(o client.Object) bool {
	by := metav1.GetControllerOf(o)
	if by == nil {
		return false
	}
	d := m.kinds[schema.FromAPIVersionAndKind(by.APIVersion, by.Kind)]
	if d == nil || d.Remote.Follow == nil {
		return false
	}
	m.wakeWhere(o.GetNamespace(), settle, func(ref *metav1.OwnerReference) bool { return ref.Kind == by.Kind && ref.Name == by.Name })
	return true
}

// turned has everything looked at that a cluster matters to. What went wrong on one that is connected anew is tried there again.
func (m *shared) turned(ctx context.Context, cluster string, fresh bool) {
	if fresh {
		m.records.reconnected(cluster)
	}
	m.wakeUsers(ctx, cluster)
	m.touchQuotas()
}

func (m *shared) addChecks(mgr ctrl.Manager) error {
	c := &checks{shared: m}
	return ctrl.NewControllerManagedBy(mgr).Named("multikueue_admissioncheck").
		For(&kueue.AdmissionCheck{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&kueue.MultiKueueConfig{}, handler.EnqueueRequestsFromMapFunc(c.ofConfig)).
		Watches(&kueue.MultiKueueCluster{}, handler.EnqueueRequestsFromMapFunc(c.ofCluster)).
		Complete(c)
}

func (m *shared) addWorkloads(mgr ctrl.Manager) error {
	w := &workloads{
		shared: m, informers: mgr.GetCache(), written: reconcile.NewOverlay[*kueue.Workload](m.Now), forwarded: map[schema.GroupVersionKind]bool{},
	}
	queues := make(chan queueType, 1)
	m.wake, m.nominate = waker(queues), w.nominate
	return ctrl.NewControllerManagedBy(mgr).Named("multikueue_workload").
		Watches(&kueue.Workload{}, w.ofWorkload()).
		Watches(&kueue.MultiKueueConfig{}, handler.EnqueueRequestsFromMapFunc(w.ofConfig)).
		Watches(&kueue.MultiKueueCluster{}, handler.EnqueueRequestsFromMapFunc(w.ofCluster), builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}),
		)).
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
