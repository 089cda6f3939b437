// Package capacity watches the nodes, and the pods that no topology assignment accounts for, and reports what nodes offer and what is used
// of it.
//
//	Nodes ─► changes that matter ──────────────► SetNode, RemoveNode ─┐
//	Pods  ─► node and requests, 100 bytes each ─► SetForeign ─────────┴─► Sink: the engine
//
// The watch of pods keeps no pods: the API server is asked for pods that have a node and are not over, and each leaves one small entry. All
// replicas watch, so that a new leader knows the capacity (spec: 20 §4.5, §4.8).
package capacity

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	plan "github.com/berth-project/berth/internal/placement/plan/capacity"
)

// Sink takes the capacity. Calls about nodes and calls about pods come from two goroutines, and the usage of a node may come before the
// node itself, or without it. A call must not block for long.
type Sink interface {
	// SetNode is called for a new node, and for a change of it that may matter.
	SetNode(plan.Node)
	RemoveNode(name string)
	// SetForeign is called with the usage of a node by pods that no topology assignment accounts for, whenever it changes.
	SetForeign(node string, used plan.Amounts)
}

// Options are the settings of the watches.
type Options struct {
	Sink Sink
	// Follow is [reconcile.Follow].
	Follow func(ctx context.Context, from toolscache.ListerWatcher, o runtime.Object, into toolscache.ReflectorStore, name string)
	// Needed begins the watches when it is closed; nil is at once. Clusters without topologies need none.
	Needed <-chan struct{}
	// Synced, unless nil, is called once, when everything that exists at the start has been reported.
	Synced func()
}

// +kubebuilder:rbac:groups="",resources=nodes;pods,verbs=get;list;watch,roleName=kueue-manager-topology-role

// Setup adds the watches to the manager. Nodes come from its cache, for which Trim is the transform.
func Setup(mgr ctrl.Manager, o Options) error {
	client, err := apiutil.RESTClientForGVK(corev1.SchemeGroupVersion.WithKind("Pod"), false, false, mgr.GetConfig(),
		serializer.NewCodecFactory(mgr.GetScheme()), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	return mgr.Add(&watches{
		Options: o, nodes: mgr.GetCache(), pods: toolscache.NewListWatchFromClient(client, string(corev1.ResourcePods), metav1.NamespaceAll, countable()),
	})
}

// Trim is the transform of a cache of nodes, which drops images, heartbeats and everything else that is not read.
func Trim(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		return plan.TrimNode(node), nil
	}
	return object, nil
}

// countable selects the pods that may count. A pod that is over leaves the selection, which the watch reports as its deletion.
func countable() fields.Selector {
	return fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.nodeName", ""),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
}

// watches is the runnable.
type watches struct {
	Options
	nodes cache.Cache
	pods  toolscache.ListerWatcher
}

// NeedLeaderElection is false.
func (*watches) NeedLeaderElection() bool { return false }

// Start watches until ctx ends, once that is needed.
func (w *watches) Start(ctx context.Context) error {
	if w.Needed != nil {
		select {
		case <-w.Needed:
		case <-ctx.Done():
			return nil
		}
	}
	informer, err := w.nodes.GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	reg, err := informer.AddEventHandler(w.ofNodes())
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	store := &podStore{set: w.Sink.SetForeign}
	var running sync.WaitGroup
	running.Go(func() { w.Follow(ctx, w.pods, &corev1.Pod{}, store, "pods that use capacity") })
	if toolscache.WaitForCacheSync(ctx.Done(), reg.HasSynced, store.isFilled) && w.Synced != nil {
		w.Synced()
	}
	running.Wait()
	return nil
}

func (w *watches) ofNodes() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { w.Sink.SetNode(plan.NodeOf(o.(*corev1.Node))) },
		UpdateFunc: func(old, o any) {
			if node := o.(*corev1.Node); plan.IsChange(old.(*corev1.Node), node) {
				w.Sink.SetNode(plan.NodeOf(node))
			}
		},
		DeleteFunc: func(o any) {
			if gone, missed := o.(toolscache.DeletedFinalStateUnknown); missed {
				o = gone.Obj
			}
			w.Sink.RemoveNode(o.(*corev1.Node).Name)
		},
	}
}
