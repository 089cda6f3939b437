package node

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listerscorev1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/berth-project/berth/controlplane/simnode"
)

// The conditions of a node that fails are the node lifecycle controller's for a node whose heartbeats have stopped for its grace period,
// and lead it to the same taints.
const (
	unknownReason  = "NodeStatusUnknown"
	unknownMessage = "Kubelet stopped posting node status."

	// unmanagedPoll is how soon it is checked again whether KWOK has stopped handling the pods of a node.
	unmanagedPoll = 20 * time.Millisecond
)

// failures follows the annotation of nodes that are made to fail. It makes such a node NotReady at once, which would otherwise take a
// grace period, but not before KWOK has stopped handling its pods. KWOK makes a node Ready that recovers.
type failures struct {
	client  kubernetes.Interface
	managed func() []string // the nodes whose pods KWOK handles
	now     func() time.Time
	nodes   listerscorev1.NodeLister
	queue   workqueue.TypedRateLimitingInterface[string]
}

// followFailures follows all nodes until ctx ends.
func followFailures(ctx context.Context, client kubernetes.Interface, managed func() []string) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	f := &failures{
		client: client, managed: managed, now: time.Now, nodes: factory.Core().V1().Nodes().Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	_, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if node, ok := object.(*corev1.Node); ok && simnode.HasFailed(node) {
				f.queue.Add(node.Name)
			}
		},
		UpdateFunc: func(before, object any) {
			old, was := before.(*corev1.Node)
			if node, is := object.(*corev1.Node); was && is && (simnode.HasFailed(old) || simnode.HasFailed(node)) {
				f.queue.Add(node.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	factory.StartWithContext(ctx)
	go func() {
		<-ctx.Done()
		f.queue.ShutDown()
	}()
	go func() {
		for f.next(ctx) {
		}
	}()
	return nil
}

// next handles one node. It returns false at the end.
func (f *failures) next(ctx context.Context) bool {
	name, over := f.queue.Get()
	if over {
		return false
	}
	defer f.queue.Done(name)
	again, err := f.follow(ctx, name)
	switch {
	case err != nil && ctx.Err() == nil:
		fmt.Fprintf(os.Stderr, "node %s: %v\n", name, err)
		f.queue.AddRateLimited(name)
	case again > 0:
		f.queue.AddAfter(name, again)
	default:
		f.queue.Forget(name)
	}
	return true
}

// follow makes one node NotReady, or renews the lease of one that recovers. It returns when to do so again.
func (f *failures) follow(ctx context.Context, name string) (again time.Duration, err error) {
	node, err := f.nodes.Get(name)
	if err != nil {
		return 0, nil //nolint:nilerr // it was deleted
	}
	if !simnode.HasFailed(node) {
		return 0, renew(ctx, f.client, node, f.now())
	}
	if slices.Contains(f.managed(), name) {
		return unmanagedPoll, nil
	}
	silent := node.DeepCopy()
	if !silence(silent, f.now()) {
		return 0, nil
	}
	_, err = f.client.CoreV1().Nodes().UpdateStatus(ctx, silent, metav1.UpdateOptions{})
	return 0, err
}

// silence sets the conditions of a node to Unknown. It reports whether that changed anything.
func silence(node *corev1.Node, now time.Time) (changed bool) {
	conditions := &node.Status.Conditions
	if !slices.ContainsFunc(*conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }) {
		*conditions = append(*conditions, corev1.NodeCondition{Type: corev1.NodeReady})
	}
	for i := range *conditions {
		if c := &(*conditions)[i]; c.Status != corev1.ConditionUnknown {
			c.Status, c.Reason, c.Message = corev1.ConditionUnknown, unknownReason, unknownMessage
			c.LastTransitionTime = metav1.NewTime(now)
			changed = true
		}
	}
	return changed
}
