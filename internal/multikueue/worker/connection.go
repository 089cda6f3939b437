package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/inflight"
)

const (
	callTimeout  = 30 * time.Second
	callsAtOnce  = 8
	slow         = 2 * time.Second // a longer call blocks new ones
	maxFailures  = 5               // in a row; they end the connection
	firstWatch   = time.Minute     // limit for listing a kind and opening its watch; doubles with each failed attempt
	lastWatch    = 10 * time.Minute
	firstRewatch = 5 * time.Second // between attempts to watch a kind that is not served
	lastRewatch  = 320 * time.Second
)

// The kinds of queueing in a worker cluster.
var (
	WorkloadKind     = kueue.GroupVersion.WithKind("Workload")
	ClusterQueueKind = kueue.GroupVersion.WithKind("ClusterQueue")
	LocalQueueKind   = kueue.GroupVersion.WithKind("LocalQueue")
)

// Connection is the connection to one worker cluster with one set of credentials, until it is lost.
type Connection struct {
	fleet  *Fleet
	name   string
	client client.WithWatch
	stores map[schema.GroupVersionKind]*Store
	uid    string // UID of its kube-system namespace, empty if that may not be read
	lost   func(*Connection, error)

	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	slots  chan struct{}
	failed atomic.Int32
	// foreign is whether objects of another manager have our origin.
	foreign atomic.Bool

	mu    sync.Mutex
	lacks map[schema.GroupVersionKind]string // the reasons why kinds are not served or may not be read
	// denied are verbs that the credentials may not use on jobs of a readable kind.
	denied map[schema.GroupVersionKind][]string
	// appeared has an entry when a kind has become available.
	appeared chan struct{}
	calls    map[int64]time.Time
	next     int64
	// reported is when it was last reported that calls end again; reporting: it will be once more.
	reported  time.Time
	reporting bool
}

// connect connects and waits, for limit at most, until every available kind is watched.
func (f *Fleet) connect(ctx context.Context, name string, cfg *rest.Config, limit time.Duration, lost func(*Connection, error)) (*Connection, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.RateLimiter, cfg.UserAgent = f.Limit.Same(), "berth-multikueue"
	cfg.Wrap(inflight.BoundAnswers(maxAnswer, "the worker"))
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.AddSpecific(WorkloadKind, kueue.GroupVersion.WithResource("workloads"), kueue.GroupVersion.WithResource("workload"), apimeta.RESTScopeNamespace)
	namespaces := schema.GroupVersion{Version: "v1"}
	mapper.AddSpecific(namespaces.WithKind("Namespace"), namespaces.WithResource("namespaces"), namespaces.WithResource("namespace"), apimeta.RESTScopeRoot)
	c := &Connection{
		fleet: f, name: name, stores: map[schema.GroupVersionKind]*Store{}, lost: lost, slots: make(chan struct{}, callsAtOnce),
		lacks: map[schema.GroupVersionKind]string{}, denied: map[schema.GroupVersionKind][]string{}, appeared: make(chan struct{}, 1), calls: map[int64]time.Time{},
	}
	reviews := authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")
	mapper.AddSpecific(reviewKind, reviews, reviews, apimeta.RESTScopeRoot)
	c.stores[WorkloadKind] = &Store{
		gvk: WorkloadKind, newList: func() client.ObjectList { return &kueue.WorkloadList{} }, compact: f.compact,
	}
	if f.Queues {
		for gvk, scope := range map[schema.GroupVersionKind]apimeta.RESTScope{ClusterQueueKind: apimeta.RESTScopeRoot, LocalQueueKind: apimeta.RESTScopeNamespace} {
			resource := kueue.GroupVersion.WithResource(strings.ToLower(gvk.Kind) + "s")
			mapper.AddSpecific(gvk, resource, resource, scope)
		}
		c.stores[ClusterQueueKind] = &Store{
			gvk: ClusterQueueKind, queues: true,
			newList: func() client.ObjectList { return &kueue.ClusterQueueList{} },
		}
		c.stores[LocalQueueKind] = &Store{
			gvk: LocalQueueKind, queues: true,
			newList: func() client.ObjectList { return &kueue.LocalQueueList{} },
		}
	}
	for gvk, d := range f.Kinds {
		if framework := f.Plan.External[gvk]; framework != nil && framework.NoJob {
			continue
		}
		resource := gvk.GroupVersion().WithResource(d.Resource)
		mapper.AddSpecific(gvk, resource, resource, apimeta.RESTScopeNamespace)
		c.stores[gvk] = &Store{gvk: gvk, newList: func() client.ObjectList { return d.NewList().(client.ObjectList) }}
		if d.Groups != nil {
			c.stores[gvk].workload = func(o client.Object) string { return f.Plan.WorkloadOf(o) }
		}
	}
	var err error
	if c.client, err = client.NewWithWatch(cfg, client.Options{Scheme: f.scheme, Mapper: mapper}); err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	for gvk, s := range c.stores {
		s.mutations = cache.NewCacheMutationDetector(fmt.Sprintf("of %s on worker %s", gvk.Kind, name))
		c.wg.Go(func() { s.mutations.Run(c.ctx.Done()) })
	}
	if err := c.open(ctx, limit); err != nil {
		c.close()
		return nil, err
	}
	c.identify(limit)
	if f.Degraded {
		c.wg.Go(c.reviewAccess)
	}
	return c, nil
}

func (c *Connection) open(ctx context.Context, limit time.Duration) error {
	type opened struct {
		s      *Store
		stream watch.Interface
		err    error
	}
	results := make(chan opened, len(c.stores))
	for _, s := range c.stores {
		go func() {
			stream, err := c.watch(ctx, s, limit)
			results <- opened{s, stream, err}
		}()
	}
	var errs []error
	var streams []opened
	for range c.stores {
		r := <-results
		switch reason := missing(r.err); {
		case r.err == nil:
			streams = append(streams, r)
		case reason != "" && r.s.gvk != WorkloadKind && (c.fleet.Degraded || r.s.queues):
			c.setLack(r.s.gvk, reason)
			streams = append(streams, r)
		default:
			errs = append(errs, fmt.Errorf("watching %s: %w", r.s.gvk.Kind, r.err))
		}
	}
	if len(errs) > 0 {
		for _, r := range streams {
			if r.stream != nil {
				r.stream.Stop()
			}
		}
		return errors.Join(errs...)
	}
	for _, r := range streams {
		c.wg.Go(func() { c.follow(r.s, r.stream) })
	}
	return nil
}

// missing returns why a kind is not available, empty for errors other than its absence.
func missing(err error) string {
	switch {
	case apimeta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return kueue.ReasonMissingCRD
	case apierrors.IsForbidden(err):
		return kueue.ReasonForbidden
	}
	return ""
}

// cancelled is a stream whose end also releases the context of its request.
type cancelled struct {
	watch.Interface
	cancel context.CancelFunc
}

func (s cancelled) Stop() {
	s.Interface.Stop()
	s.cancel()
}

// watch lists a kind and opens a watch from there. The stream ends with the connection.
func (c *Connection) watch(ctx context.Context, s *Store, limit time.Duration) (watch.Interface, error) {
	began := time.Now()
	listing, done := context.WithTimeout(ctx, min(limit, callTimeout))
	defer done()
	ours := client.MatchingLabelsSelector{Selector: labels.Everything()}
	if !s.queues {
		var err error
		if ours, err = c.origins(); err != nil {
			return nil, err
		}
	}
	items, version, err := c.list(listing, s, ours)
	if err != nil {
		return nil, err
	}
	opening, stop := context.WithCancel(c.ctx)
	timer := time.AfterFunc(limit-time.Since(began), stop)
	stream, err := c.client.Watch(opening, s.newList(), ours, &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true},
	})
	if !timer.Stop() {
		if err == nil {
			stream.Stop()
		}
		err = fmt.Errorf("opening the watch took longer than %s", limit)
	}
	if err != nil {
		stop()
		return nil, err
	}
	for _, o := range s.replace(items) {
		c.changed(o)
	}
	for _, o := range items {
		c.changed(o)
	}
	return cancelled{stream, stop}, nil
}

// list reads a kind page by page, since the cluster may have any number of objects of any size. version is where to start the watch.
func (c *Connection) list(ctx context.Context, s *Store, ours client.ListOption) (items []client.Object, version string, err error) {
	for next := ""; ; {
		page := s.newList()
		if err := c.client.List(ctx, page, ours, client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, "", err
		}
		err := apimeta.EachListItem(page, func(o runtime.Object) error {
			item := o.(client.Object).DeepCopyObject().(client.Object)
			s.trim(item)
			items = append(items, item)
			return nil
		})
		if err != nil {
			return nil, "", err
		}
		if len(items) > maxKept {
			return nil, "", s.tooMany()
		}
		if next = page.GetContinue(); next == "" {
			return items, page.GetResourceVersion(), nil
		}
	}
}

func (c *Connection) origins() (client.MatchingLabelsSelector, error) {
	one, err := labels.NewRequirement(kueue.MultiKueueOriginLabel, selection.In, append([]string{c.fleet.Plan.Origin}, c.fleet.Plan.PreviousOrigins...))
	if err != nil {
		return client.MatchingLabelsSelector{}, err
	}
	return client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*one)}, nil
}

// follow consumes a watch until it ends. The end of the watch of Workloads ends the connection, and so does the end of a watch of jobs if
// every kind must be served. Other watches are opened again, also of kinds that were not served.
func (c *Connection) follow(s *Store, stream watch.Interface) {
	pause := firstRewatch
	for {
		if stream != nil {
			c.consume(s, stream)
			if c.ctx.Err() != nil {
				return
			}
			if s.gvk == WorkloadKind || (!c.fleet.Degraded && !s.queues) {
				c.lost(c, fmt.Errorf("the watch of %s ended", s.gvk.Kind))
				return
			}
			pause = firstRewatch
		} else {
			select {
			case <-c.ctx.Done():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, lastRewatch)
		}
		var err error
		stream, err = c.watch(c.ctx, s, firstWatch)
		if err != nil {
			stream = nil
			reason := missing(err)
			if reason == "" {
				ctrl.Log.WithName("multikueue").V(1).Info("A kind cannot be watched", "cluster", c.name, "kind", s.gvk.Kind, "err", err.Error())
				continue
			}
			c.setLack(s.gvk, reason)
			continue
		}
		c.setLack(s.gvk, "")
	}
}

func (c *Connection) consume(s *Store, stream watch.Interface) {
	defer stream.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case e, ok := <-stream.ResultChan():
			if !ok {
				return
			}
			switch e.Type {
			case watch.Bookmark:
			case watch.Error:
				ctrl.Log.WithName("multikueue").V(1).Info("A watch failed", "cluster", c.name, "kind", s.gvk.Kind, "err", apierrors.FromObject(e.Object).Error())
				return
			default:
				o, ok := e.Object.(client.Object)
				if !ok {
					continue
				}
				if e.Type == watch.Added && s.full() {
					c.lost(c, s.tooMany())
					return
				}
				s.event(e.Type, o)
				c.changed(o)
			}
		}
	}
}

// changed reports an object that was added, changed or deleted. Objects of another manager with our origin also mark the connection as
// contested; a Workload of the same name waits until they are deleted.
func (c *Connection) changed(o client.Object) {
	c.fleet.ObjectChanged(o)
	if c.fleet.Plan.Foreign(o) && !c.foreign.Swap(true) {
		c.fleet.requeue(c.name)
	}
}

// announce reports every object. Workloads whose configuration no longer names the cluster are only found this way.
func (c *Connection) announce() {
	for _, kept := range c.stores {
		if !kept.queues {
			kept.Each(func(_ types.NamespacedName, o client.Object) { c.changed(o) })
		}
	}
}

// Contested reports whether objects of another manager have our origin, and updates the status of the cluster if that changed.
func (c *Connection) Contested() bool {
	found := false
	for _, kept := range c.stores {
		kept.Each(func(_ types.NamespacedName, o client.Object) { found = found || c.fleet.Plan.Foreign(o) })
	}
	if c.foreign.Swap(found) != found {
		c.fleet.requeue(c.name)
	}
	return found
}

func (c *Connection) identify(limit time.Duration) {
	ctx, done := context.WithTimeout(c.ctx, min(limit, callTimeout))
	defer done()
	var ns metav1.PartialObjectMetadata
	ns.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if err := c.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &ns); err == nil {
		c.uid = string(ns.UID)
	}
}

func (c *Connection) setLack(gvk schema.GroupVersionKind, reason string) {
	c.mu.Lock()
	was := c.lacks[gvk]
	if reason == "" {
		delete(c.lacks, gvk)
	} else {
		c.lacks[gvk] = reason
	}
	c.mu.Unlock()
	if was == reason {
		return
	}
	if reason == "" {
		select {
		case c.appeared <- struct{}{}:
		default:
		}
	}
	c.fleet.requeue(c.name)
	c.fleet.ClusterChanged(c.ctx, c.name, false)
}

// Lack returns why a kind is not available, empty if it is.
func (c *Connection) Lack(gvk schema.GroupVersionKind) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lacks[gvk] == "" && c.fleet.keepAway(gvk, c.denied[gvk]) {
		return kueue.ReasonForbidden
	}
	return c.lacks[gvk]
}

// stuckSince returns when the oldest call that takes too long began, zero for none. The cluster counts as unreachable until that call
// ends.
func (c *Connection) stuckSince() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	var oldest time.Time
	for _, began := range c.calls {
		if time.Since(began) > slow && (oldest.IsZero() || began.Before(oldest)) {
			oldest = began
		}
	}
	return oldest
}

// ErrStuck is the error of calls without an early answer, and of later calls that are not made because of them.
var ErrStuck = errors.New("the cluster does not answer")

// Name returns the name of the MultiKueueCluster.
func (c *Connection) Name() string { return c.name }

// Store returns the objects of a kind; nil if the kind is not watched because an external controller runs its jobs.
func (c *Connection) Store(gvk schema.GroupVersionKind) *Store { return c.stores[gvk] }

// JobKinds returns the watched kinds of jobs, sorted.
func (c *Connection) JobKinds() []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	for gvk, kept := range c.stores {
		if gvk != WorkloadKind && !kept.queues {
			out = append(out, gvk)
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// Create creates one object. Once the request is sent the object counts as being created until there is an answer, or for as long as the
// request may still be carried out. created is called when the object exists, also if Create has returned ErrStuck since.
func (c *Connection) Create(ctx context.Context, gvk schema.GroupVersionKind, o client.Object, created func() error) error {
	into, key := c.stores[gvk], client.ObjectKeyFromObject(o)
	return c.Call(ctx, func(ctx context.Context, cl client.Client) error {
		into.setCreating(key, true)
		err := cl.Create(ctx, o)
		if err == nil {
			err = created()
		}
		if err == nil || rejected(err) {
			into.setCreating(key, false)
		}
		return err
	})
}

// Delete deletes one object, with a precondition on its UID. Once the request is sent the object counts as being deleted, also without an
// answer, since the request may still be carried out.
func (c *Connection) Delete(ctx context.Context, gvk schema.GroupVersionKind, o client.Object) error {
	from, uid := c.stores[gvk], o.GetUID()
	return c.Call(ctx, func(ctx context.Context, cl client.Client) error {
		from.setDeleting(o, true)
		err := cl.Delete(ctx, o.DeepCopyObject().(client.Object), client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		switch err = client.IgnoreNotFound(err); {
		case err == nil && len(o.GetFinalizers()) == 0:
			from.drop(o)
		case err != nil && answered(err):
			from.setDeleting(o, false)
		}
		return err
	})
}

// close ends all calls and watches, and waits for them, except for hanging calls.
func (c *Connection) close() {
	c.cancel(nil)
	ended := make(chan struct{})
	go func() {
		c.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(slow):
	}
}
