// Package recovery fails pods that hang on unreachable nodes, and deletes them by force, if they allow it.
//
//	Pods: being deleted, with the annotation ─► store ─┐            ┌─► status: Failed, with a condition
//	Nodes: the taint of unreachable ones ──────────────┴─► decision ┼─► event
//	                                                                └─► delete, without a grace period
//
// The watch keeps nothing of a pod but its name and its node, and that only of pods that may hang. Before a write both the pod and its node are
// read from the API server, so that no pod is failed because a cache is behind (spec: 20 §4.19).
package recovery

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/berth-project/berth/internal/job/lookup"
	plan "github.com/berth-project/berth/internal/placement/plan/recovery"
	"github.com/berth-project/berth/internal/reconcile"
)

const (
	workers = 2
	// again is after how long a pod of a namespace that is not managed is examined again: nothing reports that its labels change.
	again = time.Minute
)

// Options are the settings of the controller.
type Options struct {
	// Delay is how long after the end of its grace period a pod is deleted by force.
	Delay time.Duration
	// Namespaces reports which namespaces are managed. Pods of others are not touched.
	Namespaces *lookup.Gate
	Events     reconcile.Events
	Now        func() time.Time
}

type reconciler struct {
	Options
	client client.Client
	live   client.Reader
	pods   *podStore
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch,roleName=kueue-manager-recovery-role
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete,roleName=kueue-manager-recovery-role
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch,roleName=kueue-manager-recovery-role

// Setup adds the controller to the manager. Nodes come from its cache.
func Setup(mgr ctrl.Manager, o Options) error {
	rest, err := apiutil.RESTClientForGVK(corev1.SchemeGroupVersion.WithKind("Pod"), false, false, mgr.GetConfig(),
		serializer.NewCodecFactory(mgr.GetScheme()), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	withNode := fields.OneTermNotEqualSelector("spec.nodeName", "")
	r := &reconciler{Options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), pods: newPodStore()}
	err = ctrl.NewControllerManagedBy(mgr).Named("failure_recovery").
		WatchesRawSource(r.ofPods(toolscache.NewListWatchFromClient(rest, string(corev1.ResourcePods), metav1.NamespaceAll, withNode))).
		WatchesRawSource(r.ofNodes(mgr.GetCache())).
		WithOptions(reconcile.ControllerOptions(workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("controller of failure recovery: %w", err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]

// ofPods is the source of the pods that may hang.
func (r *reconciler) ofPods(from toolscache.ListerWatcher) source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		r.pods.found = func(key types.NamespacedName) { q.Add(ctrlreconcile.Request{NamespacedName: key}) }
		go reconcile.Follow(ctx, from, &corev1.Pod{}, r.pods, "pods that may hang")
		return nil
	})
}

// ofNodes is the source of the pods whose node became unreachable.
func (r *reconciler) ofNodes(c cache.Cache) source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		informer, err := c.GetInformer(ctx, &corev1.Node{})
		if err != nil {
			return fmt.Errorf("watching nodes: %w", err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(old, o any) {
			node := o.(*corev1.Node)
			if plan.IsUnreachable(old.(*corev1.Node)) || !plan.IsUnreachable(node) {
				return
			}
			for _, key := range r.pods.onNode(node.Name) {
				q.Add(ctrlreconcile.Request{NamespacedName: key})
			}
		}})
		if err != nil {
			return fmt.Errorf("watching nodes: %w", err)
		}
		return nil
	})
}

// Reconcile decides about one pod.
func (r *reconciler) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	outcome, err := r.reconcile(ctx, req.NamespacedName)
	if err != nil {
		outcome = reconcile.Retry(client.IgnoreNotFound(err))
	}
	return outcome.Result(ctx)
}

func (r *reconciler) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Outcome, error) {
	node, known := r.pods.nodeOf(key)
	if !known {
		return reconcile.Done(), nil
	}
	if unreachable, err := isUnreachable(ctx, r.client, node); err != nil || !unreachable {
		return reconcile.Done(), err // a change of the node is reported
	}
	switch managed, err := r.Namespaces.IsManaged(ctx, key.Namespace); {
	case err != nil:
		return reconcile.Done(), err
	case !managed:
		return reconcile.Wait(again), nil
	}
	var pod corev1.Pod
	if err := r.live.Get(ctx, key, &pod); err != nil {
		return reconcile.Done(), err
	}
	if !plan.MayHang(&pod) {
		return reconcile.Done(), nil
	}
	if left := plan.Due(&pod, r.Delay).Sub(r.Now()); left > 0 {
		return reconcile.Wait(left), nil
	}
	if unreachable, err := isUnreachable(ctx, r.live, pod.Spec.NodeName); err != nil || !unreachable {
		return reconcile.Done(), err
	}
	return reconcile.Done(), r.remove(ctx, &pod)
}

func isUnreachable(ctx context.Context, from client.Reader, name string) (bool, error) {
	var node corev1.Node
	if err := from.Get(ctx, types.NamespacedName{Name: name}, &node, client.UnsafeDisableDeepCopy); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return plan.IsUnreachable(&node), nil
}

// remove fails a pod and deletes it by force. Both writes are refused if the pod changed since it was read.
func (r *reconciler) remove(ctx context.Context, pod *corev1.Pod) error {
	message, base := plan.Message(pod, r.Delay), pod.DeepCopy()
	if plan.Fail(pod, message, r.Now()) {
		patch := client.StrategicMergeFrom(base, client.MergeFromWithOptimisticLock{})
		if err := r.client.Status().Patch(ctx, pod, patch, client.FieldOwner("kueue")); err != nil {
			return fmt.Errorf("failing pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	// Before the deletion, so that a crash between the two repeats the event instead of losing it.
	r.Events.Warning(pod, plan.Reason, message)
	same := client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
	if err := r.client.Delete(ctx, pod, client.GracePeriodSeconds(0), same); err != nil {
		return fmt.Errorf("deleting pod %s/%s by force: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
