// Package capacity turns nodes, and the pods that no topology assignment accounts for, into what nodes offer and what is used of it.
//
//	Node ──► NodeOf ──────────────────────────────────► name, labels, taints, allocatable
//	Pod  ──► Set, Remove: one small entry for each pod ─► used on each node, kept incrementally
//
// Heartbeats and images of nodes, and everything of a pod but its node and its requests, change nothing (spec: 20 §4.5, §4.8).
package capacity

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Amounts are amounts of several resources, sorted by resource. A resource that is not listed has an amount of 0.
type Amounts []state.Request

// Of returns the amount of a resource.
func (a Amounts) Of(name string) resource.Amount {
	at, found := slices.BinarySearchFunc(a, name, func(q state.Request, name string) int { return strings.Compare(q.Resource, name) })
	if !found {
		return 0
	}
	return a[at].Amount
}

// Node is what placement needs of a node.
type Node struct {
	Name   string
	Labels map[string]string // shared with the object, and not to be changed
	// Taints are the taints that keep pods from starting.
	Taints []workload.Taint
	// Ready is the Ready condition; Schedulable is false for a cordoned node.
	Ready, Schedulable bool
	Allocatable        Amounts
}

// Event is the event that tells a State of the node.
func (n Node) Event() state.SetNode {
	return state.SetNode{
		Name: n.Name, Labels: n.Labels, Taints: n.Taints, Ready: n.Ready, Schedulable: n.Schedulable, Allocatable: n.Allocatable,
	}
}

// NodeOf returns what placement needs of a node.
func NodeOf(n *corev1.Node) Node {
	out := Node{Name: n.Name, Labels: n.Labels, Schedulable: !n.Spec.Unschedulable, Allocatable: amounts(n.Status.Allocatable, floor)}
	for _, t := range n.Spec.Taints {
		if taint := (workload.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}); taint.Repels() {
			out.Taints = append(out.Taints, taint)
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return out
}

// IsChange reports whether a node differs in anything that placement, or a condition of an operator, depends on: its labels, annotations,
// taints, allocatable resources, the status of a condition, or whether it is cordoned or being deleted. Heartbeats and images are no change.
func IsChange(before, after *corev1.Node) bool {
	return before.Spec.Unschedulable != after.Spec.Unschedulable || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		!equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable) ||
		!maps.Equal(conditions(before), conditions(after))
}

func conditions(n *corev1.Node) map[corev1.NodeConditionType]corev1.ConditionStatus {
	out := make(map[corev1.NodeConditionType]corev1.ConditionStatus, len(n.Status.Conditions))
	for _, c := range n.Status.Conditions {
		out[c.Type] = c.Status
	}
	return out
}

// TrimNode returns a node with only the fields that NodeOf, IsChange, node failures and quota that follows nodes read. It takes the maps of the node.
func TrimNode(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{TypeMeta: n.TypeMeta}
	out.Name, out.UID, out.ResourceVersion, out.DeletionTimestamp = n.Name, n.UID, n.ResourceVersion, n.DeletionTimestamp
	out.CreationTimestamp = n.CreationTimestamp
	out.Labels, out.Annotations = n.Labels, n.Annotations
	out.Spec.Taints, out.Spec.Unschedulable = n.Spec.Taints, n.Spec.Unschedulable
	out.Status.Allocatable = n.Status.Allocatable
	for _, c := range n.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, corev1.NodeCondition{
			Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime,
		})
	}
	return out
}

func amounts(list corev1.ResourceList, of func(corev1.ResourceName, apiresource.Quantity) resource.Amount) Amounts {
	out := make(Amounts, 0, len(list))
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if amount := of(name, list[name]); amount > 0 {
			out = append(out, state.Request{Resource: string(name), Amount: amount})
		}
	}
	return out
}

// floor rounds an offer down, where requests are rounded up.
func floor(name corev1.ResourceName, q apiresource.Quantity) resource.Amount {
	amount := convert.Amount(name, q)
	if rounded := convert.Quantity(name, amount); rounded.Cmp(q) > 0 {
		amount--
	}
	return amount
}
