package node

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/berth-project/berth/controlplane/simnode"
)

// responsive is a client in which nodes that are made to fail do not exist. KWOK ignores pods of nodes that it does not know, and handles
// all pods of a node that appears. Its own selector of annotations is of no use here: it is not asked again when a node changes.
type responsive struct{ kubernetes.Interface }

func (c responsive) CoreV1() typedcorev1.CoreV1Interface { return responsiveCore{c.Interface.CoreV1()} }

type responsiveCore struct{ typedcorev1.CoreV1Interface }

func (c responsiveCore) Nodes() typedcorev1.NodeInterface {
	return responsiveNodes{c.CoreV1Interface.Nodes()}
}

type responsiveNodes struct{ typedcorev1.NodeInterface }

func (n responsiveNodes) List(ctx context.Context, options metav1.ListOptions) (*corev1.NodeList, error) {
	list, err := n.NodeInterface.List(ctx, options)
	if err != nil {
		return nil, err
	}
	list.Items = slices.DeleteFunc(list.Items, func(node corev1.Node) bool { return simnode.HasFailed(&node) })
	return list, nil
}

// Watch reports each change of a failed node as its deletion. The change with which it recovers adds it again: an informer adds an object
// that its cache does not have, whatever the type of the event.
func (n responsiveNodes) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := n.NodeInterface.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
		if node, ok := event.Object.(*corev1.Node); ok && simnode.HasFailed(node) {
			event.Type = watch.Deleted
		}
		return event, true
	}), nil
}
