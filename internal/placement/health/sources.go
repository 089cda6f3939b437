package health

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	placement "github.com/berth-project/berth/internal/placement/plan"
	plan "github.com/berth-project/berth/internal/placement/plan/health"
	"github.com/berth-project/berth/internal/workload/plan/slices"
)

type queue = workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]

func request(namespace, chain string) ctrlreconcile.Request {
	return ctrlreconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: chain}}
}

// nodes are the nodes by hostname, as the cache showed them last.
type nodes struct {
	mu     sync.RWMutex
	byHost map[string]map[string]plan.Node // then by name: a hostname may be used twice
	// former are the names of deleted nodes with another hostname.
	former map[string]string
	synced toolscache.InformerSynced
}

func newNodes() *nodes {
	return &nodes{byHost: map[string]map[string]plan.Node{}, former: map[string]string{}}
}

// areKnown reports whether all nodes that exist at the start are known.
func (n *nodes) areKnown() bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.synced != nil && n.synced()
}

// byHostname returns the node with a hostname, of several the first by name. A deleted node with another hostname is one that reported
// nothing.
func (n *nodes) byHostname(host string) (plan.Node, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	first, found := plan.Node{}, false
	for name, node := range n.byHost[host] { //berth:unordered the least name wins
		if !found || name < first.Name {
			first, found = node, true
		}
	}
	if name, known := n.former[host]; known && !found {
		return plan.Node{Name: name, Hostname: host}, true
	}
	return first, found
}

func (n *nodes) set(node plan.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byHost[node.Hostname] == nil {
		n.byHost[node.Hostname] = map[string]plan.Node{}
	}
	n.byHost[node.Hostname][node.Name] = node
	delete(n.former, node.Hostname)
}

func (n *nodes) remove(node plan.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byHost[node.Hostname], node.Name)
	if len(n.byHost[node.Hostname]) == 0 {
		delete(n.byHost, node.Hostname)
		if node.Name != node.Hostname {
			n.former[node.Hostname] = node.Name
		}
	}
}

// ofNodes is the source of the chains whose nodes changed.
func (r *reconciler) ofNodes(c cache.Cache) source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		informer, err := c.GetInformer(ctx, &corev1.Node{})
		if err != nil {
			return fmt.Errorf("watching nodes: %w", err)
		}
		reg, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) {
				node := plan.NodeOf(o.(*corev1.Node))
				r.nodes.set(node)
				r.enqueueHost(ctx, q, node.Hostname)
			},
			UpdateFunc: func(old, o any) {
				before, node := plan.NodeOf(old.(*corev1.Node)), plan.NodeOf(o.(*corev1.Node))
				if before.Equal(&node) {
					return // a heartbeat
				}
				if before.Hostname != node.Hostname {
					r.nodes.remove(before)
				}
				r.nodes.set(node)
				r.enqueueHost(ctx, q, before.Hostname)
				r.enqueueHost(ctx, q, node.Hostname)
			},
			DeleteFunc: func(o any) {
				if gone, missed := o.(toolscache.DeletedFinalStateUnknown); missed {
					o = gone.Obj
				}
				node := plan.NodeOf(o.(*corev1.Node))
				r.nodes.remove(node)
				r.enqueueHost(ctx, q, node.Hostname)
			},
		})
		if err != nil {
			return fmt.Errorf("watching nodes: %w", err)
		}
		r.nodes.mu.Lock()
		r.nodes.synced = reg.HasSynced
		r.nodes.mu.Unlock()
		return nil
	})
}

// enqueueHost enqueues the chains that are assigned to a node, or have a pod that waits for it.
func (r *reconciler) enqueueHost(ctx context.Context, q queue, host string) {
	if host == "" {
		return
	}
	var list kueue.WorkloadList
	if err := r.client.List(ctx, &list, client.MatchingFields{byHost: host}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list the workloads of a node", "hostname", host)
	}
	for i := range list.Items {
		q.AddAfter(request(list.Items[i].Namespace, slices.Chain(&list.Items[i])), batch)
	}
	if !r.late.IsFilled() {
		return
	}
	var pods corev1.PodList
	if err := r.Pods.List(ctx, &pods, client.MatchingFields{byHost: host}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list the pods that wait for a node", "hostname", host)
	}
	for i := range pods.Items {
		if chain := placement.Chain(&pods.Items[i]); chain != "" {
			q.AddAfter(request(pods.Items[i].Namespace, chain), batch)
		}
	}
}

// ofWorkloads handles Workloads that are assigned to nodes, or were until now. No write of a finished one concerns its nodes.
func (r *reconciler) ofWorkloads() handler.EventHandler {
	enqueue := func(q queue, objects ...client.Object) {
		for _, o := range objects {
			if w, ok := o.(*kueue.Workload); ok && isAssigned(w) {
				q.Add(request(w.Namespace, slices.Chain(w)))
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if w, ok := e.ObjectNew.(*kueue.Workload); !ok || !apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
				enqueue(q, e.ObjectOld, e.ObjectNew)
			}
		},
		DeleteFunc: func(context.Context, event.DeleteEvent, queue) {}, // its pods go with its job
	}
}

func isAssigned(w *kueue.Workload) bool {
	if w.Status.Admission != nil {
		for i := range w.Status.Admission.PodSetAssignments {
			if w.Status.Admission.PodSetAssignments[i].TopologyAssignment != nil {
				return true
			}
		}
	}
	return false
}

// ofPods is the source of the chains whose pods changed.
func (r *reconciler) ofPods() source.Source {
	enqueue := func(q queue, pod *corev1.Pod) {
		if chain := placement.Chain(pod); chain != "" && placement.AsksForTopology(pod) {
			q.AddAfter(request(pod.Namespace, chain), batch)
		}
	}
	type queueOfPods = workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]
	return source.Kind(r.Pods.Cache, &corev1.Pod{}, handler.TypedFuncs[*corev1.Pod, ctrlreconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Pod], q queueOfPods) { enqueue(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Pod], q queueOfPods) {
			if r.isChange(e.ObjectOld, e.ObjectNew) {
				enqueue(q, e.ObjectNew)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Pod], q queueOfPods) {
			r.written.Gone(e.Object.UID)
			if !r.isOnHealthyNode(e.Object) {
				enqueue(q, e.Object)
			}
		},
	})
}

// isChange reports whether a pod changed in anything that matters for its node. What happens to a pod of a healthy node after it was
// ungated does not, which is nearly all that happens to pods.
func (r *reconciler) isChange(before, after *corev1.Pod) bool {
	if plan.WaitsFor(before) == "" && plan.WaitsFor(after) != "" {
		return true // ungated
	}
	return !r.isOnHealthyNode(after) && (before.Spec.NodeName != after.Spec.NodeName || placement.IsOver(before) != placement.IsOver(after) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil))
}

func (r *reconciler) isOnHealthyNode(pod *corev1.Pod) bool {
	node, found := r.nodes.byHostname(pod.Spec.NodeSelector[corev1.LabelHostname])
	return found && node.IsHealthy()
}
