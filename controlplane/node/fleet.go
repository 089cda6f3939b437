package node

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-project/berth/controlplane/simnode"
)

// fleet is the set of nodes to simulate.
type fleet struct {
	nodes    []simnode.Node
	levels   []string            // keys of the topology labels among the labels of nodes
	capacity corev1.ResourceList // of every node
	version  string              // reported as the kubelet's version
}

// sync creates missing nodes, gives existing ones the fleet's labels and capacity, and deletes surplus nodes of an earlier run. It does not
// touch nodes of other programs.
func (f fleet) sync(ctx context.Context, client kubernetes.Interface, now time.Time) error {
	nodes := client.CoreV1().Nodes()
	list, err := nodes.List(ctx, metav1.ListOptions{LabelSelector: simnode.Label})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	existing := map[string]*corev1.Node{}
	for i := range list.Items {
		existing[list.Items[i].Name] = &list.Items[i]
	}
	for index, wanted := range f.nodes {
		name := wanted.Name
		node := existing[name]
		delete(existing, name)
		if node == nil {
			if _, err := nodes.Create(ctx, f.node(wanted, index, now), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("create node %s: %w", name, err)
			}
			continue
		}
		if f.relabel(node, wanted) {
			if node, err = nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
				return fmt.Errorf("label node %s: %w", name, err)
			}
		}
		if equality.Semantic.DeepEqual(node.Status.Capacity, f.capacity) {
			continue
		}
		// Update, not patch: removed resources must disappear.
		node.Status.Capacity, node.Status.Allocatable = f.capacity, f.capacity
		if _, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("resize node %s: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(existing)) {
		if err := nodes.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete node %s: %w", name, err)
		}
	}
	return nil
}

// node is a complete node, Ready from its creation: no second write is needed.
func (f fleet) node(wanted simnode.Node, index int, now time.Time) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: wanted.Name, Labels: map[string]string{
			corev1.LabelArchStable: runtime.GOARCH,
			corev1.LabelOSStable:   "linux",
			"type":                 "kwok", // charts and examples for KWOK select by it
			simnode.Label:          "true",
		}},
	}
	f.relabel(node, wanted)
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.32.%d.%d", index/250, index%250+1)},
		{Type: corev1.NodeHostName, Address: wanted.Name},
	}
	node.Status = f.status(node, now)
	return node
}

// relabel gives a node its labels, takes the topology labels of an earlier run away, and reports whether that changed anything. Labels of
// users stay.
func (f fleet) relabel(node *corev1.Node, wanted simnode.Node) (changed bool) {
	for key := range strings.SplitSeq(node.Annotations[simnode.LevelsAnnotation], ",") {
		if _, had := node.Labels[key]; had && wanted.Labels[key] == "" {
			delete(node.Labels, key)
			changed = true
		}
	}
	for key, value := range wanted.Labels {
		if node.Labels[key] != value {
			node.Labels[key] = value
			changed = true
		}
	}
	if levels := strings.Join(f.levels, ","); node.Annotations[simnode.LevelsAnnotation] != levels {
		delete(node.Annotations, simnode.LevelsAnnotation)
		if levels != "" {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, simnode.LevelsAnnotation, levels)
		}
		changed = true
	}
	return changed
}

// status is the status of a Ready node. Present capacity, addresses and software of the node are kept.
func (f fleet) status(node *corev1.Node, now time.Time) corev1.NodeStatus {
	status := corev1.NodeStatus{
		Capacity:    node.Status.Capacity,
		Allocatable: node.Status.Allocatable,
		Addresses:   node.Status.Addresses,
		NodeInfo:    node.Status.NodeInfo,
	}
	if len(status.Capacity) == 0 {
		status.Capacity = f.capacity
	}
	if len(status.Allocatable) == 0 {
		status.Allocatable = status.Capacity
	}
	if len(status.Addresses) == 0 {
		status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.32.255.254"}, {Type: corev1.NodeHostName, Address: node.Name}}
	}
	if status.NodeInfo.KubeletVersion == "" {
		status.NodeInfo = corev1.NodeSystemInfo{
			Architecture: runtime.GOARCH, OperatingSystem: "linux", OSImage: "simulated",
			KubeletVersion: f.version, ContainerRuntimeVersion: "kwok://" + strings.TrimPrefix(kwokVersion, "v"),
		}
	}
	stamp := metav1.NewTime(now)
	for _, condition := range []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "simulated by KWOK"},
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID"},
	} {
		condition.LastHeartbeatTime, condition.LastTransitionTime = stamp, stamp
		status.Conditions = append(status.Conditions, condition)
	}
	return status
}
