package metrics

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Follower is a runnable that passes queues, cohorts and Workloads to a recorder, on every replica.
type Follower struct {
	Recorder *Recorder
	Cache    ctrlcache.Cache
}

// NeedLeaderElection is false: standbys have gauges as well.
func (f *Follower) NeedLeaderElection() bool { return false }

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=cohorts;clusterqueues;localqueues;workloads,verbs=get;list;watch

// Start follows until ctx ends.
func (f *Follower) Start(ctx context.Context) error {
	if err := f.follow(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// follow starts with the queues: they label the counters of Workloads.
func (f *Follower) follow(ctx context.Context) error {
	r := f.Recorder
	_, cohorts, err1 := follow(ctx, f.Cache, setOrDelete(r.SetCohort, func(o *kueue.Cohort) { r.DeleteCohort(o.Name) }))
	_, queues, err2 := follow(ctx, f.Cache, setOrDelete(r.SetClusterQueue, func(o *kueue.ClusterQueue) { r.DeleteClusterQueue(o.Name) }))
	_, localQueues, err3 := follow(ctx, f.Cache, setOrDelete(r.SetLocalQueue, func(o *kueue.LocalQueue) { r.DeleteLocalQueue(o.Namespace, o.Name) }))
	if err := cmp.Or(err1, err2, err3); err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), cohorts, queues, localQueues) {
		return ctx.Err()
	}
	workloads, _, err := follow(ctx, f.Cache, func(before, after *kueue.Workload, existed bool) {
		if existed {
			r.AddWorkload(after)
		} else {
			r.ObserveWorkload(before, after)
		}
	})
	if err != nil {
		return err
	}
	store, ok := workloads.(interface{ GetStore() cache.Store })
	if !ok {
		return fmt.Errorf("the cache of Workloads is a %T, which has no store to look at", workloads)
	}
	r.SetWorkloads(store.GetStore())
	return nil
}

func setOrDelete[P comparable](set, deleted func(P)) func(before, after P, existed bool) {
	var none P
	return func(before, after P, _ bool) {
		if after == none {
			deleted(before)
		} else {
			set(after)
		}
	}
}

// follow calls changed for every existing object of a kind, and for every later addition, change and deletion.
func follow[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c ctrlcache.Cache, changed func(before, after P, existed bool)) (ctrlcache.Informer, cache.InformerSynced, error) {
	informer, err := c.GetInformer(ctx, P(new(T)))
	if err != nil {
		return nil, nil, fmt.Errorf("watching %T: %w", P(new(T)), err)
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, isInInitialList bool) { changed(nil, o.(P), isInInitialList) },
		UpdateFunc: func(before, after any) { changed(before.(P), after.(P), false) },
		DeleteFunc: func(o any) {
			if gone, missed := o.(cache.DeletedFinalStateUnknown); missed {
				o = gone.Obj
			}
			changed(o.(P), nil, false)
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("watching %T: %w", P(new(T)), err)
	}
	return informer, registration.HasSynced, nil
}
