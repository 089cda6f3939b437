package reconcile

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// Index finds objects of a cache by a key without copies, for what asks at every event: a List of the cache allocates 2 KB, also if it finds
// nothing. They must not be modified. While the cache is not filled some are missing.
type Index struct {
	name    string
	indexer toolscache.Indexer
	// A cache of some namespaces has no indexer, and is listed.
	cache cache.Cache
	list  func() client.ObjectList
}

// NewIndex adds an index with a name of its own to the cache of a kind, of which list makes an empty list.
func NewIndex(ctx context.Context, c cache.Cache, kind client.Object, list func() client.ObjectList, name string, keys func(client.Object) []string) (*Index, error) {
	informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching objects of type %T: %w", kind, err)
	}
	i := &Index{name: name, cache: c, list: list}
	if shared, ok := informer.(toolscache.SharedIndexInformer); ok {
		i.indexer = shared.GetIndexer()
		err = shared.AddIndexers(toolscache.Indexers{name: func(o any) ([]string, error) { return keys(o.(client.Object)), nil }})
	} else {
		err = c.IndexField(ctx, kind, name, keys)
	}
	if err != nil {
		return nil, fmt.Errorf("indexing objects of type %T by %s: %w", kind, name, err)
	}
	return i, nil
}

// Find returns the objects of a namespace with the key, in no order.
func (i *Index) Find(ctx context.Context, namespace, key string) []client.Object {
	if i.indexer == nil {
		return i.listed(ctx, namespace, key)
	}
	var out []client.Object
	found, _ := i.indexer.ByIndex(i.name, key) // fails without such an index only
	for _, o := range found {
		if object := o.(client.Object); object.GetNamespace() == namespace {
			out = append(out, object)
		}
	}
	return out
}

func (i *Index) listed(ctx context.Context, namespace, key string) (out []client.Object) {
	list := i.list()
	if err := i.cache.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{i.name: key}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Objects cannot be listed", "index", i.name)
	}
	_ = apimeta.EachListItem(list, func(o runtime.Object) error {
		out = append(out, o.(client.Object))
		return nil
	})
	return out
}
