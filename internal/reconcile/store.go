package reconcile

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// WorkloadStore returns a lookup of Workloads in a cache without copies, as a page may have 100,000: nil for none, and while the cache is not
// filled. The Workloads must not be modified.
func WorkloadStore(ctx context.Context, c cache.Cache) (func(namespace, name string) *kueue.Workload, error) {
	informer, err := c.GetInformer(ctx, &kueue.Workload{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching Workloads: %w", err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("the cache of Workloads is a %T, which gives out only copies", informer)
	}
	return func(namespace, name string) *kueue.Workload {
		object, _, _ := shared.GetIndexer().GetByKey(namespace + "/" + name)
		w, _ := object.(*kueue.Workload)
		return w
	}, nil
}
