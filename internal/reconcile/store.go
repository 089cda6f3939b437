package reconcile

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Workloads gives out the Workloads of a cache without copies: there may be 100,000. They must not be modified. While the cache is not filled some are
// missing.
type Workloads struct{ indexer toolscache.Indexer }

// WorkloadsOf returns the Workloads of a cache.
func WorkloadsOf(ctx context.Context, c cache.Cache) (*Workloads, error) {
	informer, err := c.GetInformer(ctx, &kueue.Workload{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching Workloads: %w", err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("the cache of Workloads is a %T, which gives out only copies", informer)
	}
	return &Workloads{shared.GetIndexer()}, nil
}

// Get returns a Workload, nil for none.
func (w *Workloads) Get(namespace, name string) *kueue.Workload {
	object, _, _ := w.indexer.GetByKey(namespace + "/" + name)
	found, _ := object.(*kueue.Workload)
	return found
}

// Visit calls a function with every Workload, in no order.
func (w *Workloads) Visit(visit func(*kueue.Workload)) {
	w.In("", func(one *kueue.Workload) bool {
		visit(one)
		return false
	})
}

// In returns the Workloads of a namespace, or all for "", for which keep is true, in no order.
func (w *Workloads) In(namespace string, keep func(*kueue.Workload) bool) (out []*kueue.Workload) {
	_ = toolscache.ListAllByNamespace(w.indexer, namespace, labels.Everything(), func(o any) { // fails without such an index only
		if found, ok := o.(*kueue.Workload); ok && keep(found) {
			out = append(out, found)
		}
	})
	return out
}
