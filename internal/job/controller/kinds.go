package controller

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// kinds are the kinds that are being reconciled.
type kinds struct {
	mu      sync.Mutex
	running []*reconciler
}

func (k *kinds) add(r *reconciler) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = append(k.running, r)
}

func (k *kinds) list() []*reconciler {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*reconciler(nil), k.running...)
}

// generations is how far below a Workload's owner its descendants are looked for.
const generations = 10

// below finds the jobs of one kind that descend from an object through jobs of any kind (spec: 30 §4.5).
func (k *kinds) below(ctx context.Context, of *reconciler, namespace string, uid types.UID) []ctrlreconcile.Request {
	var out []ctrlreconcile.Request
	parents := []types.UID{uid}
	for range generations {
		var next []types.UID
		for _, parent := range parents {
			for _, r := range k.list() {
				r.each(ctx, namespace, func(o client.Object) {
					next = append(next, o.GetUID())
					if r == of {
						out = append(out, request(o.GetNamespace(), o.GetName()))
					}
				}, client.MatchingFields{byParent: string(parent)})
			}
		}
		if len(next) == 0 {
			break
		}
		parents = next
	}
	return out
}
