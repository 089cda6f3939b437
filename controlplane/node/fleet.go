package node

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-project/berth/controlplane/supervise"
)

// namePrefix begins the names of the nodes that this package makes; their index, from 0, follows.
const namePrefix = "berth-node-"

// fleet is the set of nodes to simulate.
type fleet struct {
	count    int
	capacity corev1.ResourceList // of every node
	version  string              // reported as the kubelet's version
}

// sync creates missing nodes, gives existing ones the fleet's capacity, and deletes surplus nodes of an earlier run. It does not touch
// nodes of other programs.
func (f fleet) sync(ctx context.Context, client kubernetes.Interface, now time.Time) error {
	nodes := client.CoreV1().Nodes()
	list, err := nodes.List(ctx, metav1.ListOptions{LabelSelector: supervise.NodeLabel})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	existing := map[string]*corev1.Node{}
	for i := range list.Items {
		existing[list.Items[i].Name] = &list.Items[i]
	}
	for index := range f.count {
		name := namePrefix + strconv.Itoa(index)
		node := existing[name]
		delete(existing, name)
		if node == nil {
			if _, err := nodes.Create(ctx, f.node(name, index, now), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("create node %s: %w", name, err)
			}
			continue
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
func (f fleet) node(name string, index int, now time.Time) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname:   name,
			corev1.LabelArchStable: runtime.GOARCH,
			corev1.LabelOSStable:   "linux",
			"type":                 "kwok", // charts and examples for KWOK select by it
			supervise.NodeLabel:    "true",
		}},
	}
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.32.%d.%d", index/250, index%250+1)},
		{Type: corev1.NodeHostName, Address: name},
	}
	node.Status = f.status(node, now)
	return node
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
