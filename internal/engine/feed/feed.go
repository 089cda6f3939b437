// Package feed tells the engine what the API server has: every change of a workload,
// a queue, a cohort, a flavor or a namespace becomes one event. It writes nothing.
package feed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Feed is a runnable that follows the API server on every replica, and opens the
// engine once everything that exists has been delivered and this replica leads.
type Feed struct {
	Cache    ctrlcache.Cache
	Engine   *engine.Engine
	Requests convert.Requests
	// Capacity is called once, when the first flavor with a topology is seen. It starts the watches of nodes and pods, and returns a channel
	// that is closed when the engine knows all of them. Nil without topologies.
	Capacity func() <-chan struct{}
	// Settle, unless nil, returns once the devices of all workloads that were converted are counted, or it takes too long.
	Settle func(context.Context)
	// Deleted, unless nil, is called with each Workload that was deleted, after its last conversion.
	Deleted func(*kueue.Workload)
	// Sampling is the time between two samples of admission fair sharing; 0 is without.
	Sampling time.Duration
	// Lead is closed when this replica may decide; nil leaves the engine closed.
	Lead <-chan struct{}

	delivered atomic.Bool
	// posting is held from the conversion of an object, which may read others from the
	// cache, until its event is posted. The cache has an object before its handler runs, so
	// whatever was converted without it is converted again, and posted later.
	posting sync.Mutex
	// nodes is the result of Capacity, nil before. late reports that everything else was delivered before it was needed. Both by posting.
	nodes <-chan struct{}
	late  bool
}

// Check is a health check: it fails until everything that exists was delivered.
func (f *Feed) Check(*http.Request) error {
	if !f.Delivered() {
		return errors.New("the engine does not know everything yet")
	}
	return nil
}

// Delivered reports whether the engine has been told of everything that exists.
func (f *Feed) Delivered() bool { return f.delivered.Load() }

// NeedLeaderElection is false: standbys follow as well, so that they are warm.
func (f *Feed) NeedLeaderElection() bool { return false }

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks;cohorts;clusterqueues;localqueues;resourceflavors;topologies;workloads,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=limitranges;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=get;list;watch

// Start follows until ctx ends.
func (f *Feed) Start(ctx context.Context) error {
	// Conversions of Workloads read LimitRanges and RuntimeClasses, so these come first.
	watches := []watch{
		on(f, f.limitRange(ctx), f.limitRange(ctx)),
		on(f, f.runtimeClass(ctx), f.runtimeClass(ctx)),
		on(f, f.topology(ctx), f.topology(ctx)),
		on(f, f.flavor(ctx), func(o *kueue.ResourceFlavor) []state.Event {
			return []state.Event{state.DeleteFlavor(o.Name)}
		}),
		on(f, func(o *kueue.Cohort) []state.Event {
			return []state.Event{state.SetCohort(convert.Cohort(o))}
		}, func(o *kueue.Cohort) []state.Event {
			return []state.Event{state.DeleteCohort(o.Name)}
		}),
		on(f, f.admissionCheck(ctx), f.admissionCheck(ctx)),
		on(f, f.clusterQueue(ctx), func(o *kueue.ClusterQueue) []state.Event {
			return []state.Event{state.DeleteQueue(o.Name)}
		}),
		on(f, func(o *kueue.LocalQueue) []state.Event {
			return f.localQueue(o)
		}, func(o *kueue.LocalQueue) []state.Event {
			return []state.Event{state.DeleteLocalQueue{Namespace: o.Namespace, Name: o.Name}}
		}),
		on(f, func(o *corev1.Namespace) []state.Event {
			return []state.Event{state.SetNamespace{Name: o.Name, Labels: o.Labels}}
		}, func(o *corev1.Namespace) []state.Event {
			return []state.Event{state.DeleteNamespace(o.Name)}
		}),
		on(f, f.workload, func(o *kueue.Workload) []state.Event {
			if f.Deleted != nil {
				f.Deleted(o)
			}
			return []state.Event{state.DeleteWorkload(string(o.UID))}
		}),
	}
	synced := make([]cache.InformerSynced, 0, len(watches))
	for _, w := range watches {
		done, err := w(ctx)
		if err != nil {
			return err
		}
		synced = append(synced, done)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // ctx ended
	}
	f.posting.Lock()
	nodes := f.nodes
	f.late = nodes == nil
	f.posting.Unlock()
	if nodes != nil {
		select {
		case <-nodes:
		case <-ctx.Done():
			return nil
		}
	}
	if f.Settle != nil {
		f.Settle(ctx)
	}
	f.delivered.Store(true)
	if f.Lead != nil {
		select {
		case <-f.Lead:
			f.sample() // earlier admissions count before the first decision
			f.Engine.Open()
			f.sampleUsage(ctx)
		case <-ctx.Done():
		}
	}
	<-ctx.Done()
	return nil
}

type watch func(context.Context) (cache.InformerSynced, error)

// on posts the events of every object of a kind that is added, changed or deleted.
func on[T any, P interface {
	*T
	client.Object
}](f *Feed, set, deleted func(P) []state.Event) watch {
	return func(ctx context.Context) (cache.InformerSynced, error) {
		informer, err := f.Cache.GetInformer(ctx, P(new(T)))
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", P(new(T)), err)
		}
		post := func(o P, convert func(P) []state.Event) {
			f.posting.Lock()
			defer f.posting.Unlock()
			f.Engine.Post(convert(o)...)
		}
		reg, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { post(o.(P), set) },
			UpdateFunc: func(before, o any) {
				// Where the watch missed the deletion and the next creation, that is one update.
				if gone := before.(P); gone.GetUID() != o.(P).GetUID() {
					post(gone, deleted)
				}
				post(o.(P), set)
			},
			DeleteFunc: func(o any) {
				if gone, missed := o.(cache.DeletedFinalStateUnknown); missed {
					o = gone.Obj
				}
				post(o.(P), deleted)
			},
		})
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", P(new(T)), err)
		}
		return reg.HasSynced, nil
	}
}
