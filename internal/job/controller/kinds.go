package controller

import (
	"context"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/plan/decide"
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

// requests is the queue of a controller.
type requests = workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]

// onWorkload enqueues the given jobs of a Workload at all its events, and the jobs below its owner at events that may affect them: any number of
// objects may name the owner, and the status of a Workload changes often.
func (r *reconciler) onWorkload(of handler.MapFunc) handler.EventHandler {
	own, below := handler.EnqueueRequestsFromMapFunc(of), handler.EnqueueRequestsFromMapFunc(r.belowOwner)
	if r.byParent == nil { // groups and serving objects follow no Workload of an owner
		return own
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q requests) {
			own.Create(ctx, e, q)
			below.Create(ctx, e, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requests) {
			own.Update(ctx, e, q)
			if decide.AffectsBelow(e.ObjectOld.(*kueue.Workload), e.ObjectNew.(*kueue.Workload)) {
				below.Update(ctx, e, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requests) {
			own.Delete(ctx, e, q)
			below.Delete(ctx, e, q)
		},
	}
}

// belowOwner returns the jobs of our kind below the owner of a Workload.
func (r *reconciler) belowOwner(ctx context.Context, w client.Object) []ctrlreconcile.Request {
	if ref := metav1.GetControllerOf(w); ref != nil {
		return r.kinds.below(ctx, r, w.GetNamespace(), ref.UID)
	}
	return nil
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
