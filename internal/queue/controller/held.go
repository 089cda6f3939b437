package controller

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// held keeps the objects of a kind that another object names.
type held[T any, P interface {
	*T
	client.Object
}] struct {
	client  client.Client
	isNamed func(ctx context.Context, c client.Client, name string) (bool, error)
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=resourceflavors;admissionchecks,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=resourceflavors;admissionchecks;topologies,verbs=patch,roleName=kueue-manager-queues-role

// setupHeld adds the controllers of the finalizers of AdmissionChecks, ResourceFlavors and Topologies.
func setupHeld(mgr ctrl.Manager, flavorWorkers int) error {
	c := mgr.GetClient()
	err := ctrl.NewControllerManagedBy(mgr).Named("admissioncheck").For(&kueue.AdmissionCheck{}).
		Watches(&kueue.ClusterQueue{}, handler.EnqueueRequestsFromMapFunc(checksOf), edited).
		WithOptions(reconcile.ControllerOptions(1)).
		Complete(&held[kueue.AdmissionCheck, *kueue.AdmissionCheck]{c, byClusterQueues(convert.NamesCheck)})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("topology").For(&kueue.Topology{}).
		Watches(&kueue.ResourceFlavor{}, handler.EnqueueRequestsFromMapFunc(topologyOf), edited).
		WithOptions(reconcile.ControllerOptions(1)).
		Complete(&held[kueue.Topology, *kueue.Topology]{c, byFlavors})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("resourceflavor").For(&kueue.ResourceFlavor{}).
		Watches(&kueue.ClusterQueue{}, handler.EnqueueRequestsFromMapFunc(flavorsOf), edited).
		WithOptions(reconcile.ControllerOptions(flavorWorkers)).
		Complete(&held[kueue.ResourceFlavor, *kueue.ResourceFlavor]{c, byClusterQueues(convert.NamesFlavor)})
}

// Reconcile sets or removes the finalizer of one object.
func (r *held[T, P]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	object := P(new(T))
	if err := r.client.Get(ctx, req.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	inUse := true
	if object.GetDeletionTimestamp() != nil {
		var err error
		if inUse, err = r.isNamed(ctx, r.client, object.GetName()); err != nil {
			return ctrl.Result{}, err
		}
	}
	return reconcile.Retry(hold(ctx, r.client, object, inUse)).Result(ctx)
}

// byClusterQueues reports whether a ClusterQueue names a flavor or a check.
func byClusterQueues(names func(*kueue.ClusterQueue, string) bool) func(context.Context, client.Client, string) (bool, error) {
	return func(ctx context.Context, c client.Client, name string) (bool, error) {
		var list kueue.ClusterQueueList
		err := c.List(ctx, &list, client.UnsafeDisableDeepCopy)
		return slices.ContainsFunc(list.Items, func(cq kueue.ClusterQueue) bool { return names(&cq, name) }), err
	}
}

// byFlavors reports whether a ResourceFlavor names a Topology. spec: 20 §4.5.
func byFlavors(ctx context.Context, c client.Client, name string) (bool, error) {
	var list kueue.ResourceFlavorList
	err := c.List(ctx, &list, client.UnsafeDisableDeepCopy)
	return slices.ContainsFunc(list.Items, func(f kueue.ResourceFlavor) bool { return string(f.Spec.TopologyName) == name }), err
}

// topologyOf maps a flavor to its Topology.
func topologyOf(_ context.Context, o client.Object) []ctrlreconcile.Request {
	name := o.(*kueue.ResourceFlavor).Spec.TopologyName
	if name == "" {
		return nil
	}
	return []ctrlreconcile.Request{{NamespacedName: types.NamespacedName{Name: string(name)}}}
}

func checksOf(_ context.Context, o client.Object) []ctrlreconcile.Request {
	var out []ctrlreconcile.Request
	if s := o.(*kueue.ClusterQueue).Spec.AdmissionChecksStrategy; s != nil {
		for _, rule := range s.AdmissionChecks {
			out = append(out, ctrlreconcile.Request{NamespacedName: types.NamespacedName{Name: string(rule.Name)}})
		}
	}
	return out
}

func flavorsOf(_ context.Context, o client.Object) []ctrlreconcile.Request {
	var out []ctrlreconcile.Request
	for _, g := range o.(*kueue.ClusterQueue).Spec.ResourceGroups {
		for _, f := range g.Flavors {
			out = append(out, ctrlreconcile.Request{NamespacedName: types.NamespacedName{Name: string(f.Name)}})
		}
	}
	return out
}

var _ ctrlreconcile.Reconciler = (*held[kueue.ResourceFlavor, *kueue.ResourceFlavor])(nil)
