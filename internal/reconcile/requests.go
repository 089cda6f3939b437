package reconcile

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Edited passes changes of the specification, and what took the name of an object whose deletion was missed, which has the same generation.
func Edited() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
	})
}

// EditedOr passes what Edited passes, and updates that change a part of the object. A controller that compares with a condition before it
// writes names that condition: a reconcile between the write and its event has compared with the condition before the write.
func EditedOr[P client.Object, V any](part func(P) V) predicate.Predicate {
	return predicate.Or[client.Object](Edited(), predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(part(e.ObjectOld.(P)), part(e.ObjectNew.(P)))
	}})
}

// EditedLater is for objects that a controller maps to the objects it reconciles: what Edited passes, and what is created or deleted
// while the manager runs. At its start every object is reconciled anyway, and to map each queue to its Workloads would read all Workloads as
// many times as there are queues.
func EditedLater() predicate.Predicate {
	return predicate.And(Edited(), predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
	})
}

// Pointers returns the addresses of the items of a list.
func Pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// Matching returns a request for each object in the cache that matches, for a handler of events about other objects. kinds names the
// objects in the log if they cannot be listed. match gets the cache's own objects, and must not change them.
func Matching[P client.Object](
	ctx context.Context, cache client.Reader, list client.ObjectList, kinds string, match func(P) bool, options ...client.ListOption,
) (out []ctrlreconcile.Request) {
	if err := cache.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "Listing "+kinds)
		return nil
	}
	_ = apimeta.EachListItem(list, func(item runtime.Object) error { // fails for other types only
		if o := item.(P); match(o) {
			out = append(out, ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
		return nil
	})
	return out
}
