// Package warn reports objects whose queue label has no effect: their kind is not listed in the configuration, or their namespace
// is not managed. Each gets one event.
//
//	kinds that are queued     the manager's own cache ──┐
//	                                                    ├─► ignored? ─► one event, of a fixed name
//	other kinds, labelled     a cache of metadata ──────┘
//
// The objects are read and never written, so that the hard gate holds (spec: 30 §4.2.5); the event is the exception that a
// label asks for.
package warn

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

const (
	// reporter is the reporting controller of the events.
	reporter = "berth-queue-labels"
	maxNote  = 1024
	maxName  = 200 // of the object, in the name of its event
)

// The rate of events: a namespace full of labels must not overload the API server. Events are delayed, not dropped.
const (
	eventsPerSecond = 10
	eventsBurst     = 100
)

// Options configure the controller.
type Options struct {
	// Config has the kinds that are queued, and their namespaces.
	Config *job.Config
	// Descriptors are all known kinds, queued or not.
	Descriptors []*job.Descriptor
	// Now is the clock.
	Now func() time.Time
}

// request is an object of a kind.
type request struct {
	kind schema.GroupVersionKind
	types.NamespacedName
}

// watched is a kind whose objects are watched.
type watched struct {
	d     *job.Descriptor
	cache cache.Cache
	// new returns an empty object, and list an empty list, as the cache has them.
	new  func() client.Object
	list func() client.ObjectList
}

type reconciler struct {
	o          Options
	client     client.Client
	namespaces client.Reader
	limiter    *rate.Limiter
	instance   string

	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]*watched // the served kinds
	noted map[request]string                   // UID and sentence of the last event
}

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Setup adds the controller to the manager. It watches each kind once the API server serves it.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	labelled, err := labelledObjects(mgr)
	if err != nil {
		return err
	}
	r := &reconciler{
		o: o, client: mgr.GetClient(), namespaces: mgr.GetCache(), limiter: rate.NewLimiter(eventsPerSecond, eventsBurst), instance: instance(),
		kinds: map[schema.GroupVersionKind]*watched{}, noted: map[request]string{},
	}
	c, err := controller.NewTyped(reporter, mgr, controller.TypedOptions[request]{
		Reconciler:  r,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[request](time.Second, time.Minute),
	})
	if err != nil {
		return fmt.Errorf("queue labels: %w", err)
	}
	if err := c.Watch(source.TypedKind(mgr.GetCache(), client.Object(&corev1.Namespace{}), r.ofNamespace())); err != nil {
		return fmt.Errorf("queue labels: %w", err)
	}
	late := lookup.NewLatecomers(mgr, mgr.GetLogger().WithName(reporter))
	for _, d := range o.Descriptors {
		w := kindIn(mgr.GetCache(), labelled, o.Config, d)
		start := func(context.Context) error {
			r.mu.Lock()
			r.kinds[d.GVK] = w
			r.mu.Unlock()
			return c.Watch(source.TypedKind(w.cache, w.new(), r.ofKind(d)))
		}
		if err := late.StartOrWait(ctx, d, start); err != nil {
			return fmt.Errorf("queue labels of %s: %w", d.Framework, err)
		}
	}
	return late.Setup(ctx)
}

// kindIn selects the cache of a kind: the manager's if the integration of the kind fills it anyway, else the metadata cache.
func kindIn(own, labelled cache.Cache, cfg *job.Config, d *job.Descriptor) *watched {
	if cfg.Queues(d) && !d.Serving {
		return &watched{
			d: d, cache: own, new: func() client.Object { return d.New() }, list: func() client.ObjectList { return d.NewList().(client.ObjectList) },
		}
	}
	return &watched{
		d: d, cache: labelled,
		new: func() client.Object {
			o := &metav1.PartialObjectMetadata{}
			o.SetGroupVersionKind(d.GVK)
			return o
		},
		list: func() client.ObjectList {
			l := &metav1.PartialObjectMetadataList{}
			l.SetGroupVersionKind(d.GVK.GroupVersion().WithKind(d.GVK.Kind + "List"))
			return l
		},
	}
}

// filled is a cache that the manager starts with its own.
type filled struct{ cache.Cache }

// GetCache makes the manager start the cache before the controllers.
func (f filled) GetCache() cache.Cache { return f.Cache }

// labelledObjects returns a cache of the metadata of objects with a queue label.
func labelledObjects(mgr ctrl.Manager) (cache.Cache, error) {
	named, err := labels.NewRequirement(kueue.QueueNameLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("queue labels: %w", err)
	}
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultLabelSelector: labels.NewSelector().Add(*named), DefaultTransform: trim,
	})
	if err != nil {
		return nil, fmt.Errorf("queue labels: %w", err)
	}
	return c, mgr.Add(filled{c})
}

// trim removes metadata that is not read here.
func trim(object any) (any, error) {
	o, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	return &metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion, DeletionTimestamp: o.DeletionTimestamp,
		OwnerReferences: o.OwnerReferences, Labels: map[string]string{kueue.QueueNameLabel: o.Labels[kueue.QueueNameLabel]},
	}}, nil
}

type queue = workqueue.TypedRateLimitingInterface[request]

// ofKind enqueues the objects of a kind whose label is ignored, or was. An object of a managed namespace costs one lookup.
func (r *reconciler) ofKind(d *job.Descriptor) handler.TypedEventHandler[client.Object, request] {
	add := func(ctx context.Context, o client.Object, q queue) {
		if why, err := r.ignored(ctx, d, o); why != "" || err != nil || r.knows(requestOf(d, o)) {
			q.Add(requestOf(d, o))
		}
	}
	return handler.TypedFuncs[client.Object, request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[client.Object], q queue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[client.Object], q queue) { add(ctx, e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], q queue) {
			if r.knows(requestOf(d, e.Object)) {
				q.Add(requestOf(d, e.Object))
			}
		},
	}
}

func requestOf(d *job.Descriptor, o client.Object) request {
	return request{d.GVK, client.ObjectKeyFromObject(o)}
}

func (r *reconciler) knows(req request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.noted[req] != ""
}

// ofNamespace enqueues the labelled objects of a namespace whose labels changed, or which is new: the cache may have an object before its
// namespace.
func (r *reconciler) ofNamespace() handler.TypedEventHandler[client.Object, request] {
	add := func(ctx context.Context, namespace string, q queue) {
		for _, w := range r.watched() {
			list := w.list()
			if err := w.cache.List(ctx, list, client.InNamespace(namespace), client.HasLabels{kueue.QueueNameLabel}); err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "Objects with a queue label cannot be listed", "kind", w.d.GVK.Kind)
				continue
			}
			_ = apimeta.EachListItem(list, func(o runtime.Object) error {
				q.Add(requestOf(w.d, o.(client.Object)))
				return nil
			})
		}
	}
	return handler.TypedFuncs[client.Object, request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[client.Object], q queue) {
			if !e.IsInInitialList { // which the objects wait for
				add(ctx, e.Object.GetName(), q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[client.Object], q queue) {
			if !labels.Equals(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) {
				add(ctx, e.ObjectNew.GetName(), q)
			}
		},
	}
}

func (r *reconciler) watched() (out []*watched) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.kinds {
		out = append(out, w)
	}
	return out
}

// ignored returns why the label of an object is ignored; empty if it is not.
func (r *reconciler) ignored(ctx context.Context, d *job.Descriptor, o client.Object) (string, error) {
	if job.QueueName(o) == "" {
		return "", nil
	}
	var ns corev1.Namespace
	if err := r.namespaces.Get(ctx, client.ObjectKey{Name: o.GetNamespace()}, &ns); err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", o.GetNamespace(), err)
	}
	return job.IgnoredQueue(r.o.Config, d, ns.Labels, o), nil
}

// Reconcile creates the event about one object, unless an equal one exists.
func (r *reconciler) Reconcile(ctx context.Context, req request) (ctrl.Result, error) {
	r.mu.Lock()
	w := r.kinds[req.kind]
	r.mu.Unlock()
	o := w.new()
	err := w.cache.Get(ctx, req.NamespacedName, o)
	if apierrors.IsNotFound(err) {
		r.remember(req, "")
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading %s %s: %w", req.kind.Kind, req.NamespacedName, err)
	}
	why, err := r.ignored(ctx, w.d, o)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // without its namespace: deleted with it, or enqueued again by ofNamespace
	}
	known := string(o.GetUID()) + why
	if why == "" {
		known = ""
	}
	if !r.remember(req, known) || why == "" {
		return ctrl.Result{}, nil
	}
	if err := r.limiter.Wait(ctx); err != nil {
		r.remember(req, "")
		return ctrl.Result{}, err
	}
	err = r.client.Create(ctx, r.eventAbout(req.kind, o, why))
	switch {
	case err == nil, apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil
	}
	r.remember(req, "")
	return ctrl.Result{}, fmt.Errorf("creating the event about %s %s: %w", req.kind.Kind, req.NamespacedName, err)
}

// remember records the last event of an object, and reports whether it is new; "" removes it.
func (r *reconciler) remember(req request, known string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.noted[req] == known {
		return false
	}
	if r.noted[req] = known; known == "" {
		delete(r.noted, req)
	}
	return true
}

// eventAbout returns an event whose name depends on the object and the sentence, so that a restarted manager does not repeat it.
func (r *reconciler) eventAbout(kind schema.GroupVersionKind, o client.Object, why string) *eventsv1.Event {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(string(o.GetUID()) + why)) // it never fails
	apiVersion, k := kind.ToAPIVersionAndKind()
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: fmt.Sprintf("%.*s.%x", maxName, o.GetName(), hash.Sum64())},
		EventTime:  metav1.NewMicroTime(r.o.Now()), ReportingController: reporter, ReportingInstance: r.instance,
		Type: corev1.EventTypeWarning, Reason: job.ReasonQueueLabelIgnored, Action: job.ReasonQueueLabelIgnored, Note: lifecycle.Cut(why, maxNote),
		Regarding: corev1.ObjectReference{
			APIVersion: apiVersion, Kind: k, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		},
	}
}

// instance names this process in its events.
func instance() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		return reporter
	}
	return fmt.Sprintf("%s-%.100s", reporter, host)
}
