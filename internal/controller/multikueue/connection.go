package multikueue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Limits of the calls to one worker.
const (
	callTimeout  = 30 * time.Second
	callsAtOnce  = 8
	slow         = 2 * time.Second // a call that takes longer keeps others from being made
	maxFailures  = 5               // calls in a row that end the connection
	firstWatch   = time.Minute     // limit for opening a watch; doubles with each failed attempt
	lastWatch    = 10 * time.Minute
	firstRewatch = 5 * time.Second // between attempts to watch a kind that the worker lacks
	lastRewatch  = 320 * time.Second
)

var workloadKind = kueue.GroupVersion.WithKind("Workload")

// connection is the use of one worker with one set of credentials, from the first list until a watch ends.
type connection struct {
	*shared
	name   string
	client client.WithWatch
	stores map[schema.GroupVersionKind]*store
	uid    string // of the worker's kube-system; empty if it may not be read
	lost   func(*connection, error)

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{}
	failed atomic.Int32
	late   atomic.Bool // a caller did not wait for its answer
	// foreign says that something there bears the stamp of another manager with our origin.
	foreign atomic.Bool

	mu    sync.Mutex
	lacks map[schema.GroupVersionKind]string // kinds that are not served or may not be read, and the reason
	calls map[int64]time.Time
	next  int64
}

// connect makes a connection and waits until everything is watched that can be.
func (m *shared) connect(ctx context.Context, name string, cfg *rest.Config, attempt int, lost func(*connection, error)) (*connection, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst, cfg.UserAgent = m.QPS, m.Burst, "berth-multikueue"
	if m.QPS > 0 {
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(m.QPS, m.Burst)
	}
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.AddSpecific(workloadKind, kueue.GroupVersion.WithResource("workloads"), kueue.GroupVersion.WithResource("workload"), apimeta.RESTScopeNamespace)
	namespaces := schema.GroupVersion{Version: "v1"}
	mapper.AddSpecific(namespaces.WithKind("Namespace"), namespaces.WithResource("namespaces"), namespaces.WithResource("namespace"), apimeta.RESTScopeRoot)
	c := &connection{
		shared: m, name: name, stores: map[schema.GroupVersionKind]*store{}, lost: lost, slots: make(chan struct{}, callsAtOnce),
		lacks: map[schema.GroupVersionKind]string{}, calls: map[int64]time.Time{},
	}
	c.stores[workloadKind] = &store{
		gvk: workloadKind, newItem: func() client.Object { return &kueue.Workload{} }, newList: func() client.ObjectList { return &kueue.WorkloadList{} },
	}
	for gvk, d := range m.kinds {
		if f := m.Plan.External[gvk]; f != nil && f.NoJob {
			continue
		}
		resource := gvk.GroupVersion().WithResource(d.Resource)
		mapper.AddSpecific(gvk, resource, resource, apimeta.RESTScopeNamespace)
		c.stores[gvk] = &store{gvk: gvk, newItem: func() client.Object { return d.New() }, newList: func() client.ObjectList { return d.NewList().(client.ObjectList) }}
	}
	var err error
	if c.client, err = client.NewWithWatch(cfg, client.Options{Scheme: m.scheme, Mapper: mapper}); err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	limit := min(firstWatch<<min(attempt, 5), lastWatch)
	if err := c.open(ctx, limit); err != nil {
		c.close()
		return nil, err
	}
	c.identify(ctx)
	return c, nil
}

// open opens all watches, and then begins to follow them.
func (c *connection) open(ctx context.Context, limit time.Duration) error {
	type opened struct {
		s      *store
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
		case reason != "" && r.s.gvk != workloadKind && c.Degraded:
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

// missing is why a kind cannot be used on a worker, empty if it is not its absence.
func missing(err error) string {
	switch {
	case apimeta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return kueue.ReasonMissingCRD
	case apierrors.IsForbidden(err):
		return kueue.ReasonForbidden
	}
	return ""
}

// watch lists a kind and opens a watch from there. The stream ends with the connection.
func (c *connection) watch(ctx context.Context, s *store, limit time.Duration) (watch.Interface, error) {
	listing, done := context.WithTimeout(ctx, min(limit, callTimeout))
	defer done()
	list := s.newList()
	ours, err := c.origins()
	if err != nil {
		return nil, err
	}
	if err := c.client.List(listing, list, ours); err != nil {
		return nil, err
	}
	var items []client.Object
	err = apimeta.EachListItem(list, func(o runtime.Object) error {
		item := o.(client.Object).DeepCopyObject().(client.Object)
		item.SetManagedFields(nil)
		items = append(items, item)
		return nil
	})
	if err != nil {
		return nil, err
	}
	opening, stop := context.WithCancel(c.ctx)
	timer := time.AfterFunc(limit, stop)
	stream, err := c.client.Watch(opening, s.newList(), ours, &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), AllowWatchBookmarks: true},
	})
	if !timer.Stop() && err == nil {
		stream.Stop()
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
	return stream, nil
}

// origins selects what has our origin, or one that it had.
func (c *connection) origins() (client.MatchingLabelsSelector, error) {
	one, err := labels.NewRequirement(kueue.MultiKueueOriginLabel, selection.In, append([]string{c.Plan.Origin}, c.Plan.PreviousOrigins...))
	if err != nil {
		return client.MatchingLabelsSelector{}, err
	}
	return client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*one)}, nil
}

// follow takes the events of a watch until it ends. The end of that of Workloads is the end of the connection; other kinds are
// watched again, also those that were missing.
func (c *connection) follow(s *store, stream watch.Interface) {
	pause := firstRewatch
	for {
		if stream != nil {
			c.consume(s, stream)
			if c.ctx.Err() != nil {
				return
			}
			if s.gvk == workloadKind {
				c.lost(c, errors.New("the watch of Workloads ended"))
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

func (c *connection) consume(s *store, stream watch.Interface) {
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
				if o, ok := e.Object.(client.Object); ok {
					s.event(e.Type, o)
					c.changed(o)
				}
			}
		}
	}
}

// changed has the Workload looked at that an object belongs to, if it is here.
func (c *connection) changed(o client.Object) {
	if c.Plan.Foreign(o) {
		if !c.foreign.Swap(true) {
			c.touch(c.name)
		}
		return
	}
	key := client.ObjectKeyFromObject(o)
	if _, ok := o.(*kueue.Workload); !ok {
		key.Name = c.Plan.WorkloadOf(o)
	}
	if key.Name != "" && c.cache.Get(c.ctx, key, &kueue.Workload{}, client.UnsafeDisableDeepCopy) == nil {
		c.wake(key, settle)
	}
}

// identify learns which cluster this is, if that may be read.
func (c *connection) identify(ctx context.Context) {
	ctx, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	var ns metav1.PartialObjectMetadata
	ns.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if err := c.client.Get(ctx, client.ObjectKey{Name: system}, &ns); err == nil {
		c.uid = string(ns.UID)
	}
}

func (c *connection) setLack(gvk schema.GroupVersionKind, reason string) {
	c.mu.Lock()
	was := c.lacks[gvk]
	if reason == "" {
		delete(c.lacks, gvk)
	} else {
		c.lacks[gvk] = reason
	}
	c.mu.Unlock()
	if was != reason {
		c.touch(c.name)
	}
}

// lack is why a kind cannot be used there, empty if it can.
func (c *connection) lack(gvk schema.GroupVersionKind) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lacks[gvk]
}

// stuckSince is when the oldest call began that has been going on for too long, zero if there is none: until it ends the worker counts
// as one that cannot be reached.
func (c *connection) stuckSince() time.Time {
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

var errStuck = errors.New("the cluster does not answer")

// call makes one call, within the limits. The caller does not wait for a worker that does not answer soon: the call goes on without it,
// and what it returns is lost, so do must not touch anything that is used after an error. Calls that fail again and again end the
// connection, and so does one that the credentials are not good for any more.
func (c *connection) call(ctx context.Context, do func(context.Context, client.Client) error) error {
	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		return errStuck
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(slow):
		return errStuck
	}
	if !c.stuckSince().IsZero() {
		<-c.slots
		return errStuck
	}
	id := c.begin()
	result := make(chan error, 1)
	go func() {
		calling, done := context.WithTimeout(c.ctx, callTimeout)
		err := do(calling, c.client)
		done()
		c.end(id, err)
		<-c.slots
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(slow):
		c.wakeLater()
		return errStuck
	}
}

func (c *connection) begin() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	c.calls[c.next] = time.Now()
	return c.next
}

// end counts failures in a row.
func (c *connection) end(id int64, err error) {
	c.mu.Lock()
	delete(c.calls, id)
	free := len(c.calls) == 0
	c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
	case err == nil, answered(err):
		c.failed.Store(0)
		if free && c.late.Swap(false) {
			c.wakeUsers(c.ctx, c.name)
		}
	case apierrors.IsUnauthorized(err), c.failed.Add(1) >= maxFailures:
		c.lost(c, err)
	}
}

// wakeLater has the Workloads looked at once the worker answers again.
func (c *connection) wakeLater() { c.late.Store(true) }

// answered says whether an error is the worker's answer, and not the want of one.
func answered(err error) bool {
	if apierrors.IsUnauthorized(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) {
		return false
	}
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// close ends everything and waits for it.
func (c *connection) close() {
	c.cancel()
	c.wg.Wait()
}
