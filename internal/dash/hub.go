package dash

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// topic is a kind of objects in views. Topics are bits of a set.
type topic uint

const (
	namespaces topic = 1 << iota
	workloads
	localQueues
	clusterQueues
	cohorts
	flavors
	pods
	events
	topologies
	places  // of nodes, and of workloads on them
	samples // of the use of quotas
)

// hub notifies views of changes. A notification does not say which object changed: views read again.
type hub struct {
	mu    sync.Mutex
	subs  map[*subscription]struct{}
	ended chan struct{}
	once  sync.Once
}

// subscription belongs to one view. changed holds one note at most, so a slow view delays no other.
type subscription struct {
	topics    topic
	namespace string // "" for all
	changed   chan struct{}
}

func newHub() *hub { return &hub{subs: map[*subscription]struct{}{}, ended: make(chan struct{})} }

// end closes all views.
func (h *hub) end() { h.once.Do(func() { close(h.ended) }) }

func (h *hub) subscribe(topics topic, namespace string) *subscription {
	s := &subscription{topics: topics, namespace: namespace, changed: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs[s] = struct{}{}
	return s
}

func (h *hub) leave(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
}

// wanted reports whether there is a view of a topic.
func (h *hub) wanted(t topic) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs { //berth:unordered any
		if s.topics&t != 0 {
			return true
		}
	}
	return false
}

// changed notifies the views of a topic in a namespace; the namespace of cluster-wide objects is "".
func (h *hub) changed(t topic, namespace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs { //berth:unordered all get the same notification
		if s.topics&t == 0 || s.namespace != "" && namespace != "" && s.namespace != namespace {
			continue
		}
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// follow notifies the hub of all changes in the caches.
func (s *Server) follow(ctx context.Context) error {
	for _, f := range []struct {
		cache  cache.Cache
		object client.Object
		topic  topic
	}{
		{s.cache, &corev1.Namespace{}, namespaces},
		{s.cache, &kueue.Workload{}, workloads},
		{s.cache, &kueue.LocalQueue{}, localQueues},
		{s.cache, &kueue.ClusterQueue{}, clusterQueues},
		{s.cache, &kueue.Cohort{}, cohorts},
		{s.cache, &kueue.ResourceFlavor{}, flavors},
		{s.cache, &kueue.Topology{}, topologies},
		{s.extra, &corev1.Pod{}, pods},
		{s.extra, &corev1.Event{}, events},
	} {
		informer, err := f.cache.GetInformer(ctx, f.object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", f.object, err)
		}
		tell := func(object any) {
			if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			o, ok := object.(client.Object)
			if !ok {
				return
			}
			namespace := o.GetNamespace()
			if f.topic == namespaces {
				namespace = o.GetName()
			}
			s.hub.changed(f.topic, namespace)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(before, after any) {
				a, _ := before.(client.Object)
				b, _ := after.(client.Object)
				if a != nil && b != nil && a.GetResourceVersion() == b.GetResourceVersion() {
					return // a resync
				}
				tell(after)
			},
		})
		if err != nil {
			return fmt.Errorf("watching %T: %w", f.object, err)
		}
	}
	return s.followRuns(ctx)
}

// followRuns tells the history of all changes of Workloads.
func (s *Server) followRuns(ctx context.Context) error {
	informer, err := s.cache.GetInformer(ctx, &kueue.Workload{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching Workloads: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.history.observe(nil, o.(*kueue.Workload)) },
		UpdateFunc: func(before, after any) { s.history.observe(before.(*kueue.Workload), after.(*kueue.Workload)) },
		DeleteFunc: func(o any) {
			if gone, missed := o.(toolscache.DeletedFinalStateUnknown); missed {
				o = gone.Obj
			}
			if w, ok := o.(*kueue.Workload); ok {
				s.history.observe(w, nil)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching Workloads: %w", err)
	}
	return nil
}
