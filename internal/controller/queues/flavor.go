package queues

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// flavors holds a ResourceFlavor while a ClusterQueue names it.
type flavors struct {
	client client.Client
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=resourceflavors,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=resourceflavors/finalizers,verbs=update

// Reconcile sets or drops the finalizer of one ResourceFlavor.
func (r *flavors) Reconcile(ctx context.Context, req reconcile.Request) (ctrl.Result, error) {
	var rf kueue.ResourceFlavor
	if err := r.client.Get(ctx, req.NamespacedName, &rf); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	inUse := true
	if rf.DeletionTimestamp != nil {
		var list kueue.ClusterQueueList
		if err := r.client.List(ctx, &list); err != nil {
			return ctrl.Result{}, err
		}
		inUse = false
		for i := range list.Items {
			inUse = inUse || names(&list.Items[i], rf.Name)
		}
	}
	return ctrl.Result{}, hold(ctx, r.client, &rf, inUse)
}
