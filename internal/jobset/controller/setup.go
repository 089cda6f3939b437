// Package controller runs JobSets (spec: 60 §4). For a JobSet it reads the world once, lets the plan decide all steps,
// and executes them: first the status, in one patch that fails if the JobSet has changed, then Jobs, Service and
// claims, concurrently.
//
//	JobSet ─────────┐                              ┌─ status, events
//	its Jobs ───────┤                              ├─ Jobs: delete, suspend, resume, create
//	Service, claims ┼─► observe ─► plan ─► carry out ┼─ Service, claims
//	(pods) ─────────┘      ▲                       └─ remembered writes, until the cache shows them
//	                       └───────────────────────────────┘
//
// Names of children follow from the spec, so that no child can be created twice; writes are remembered until
// the cache shows them, so that none is tried twice either. All truth is in the API server: after a crash
// between any two writes the next manager continues from the stored objects.
//
// The repair of exclusive placement runs beside it. It removes pods that followed their leader to a domain that the
// leader has left.
package controller

import (
	"context"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
	"github.com/berth-project/berth/internal/reconcile"
)

// fieldOwner and reporter are the names under which clients know this controller (spec: 60 §4.3, §5.2).
const (
	fieldOwner = client.FieldOwner("jobset")
	reporter   = "jobset"
)

// Options configure the controllers of JobSets.
type Options struct {
	Plan plan.Config
	// Workers is the number of concurrent reconciles. A large JobSet occupies one worker only.
	Workers int
	// QPS and Burst limit the requests about JobSets, apart from other requests of the manager. QPS 0 shares the manager's client.
	QPS   float32
	Burst int
	// Pods is from NewPods.
	Pods cache.Cache
	// Active is closed when JobSets may be acted upon; nil is at once.
	Active <-chan struct{}
	// Patience is how long the API server may refuse objects of a JobSet with quota before the JobSet fails; 0 is
	// reconcile.Patience.
	Patience time.Duration
	// Now is the clock.
	Now func() time.Time
}

// Setup adds the controllers to the manager.
func Setup(mgr ctrl.Manager, o Options) error {
	c, err := newClient(mgr, o)
	if err != nil {
		return err
	}
	m, err := registerMetrics()
	if err != nil {
		return err
	}
	r := &reconciler{
		plan: o.Plan, client: c, live: mgr.GetAPIReader(), jobs: newJobs(), pods: o.Pods, now: o.Now,
		recorder: mgr.GetEventRecorder(reporter), metrics: m, written: newWritten(o.Now), turns: newTurns(),
		refusals: reconcile.NewRefusals(o.Patience, o.Now),
	}
	if err := r.setup(mgr, o); err != nil {
		return err
	}
	repair := &repairer{client: c, pods: o.Pods, turns: r.turns, now: o.Now}
	return repair.setup(mgr, o)
}

// newClient returns the client for writes. It reads from the cache of the manager.
func newClient(mgr ctrl.Manager, o Options) (client.Client, error) {
	c := mgr.GetClient()
	if o.QPS != 0 {
		cfg := rest.CopyConfig(mgr.GetConfig())
		cfg.QPS, cfg.Burst, cfg.RateLimiter = o.QPS, o.Burst, nil
		own, err := client.New(cfg, client.Options{
			HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), Cache: &client.CacheOptions{Reader: mgr.GetCache()},
		})
		if err != nil {
			return nil, err
		}
		c = own
	}
	return client.WithFieldOwner(c, string(fieldOwner)), nil
}

// jobSetOf returns the reference to the JobSet that controls an object, or nil.
func jobSetOf(o client.Object) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil || ref.APIVersion != jobsetv1alpha2.GroupVersion.String() || ref.Kind != jobsetv1alpha2.KindJobSet {
		return nil
	}
	return ref
}

// byService is the index of JobSets by the name of their Service.
const byService = "jobset.service"

// usersOf returns the JobSets that need a Service, which another user may have made.
func (r *reconciler) usersOf(ctx context.Context, service client.Object) []ctrlreconcile.Request {
	return reconcile.Matching(ctx, r.client, &jobsetv1alpha2.JobSetList{}, "JobSets", func(*jobsetv1alpha2.JobSet) bool { return true },
		client.InNamespace(service.GetNamespace()), client.MatchingFields{byService: service.GetName()})
}

func (r *reconciler) setup(mgr ctrl.Manager, o Options) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &jobsetv1alpha2.JobSet{}, byService, func(o client.Object) []string {
		if js := o.(*jobsetv1alpha2.JobSet); plan.HasService(js) {
			return []string{plan.ServiceName(js)}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing JobSets: %w", err)
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named(reporter).
		For(&jobsetv1alpha2.JobSet{}).
		Watches(&batchv1.Job{}, r.jobHandler()).
		Owns(&corev1.Service{}, builder.OnlyMetadata, builder.WithPredicates(predicate.Funcs{
			DeleteFunc: func(event.DeleteEvent) bool { return false }, // usersOf has the owner as well
		})).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.usersOf), builder.OnlyMetadata, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
		})).
		WithOptions(reconcile.ControllerOptions(o.Workers))
	if o.Plan.InPlaceRestart {
		b = b.WatchesRawSource(source.Kind(o.Pods, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, pod *corev1.Pod) []ctrlreconcile.Request {
			return []ctrlreconcile.Request{request(pod.Namespace, pod.Labels[jobsetv1alpha2.JobSetNameKey])}
		})))
	}
	return b.Complete(whenActive(o.Active, r))
}

// whenActive delays a reconciler until a channel is closed.
func whenActive(active <-chan struct{}, r ctrlreconcile.Reconciler) ctrlreconcile.Reconciler {
	if active == nil {
		return r
	}
	return ctrlreconcile.Func(func(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
		select {
		case <-active:
			return r.Reconcile(ctx, req)
		case <-ctx.Done():
			return ctrlreconcile.Result{}, nil
		}
	})
}

func request(namespace, name string) ctrlreconcile.Request {
	return ctrlreconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}
}

// jobHandler requeues a JobSet when one of its Jobs changes: at once if it is small, else after a delay that combines
// changes.
func (r *reconciler) jobHandler() handler.EventHandler {
	add := func(o client.Object, q workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]) {
		ref := jobSetOf(o)
		if ref == nil {
			return
		}
		q.AddAfter(request(o.GetNamespace(), ref.Name), pause(o))
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]) {
			r.jobs.put(e.Object)
			r.written.seen(e.Object)
			add(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() { // the watch missed a deletion
				r.jobs.remove(e.ObjectOld)
				r.written.gone(e.ObjectOld)
			}
			if was, is := jobSetOf(e.ObjectOld), jobSetOf(e.ObjectNew); was != nil && (is == nil || is.UID != was.UID) {
				r.jobs.remove(e.ObjectOld)
				add(e.ObjectOld, q)
			}
			r.jobs.put(e.ObjectNew)
			r.written.seen(e.ObjectNew)
			add(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]) {
			r.jobs.remove(e.Object)
			r.written.gone(e.Object)
			add(e.Object, q)
		},
	}
}

// Changes of the Jobs of a JobSet are combined over a time that grows with their number.
const (
	smallJobSet = 50
	pausePerJob = 200 * time.Microsecond
	maxPause    = 500 * time.Millisecond
)

func pause(job client.Object) time.Duration {
	n, err := strconv.Atoi(job.GetLabels()[jobsetv1alpha2.GlobalReplicasKey])
	if err != nil || n < smallJobSet {
		return 0
	}
	return min(time.Duration(n)*pausePerJob, maxPause)
}
