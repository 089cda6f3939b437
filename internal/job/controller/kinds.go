package controller

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// kinds are the running reconcilers.
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
	return slices.Clone(k.running)
}

// generations is the maximum depth of the search for descendants of a Workload's owner.
const generations = 10

// below returns the jobs of one kind that descend from an object through jobs of any kind (spec: 30 §4.5).
func (k *kinds) below(ctx context.Context, of *reconciler, namespace string, uid types.UID) []ctrlreconcile.Request {
	var out []ctrlreconcile.Request
	all, parents := k.list(), []types.UID{uid}
	for range generations {
		var next []types.UID
		for _, parent := range parents {
			for _, r := range all {
				for _, o := range r.byParent.Find(ctx, namespace, string(parent)) {
					next = append(next, o.GetUID())
					if r == of {
						out = append(out, request(o.GetNamespace(), o.GetName()))
					}
				}
			}
		}
		if len(next) == 0 {
			break
		}
		parents = next
	}
	return out
}
