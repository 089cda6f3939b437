// Package health follows the nodes of Workloads with a topology assignment: it records the unhealthy node that the engine is to replace,
// evicts a Workload when a second one fails, and fails pods that wait for a node that will not take them. It reconciles chains of slices;
// a Workload that is no slice is a chain by itself.
//
//	Nodes ─────────────┐              ┌─► status.unhealthyNodes, or an eviction: one write
//	Workload ──────────┼─► plan.Decide┤
//	pods of the chain ─┘              └─► status of stuck pods: Failed
//
// Events of nodes and pods are collected for 100 ms, so that the loss of a rack is one decision (spec: 20 §4.9).
package health

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/lookup"
	plan "github.com/berth-project/berth/internal/placement/plan/health"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/slices"
)

const (
	workers = 2
	// batch is how long events of nodes and pods are collected.
	batch = 100 * time.Millisecond
)

// Indexes of caches.
const (
	byHost  = "berth.host"           // of Workloads: the hostnames of their nodes; of pods: the hostname of the node that they wait for
	ofSlice = "berth.placementChain" // of slices: the name of their chain
)

// Options are the settings of the controller.
type Options struct {
	Gates plan.Gates
	// Namespaces reports which namespaces are managed.
	Namespaces *lookup.Gate
	// Machine evicts Workloads: a lifecycle.Machine.
	Machine interface {
		Evict(w *kueue.Workload, reason, cause, message string, now metav1.Time) bool
	}
	// Pods are the pods that were started for an admission, shared with other controllers. They are filled, and nodes are watched, once a
	// Workload is placed.
	Pods   *reconcile.Pods
	Status *reconcile.WorkloadStatus
	Events reconcile.Events
	Now    func() time.Time
}

type reconciler struct {
	Options
	client client.Client
	live   client.Reader
	late   *reconcile.Late
	nodes  *nodes

	written *reconcile.Overlay[*corev1.Pod]
}

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	r := &reconciler{
		Options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), nodes: newNodes(), written: reconcile.NewOverlay[*corev1.Pod](o.Now),
	}
	err := o.Pods.IndexField(ctx, &corev1.Pod{}, byHost, func(o client.Object) []string {
		if host := plan.WaitsFor(o.(*corev1.Pod)); host != "" {
			return []string{host}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing pods: %w", err)
	}
	for name, values := range map[string]func(*kueue.Workload) []string{
		byHost: plan.Hosts,
		ofSlice: func(w *kueue.Workload) []string {
			if w.Annotations[kueue.ElasticJobAnnotation] != "true" {
				return nil
			}
			return []string{slices.Chain(w)}
		},
	} {
		err := mgr.GetFieldIndexer().IndexField(ctx, &kueue.Workload{}, name, func(o client.Object) []string { return values(o.(*kueue.Workload)) })
		if err != nil {
			return fmt.Errorf("indexing workloads: %w", err)
		}
	}
	c, err := ctrl.NewControllerManagedBy(mgr).Named("node_failures").
		Watches(&kueue.Workload{}, r.ofWorkloads()).
		WithOptions(reconcile.ControllerOptions(workers)).
		Build(r)
	if err != nil {
		return fmt.Errorf("controller of node failures: %w", err)
	}
	r.late = &reconcile.Late{Pods: o.Pods, Watch: func() error {
		if err := c.Watch(r.ofNodes(mgr.GetCache())); err != nil {
			return err
		}
		return c.Watch(r.ofPods())
	}}
	return nil
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch,roleName=kueue-manager-topology-role
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch,roleName=kueue-manager-topology-role
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch,roleName=kueue-manager-topology-role
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads;resourceflavors,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads/status,verbs=update;patch

// Reconcile decides about the Workload of one chain.
func (r *reconciler) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	outcome, err := r.reconcile(ctx, req.NamespacedName)
	if err != nil {
		outcome = reconcile.Retry(client.IgnoreNotFound(err))
	}
	return outcome.Result(ctx)
}

func (r *reconciler) reconcile(ctx context.Context, chain types.NamespacedName) (reconcile.Outcome, error) {
	if err := r.late.Ready(ctx); err != nil {
		return reconcile.Done(), err
	}
	if !r.nodes.areKnown() {
		return reconcile.Wait(batch), nil // a node that is not known yet is not gone
	}
	pods, err := r.podsOf(ctx, chain) // before the Workload, so that no pod is newer than the assignment that it was ungated for
	if err != nil {
		return reconcile.Done(), err
	}
	w, err := r.workload(ctx, r.client, chain)
	if err != nil || w == nil {
		return reconcile.Done(), err
	}
	d, err := r.decide(ctx, w, pods)
	if err != nil {
		return reconcile.Done(), err
	}
	if err := r.writeWorkload(ctx, w, &d); err != nil {
		return reconcile.Done(), err
	}
	if err := r.failPods(ctx, chain, w, pods, &d); err != nil {
		return reconcile.Done(), err
	}
	if !d.Wake.IsZero() {
		return reconcile.Wait(d.Wake.Sub(r.Now())), nil
	}
	return reconcile.Done(), nil
}

func (r *reconciler) decide(ctx context.Context, w *kueue.Workload, pods []*corev1.Pod) (plan.Decision, error) {
	flavors, err := lookup.Flavors(ctx, r.client, w)
	if err != nil {
		return plan.Decision{}, err
	}
	as, err := lookup.AsStarted(ctx, r.client, w)
	if err != nil {
		return plan.Decision{}, err
	}
	if as == nil {
		return plan.Decision{}, fmt.Errorf("workload %s/%s: the variant that it runs on is not admitted", w.Namespace, w.Name)
	}
	return r.Gates.Decide(&plan.Observed{Workload: as, Pods: pods, Node: r.nodes.byHostname, Flavors: flavors, Now: r.Now()}), nil
}

func (r *reconciler) podsOf(ctx context.Context, chain types.NamespacedName) ([]*corev1.Pod, error) {
	pods, err := r.Pods.OfChain(ctx, chain)
	for i, pod := range pods {
		pods[i] = r.written.Newest(pod)
	}
	return pods, err
}

// workload returns the Workload of a chain: the slice that lets pods run, else the newest live one, or the Workload of that name. It is nil
// if there is none.
func (r *reconciler) workload(ctx context.Context, from client.Reader, chain types.NamespacedName) (*kueue.Workload, error) {
	var list kueue.WorkloadList
	err := r.client.List(ctx, &list, client.InNamespace(chain.Namespace), client.MatchingFields{ofSlice: chain.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing workloads of %s: %w", chain, err)
	}
	all := reconcile.Pointers(list.Items)
	found := slices.Granting(all)
	if live := slices.Live(all); found == nil && len(live) > 0 {
		found = live[len(live)-1]
	}
	key := chain
	if found != nil {
		key.Name = found.Name
	}
	var w kueue.Workload
	if err := from.Get(ctx, key, &w); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &w, nil
}

// writeWorkload evicts the Workload, or records its unhealthy nodes.
func (r *reconciler) writeWorkload(ctx context.Context, w *kueue.Workload, d *plan.Decision) error {
	if d.Evict == "" && !d.Changed {
		return nil
	}
	stored, wrote, err := r.Status.Transition(ctx, w, func(next *kueue.Workload) bool {
		if d.Evict != "" {
			return r.Machine.Evict(next, kueue.ReasonNodeFailures, "", d.Evict, metav1.NewTime(r.Now()))
		}
		next.Status.UnhealthyNodes = d.Unhealthy
		return true
	})
	if err == nil && wrote && d.Evict != "" {
		r.Events.Evicted(stored)
	}
	return err
}
