package devices

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plan "github.com/berth-project/berth/internal/workload/plan/devices"
)

// watch is the watch of one kind. Its fields are guarded by Catalog.mu.
type watch[T any] struct {
	wanted, begun, synced, late bool
	known                       map[types.NamespacedName]*T
}

// reading reports that what exists is not delivered yet.
func (w *watch[T]) reading() bool { return w.wanted && !w.synced && !w.late }

// ready returns why the kind is not known, and starts its watch, with mu.
func (w *watch[T]) ready(c *Catalog, kinds string) *plan.Problem {
	switch {
	case w.synced:
		return nil
	case !c.served:
		c.missed = true
		return &plan.Problem{Text: "the API server does not serve resource.k8s.io/v1, where " + kinds + " are"}
	case w.late:
		return &plan.Problem{Text: "the manager cannot read " + kinds + " (resource.k8s.io/v1); its access rules must allow it"}
	}
	if !w.wanted {
		w.wanted = true
		c.poke()
	}
	return &plan.Problem{Text: kinds + " are being read", Reading: true}
}

// begin starts a watch that is wanted. changed gets nil for the old object of an addition, and for the new one of a deletion, with mu.
func begin[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c *Catalog, w *watch[T], kinds string, changed func(old, now *T)) {
	c.mu.Lock()
	start := w.wanted && !w.begun
	w.begun = w.begun || start
	c.mu.Unlock()
	if !start {
		return
	}
	go func() {
		time.AfterFunc(patience, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !w.synced {
				w.late = true
				c.log.Info("Reading takes long, and workloads that need it wait", "kind", kinds)
				c.renew()
			}
		})
		if err := follow[T, P](ctx, c, w, changed); err != nil && ctx.Err() == nil {
			c.log.Error(err, "Watching failed and is tried again", "kind", kinds)
			time.AfterFunc(patience, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				w.begun = false
				c.poke()
			})
		}
	}()
}

// follow fills a watch, and returns once it is filled, or cannot be.
func follow[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c *Catalog, w *watch[T], changed func(old, now *T)) error {
	informer, err := c.cache.GetInformer(ctx, P(new(T)), ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	set := func(o any, deleted bool) {
		if gone, missed := o.(toolscache.DeletedFinalStateUnknown); missed {
			o = gone.Obj
		}
		object, is := o.(P)
		if !is {
			return
		}
		key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
		c.mu.Lock()
		defer c.mu.Unlock()
		old, now := w.known[key], (*T)(object)
		if deleted {
			delete(w.known, key)
			now = nil
		} else {
			w.known[key] = now
		}
		if old != nil && now != nil && P(old).GetResourceVersion() == object.GetResourceVersion() {
			return
		}
		changed(old, now)
	}
	c.mu.Lock()
	if w.known == nil {
		w.known = map[types.NamespacedName]*T{}
	}
	c.mu.Unlock()
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { set(o, false) },
		UpdateFunc: func(_, o any) { set(o, false) },
		DeleteFunc: func(o any) { set(o, true) },
	})
	if err != nil {
		return err
	}
	if toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		c.mu.Lock()
		defer c.mu.Unlock()
		w.synced, w.late = true, false
		c.renew()
	}
	return nil
}
