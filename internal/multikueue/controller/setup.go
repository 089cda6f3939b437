// Package controller dispatches Workloads to worker clusters and follows them there.
//
//	MultiKueueCluster ─► worker.Fleet: a connection for each worker cluster,
//	                                 │    with our objects, kept by watches
//	                                 ▼
//	Workload, job, check, config ─► observe ─► plan.Decide ─► carry out
//	                                 ▲                          │
//	                                 └── events of clusters ◄───┘
//
// Package internal/multikueue/plan decides; this one reads and writes, through the connections of package worker. A worker cluster that
// does not answer must not delay others: each has its own rate limit, time limit and number of calls. (spec: 40 §4.1 to §4.7)
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
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/check"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/worker"
	"github.com/berth-project/berth/internal/reconcile"
)

// Options configure the controllers.
type Options struct {
	// Plan is the configuration without the UID of the manager, which Setup sets.
	Plan *plan.Config
	// Jobs is the configuration of jobs.
	Jobs *job.Config
	// Descriptors are the enabled job kinds, external frameworks first. Those without Remote are not dispatched.
	Descriptors []*job.Descriptor
	// Worker are the options of the connections. Setup sets Plan, Kinds, Queues, Concurrency, Now and the callbacks.
	Worker worker.Options
	// GCInterval is the time between collections of orphans; 0 is never.
	GCInterval time.Duration
	// Quota maintains the quota of ClusterQueues whose MultiKueueConfig asks for it.
	Quota  bool
	Status *reconcile.WorkloadStatus
	Events reconcile.Events
	// Workers returns how many objects of a kind, given as Kind.group, are reconciled at once.
	Workers func(groupKind string) int
	Now     func() time.Time
	// Dispatched and Admitted count copies that are created and admitted.
	Dispatched, Admitted func(queue, cluster string)
	// Lost counts Workloads that are retried because their cluster is lost. Connected receives a function that returns which clusters are
	// connected. Both may be nil.
	Lost      func(cluster string)
	Connected func(func() map[string]bool)
	// Misnamed returns one sentence for each wrong name of an external framework, for the condition of checks. It may be nil.
	Misnamed func() []string
}

const minWorkers = 32

// minClusters is the minimum number of concurrent attempts to connect, so that an unresponsive cluster delays no other.
const minClusters = 32

// Delays of events of worker clusters: short for copies, which decide the next step, longer for jobs, whose status changes several times
// while they start and end (spec: 40 §4.1).
const (
	copyEventDelay = 200 * time.Millisecond
	jobEventDelay  = time.Second
)

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks;clusterqueues,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=multikueueconfigs;multikueueclusters,verbs=get;list;watch,roleName=kueue-manager-multikueue-role
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues,verbs=patch,roleName=kueue-manager-multikueue-role
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues/status;admissionchecks/status;multikueueclusters/status,verbs=patch,roleName=kueue-manager-multikueue-role

// Nominate returns the worker clusters to which a Workload may be dispatched as soon as it has a quota reservation, given its required
// checks; none if that is decided later.
type Nominate func(wl *kueue.Workload, required []kueue.AdmissionCheckReference) []string

// Setup adds the controllers to the manager. The admission writes what the returned function nominates together with the reservation,
// which saves a write for each Workload.
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
		case known != nil: // an external framework that this manager also integrates
			both := *known
			both.IsActive = d.IsActive
			m.kinds[d.GVK] = &both
		}
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &kueue.Workload{}, byOwner, ownersOf); err != nil {
		return nil, fmt.Errorf("indexing Workloads: %w", err)
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

type shared struct {
	Options
	client      client.Client
	cache       client.Reader
	live        client.Reader
	kinds       map[schema.GroupVersionKind]*job.Descriptor
	fleet       *worker.Fleet
	records     *records
	quotaEvents chan event.GenericEvent // queues of a worker cluster changed
	requeue     func(types.NamespacedName, time.Duration)
	nominate    Nominate
}

func (m *shared) addClusters(mgr ctrl.Manager) (err error) {
	o := m.Worker
	o.Plan, o.Kinds, o.Queues, o.Now = m.Plan, withChildren(m.kinds), m.Quota, m.Now
	o.Concurrency = max(m.Workers("MultiKueueCluster.kueue.x-k8s.io"), minClusters)
	o.ObjectChanged, o.ClusterChanged = m.objectChanged, m.clusterChanged
	m.fleet, err = worker.Setup(mgr, o)
	return err
}

func withChildren(kinds map[schema.GroupVersionKind]*job.Descriptor) map[schema.GroupVersionKind]*job.Descriptor {
	out := maps.Clone(kinds)
	for _, d := range kinds {
		if d.Remote.Follow == nil || out[d.ManagedChildren.Child] != nil {
			continue
		}
		gvk := d.ManagedChildren.Child
		out[gvk] = &job.Descriptor{
			GVK: gvk, Resource: strings.ToLower(gvk.Kind) + "s",
			New: func() job.Object { return view.New(gvk) }, NewList: func() runtime.Object { return view.NewList(gvk) },
		}
	}
	return out
}

func (m *shared) objectChanged(o client.Object) {
	ctx, key, after := context.Background(), client.ObjectKeyFromObject(o), copyEventDelay // only reads a cache
	switch o.(type) {
	case *kueue.ClusterQueue, *kueue.LocalQueue:
		m.requeueQuotas()
		return
	case *kueue.Workload:
	default:
		if m.requeueOwner(o) {
			return
		}
		key.Name, after = m.Plan.WorkloadOf(o), jobEventDelay
	}
	if key.Name == "" {
		m.requeueByOrigin(o)
	}
	if key.Name != "" && m.cache.Get(ctx, key, &kueue.Workload{}, client.UnsafeDisableDeepCopy) == nil {
		m.requeue(key, after)
	}
}

// requeueOwner requeues the Workloads of the job whose copy controls an object, for kinds that follow such objects, and returns whether
// it is one. The object may name an earlier Workload.
func (m *shared) requeueOwner(o client.Object) bool {
	by := metav1.GetControllerOf(o)
	if by == nil {
		return false
	}
	d := m.kinds[schema.FromAPIVersionAndKind(by.APIVersion, by.Kind)]
	if d == nil || d.Remote.Follow == nil {
		return false
	}
	m.requeueOwned(o.GetNamespace(), kindAndName(by.Kind, by.Name), copyEventDelay)
	return true
}

func (m *shared) clusterChanged(ctx context.Context, cluster string, fresh bool) {
	if fresh {
		m.records.reconnected(cluster)
	}
	m.requeueUsers(ctx, cluster)
	m.requeueQuotas()
}

func (m *shared) addChecks(mgr ctrl.Manager) error {
	c := &checks{shared: m}
	activity := &check.Activity{Controller: kueue.MultiKueueControllerName, Active: c.active}
	return activity.Setup(mgr, "multikueue_admissioncheck", func(b *builder.Builder) {
		b.Watches(&kueue.MultiKueueConfig{}, handler.EnqueueRequestsFromMapFunc(c.ofConfig)).
			Watches(&kueue.MultiKueueCluster{}, handler.EnqueueRequestsFromMapFunc(c.ofCluster))
	})
}

func (m *shared) addWorkloads(mgr ctrl.Manager) error {
	w := &workloads{
		shared: m, informers: mgr.GetCache(), written: reconcile.NewOverlay[*kueue.Workload](m.Now), forwarded: map[schema.GroupVersionKind]bool{},
	}
	queues := make(chan queueType, 1)
	m.requeue, m.nominate = requeuer(queues), w.nominate
	return ctrl.NewControllerManagedBy(mgr).Named("multikueue_workload").
		Watches(&kueue.Workload{}, w.ofWorkload()).
		Watches(&kueue.MultiKueueConfig{}, handler.EnqueueRequestsFromMapFunc(w.ofConfig)).
		Watches(&kueue.MultiKueueCluster{}, handler.EnqueueRequestsFromMapFunc(w.ofCluster), builder.WithPredicates(
			predicate.Or(reconcile.Edited(), predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}),
		)).
		Watches(&kueue.AdmissionCheck{}, handler.EnqueueRequestsFromMapFunc(w.ofCheck), builder.WithPredicates(reconcile.EditedLater())).
		WatchesRawSource(source.Func(func(_ context.Context, q queueType) error {
			queues <- q
			return nil
		})).
		WithOptions(reconcile.ControllerOptions(max(m.Workers("Workload.kueue.x-k8s.io"), minWorkers))).
		Complete(w)
}

// requeuer returns a function that requeues a Workload after a delay. It does nothing before the controller has started, which reconciles
// all of them.
func requeuer(queues <-chan queueType) func(types.NamespacedName, time.Duration) {
	var q latch
	return func(key types.NamespacedName, after time.Duration) {
		if queue := q.get(queues); queue != nil {
			queue.AddAfter(ctrlreconcile.Request{NamespacedName: key}, after)
		}
	}
}
