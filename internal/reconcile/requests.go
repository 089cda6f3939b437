package reconcile

import (
	"context"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

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
