package controller

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// held keeps the flavors, or the checks, that a ClusterQueue names.
type held[T any, P interface {
	*T
	client.Object
}] struct {
	client client.Client
	names  func(cq *kueue.ClusterQueue, name string) bool
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=resourceflavors;admissionchecks,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=resourceflavors;admissionchecks,verbs=patch,roleName=kueue-manager-queues-role

// Reconcile sets or removes the finalizer of one object.
func (r *held[T, P]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	object := P(new(T))
	if err := r.client.Get(ctx, req.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	inUse := true
	if object.GetDeletionTimestamp() != nil {
		var list kueue.ClusterQueueList
		if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return ctrl.Result{}, err
		}
		inUse = false
		for i := range list.Items {
			inUse = inUse || r.names(&list.Items[i], object.GetName())
		}
	}
	return ctrl.Result{}, hold(ctx, r.client, object, inUse)
}

var _ reconcile.Reconciler = (*held[kueue.ResourceFlavor, *kueue.ResourceFlavor])(nil)
