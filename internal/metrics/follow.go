package metrics

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Follower is a runnable that tells a recorder of queues, cohorts and Workloads, on every
// replica.
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

func (f *Follower) follow(ctx context.Context) error {
	r := f.Recorder
	workloads, err := follow(ctx, f.Cache, r.SeeWorkload)
	if err != nil {
		return err
	}
	store, ok := workloads.(interface{ GetStore() cache.Store })
	if !ok {
		return fmt.Errorf("the cache of Workloads is a %T, which has no store to look at", workloads)
	}
	r.SetWorkloads(store.GetStore())
	if _, err = follow(ctx, f.Cache, setOrDelete(r.SetClusterQueue, func(o *kueue.ClusterQueue) { r.DeleteClusterQueue(o.Name) })); err != nil {
		return err
	}
	if _, err = follow(ctx, f.Cache, setOrDelete(r.SetLocalQueue, func(o *kueue.LocalQueue) { r.DeleteLocalQueue(o.Namespace, o.Name) })); err != nil {
		return err
	}
	_, err = follow(ctx, f.Cache, setOrDelete(r.SetCohort, func(o *kueue.Cohort) { r.DeleteCohort(o.Name) }))
	return err
}

func setOrDelete[P comparable](set, deleted func(P)) func(before, after P) {
	var none P
	return func(before, after P) {
		if after == none {
			deleted(before)
		} else {
			set(after)
		}
	}
}

// follow has changed told of every object of a kind that is added, changed or deleted.
func follow[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c ctrlcache.Cache, changed func(before, after P)) (ctrlcache.Informer, error) {
	informer, err := c.GetInformer(ctx, P(new(T)))
	if err != nil {
		return nil, fmt.Errorf("watching %T: %w", P(new(T)), err)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(nil, o.(P)) },
		UpdateFunc: func(before, after any) { changed(before.(P), after.(P)) },
		DeleteFunc: func(o any) {
			if gone, missed := o.(cache.DeletedFinalStateUnknown); missed {
				o = gone.Obj
			}
			changed(o.(P), nil)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching %T: %w", P(new(T)), err)
	}
	return informer, nil
}
