// Package health decides about Workloads whose nodes fail: which nodes are unhealthy, when a Workload is evicted, and which of its pods can
// never run (spec: 20 §4.9).
//
//	nodes of the assignment ─┐           ┌─► status.unhealthyNodes: one node, which the engine replaces
//	taints, tolerations ─────┼─► Decide ─┼─► an eviction, if a second node failed
//	pods of the Workload ────┘           └─► stuck pods to fail, so that their job creates them again
//
// It is about assignments whose narrowest level is the hostname: other domains have several nodes.
package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/placement/plan"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// grace is how long a node may be not ready under the rules with a fixed time.
const grace = 30 * time.Second

// maxRecorded is the maximum length of a name in status.unhealthyNodes. Names of nodes may be longer.
const maxRecorded = 63

// Gates are the feature gates of node failures.
type Gates struct {
	OnPodTermination bool // TASReplaceNodeOnPodTermination
	OnTaints         bool // TASReplaceNodeOnNodeTaints
	AfterFixedTime   bool // TASReplaceNodeDueToNotReadyOverFixedTime
	KeepPodOwned     bool // SkipReassignmentForPodOwnedWorkloads
}

// Node is what matters of a node.
type Node struct {
	Name, Hostname string
	Reported       bool // it has a Ready condition
	Ready          bool
	Since          time.Time // of the present status of the Ready condition
	Taints         []corev1.Taint
}

// NodeOf returns what matters of a node. A node without the label of the hostname has an empty one.
func NodeOf(n *corev1.Node) Node {
	out := Node{Name: n.Name, Hostname: n.Labels[corev1.LabelHostname]}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Reported, out.Ready, out.Since = true, c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	for _, t := range n.Spec.Taints {
		if repels(&t) {
			out.Taints = append(out.Taints, t)
		}
	}
	return out
}

// IsHealthy reports whether a node takes the pods of any Workload.
func (n *Node) IsHealthy() bool { return n.Reported && n.Ready && len(n.Taints) == 0 }

// Equal reports whether two nodes are the same for all Workloads.
func (n *Node) Equal(other *Node) bool {
	return n.Name == other.Name && n.Hostname == other.Hostname && n.Reported == other.Reported && n.Ready == other.Ready &&
		n.Since.Equal(other.Since) && slices.EqualFunc(n.Taints, other.Taints, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value })
}

// Hosts returns the hostnames of the nodes that a Workload is assigned to, also of the places that it may have given back by shrinking.
func Hosts(w *kueue.Workload) []string {
	v := &view{Observed: &Observed{Workload: w}, sets: map[string][]*kueue.PodSetAssignment{}}
	v.readAssignments(func(a *kueue.PodSetAssignment) ([]assignment.Domain, error) {
		return assignment.Decode(a.TopologyAssignment)
	})
	return v.hosts
}

// Observed is a Workload with its pods, and the objects that decide about its nodes.
type Observed struct {
	Workload *kueue.Workload
	Pods     []*corev1.Pod
	// Node returns the node with a hostname, and false if there is none. A deleted node whose name is still known is one that has reported
	// nothing.
	Node func(hostname string) (Node, bool)
	// Flavors has the flavors of the admission that exist.
	Flavors job.Flavors
	Now     time.Time
}

// Decision is what to do about a Workload.
type Decision struct {
	// Evict is the message of an eviction with the reason NodeFailures, empty for none.
	Evict string
	// Unhealthy is the list of unhealthy nodes that the status should have, if Changed.
	Unhealthy []kueue.UnhealthyNode
	Changed   bool
	// Stuck are the pods to fail, by name. There are none with an eviction.
	Stuck []*corev1.Pod
	// Strays are the pods to fail because the Workload has no assignment on their node. Whether that is still so must be asked of the API
	// server first: a cache may show an older assignment.
	Strays []*corev1.Pod
	// Wake is when a node becomes unhealthy by time alone; zero is never.
	Wake time.Time
}

// Decide returns what to do about a Workload.
func (g Gates) Decide(o *Observed) Decision {
	v := &view{Observed: o, gates: g, sets: map[string][]*kueue.PodSetAssignment{}, live: map[string]bool{}}
	v.readAssignments(func(a *kueue.PodSetAssignment) ([]assignment.Domain, error) {
		return plan.Places(o.Workload, a, o.Pods)
	})
	v.readPods()
	var d Decision
	isVariant := plan.IsVariant(o.Workload) // its parent has the pods, and so the failed nodes (spec: 20 §4.13)
	if chain.LetsPodsRun(o.Workload) && !isVariant {
		v.judgeNodes(&d)
	}
	if d.Evict == "" {
		v.findStuck(&d)
	}
	return d
}

// view is a Workload while it is decided about.
type view struct {
	*Observed
	gates Gates
	// sets are the pod sets by the hostname of each of their nodes.
	sets map[string][]*kueue.PodSetAssignment
	// hosts are the hostnames of all nodes of the assignment, sorted.
	hosts []string
	// other is true if a pod set is not assigned to nodes.
	other bool
	// live are the names of the nodes with a live pod.
	live map[string]bool
	// tolerated are the tolerations of the pod sets, computed once each.
	tolerated map[kueue.PodSetReference][]corev1.Toleration
}

// readPods finds the nodes on which a pod of the Workload runs. A pod that waits for its node does not.
func (v *view) readPods() {
	for _, pod := range v.Pods {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && !job.PodIsOver(pod) {
			v.live[pod.Spec.NodeName] = true
		}
	}
}

func (v *view) readAssignments(places func(*kueue.PodSetAssignment) ([]assignment.Domain, error)) {
	if v.Workload.Status.Admission == nil || plan.IsVariant(v.Workload) {
		return
	}
	for i := range v.Workload.Status.Admission.PodSetAssignments {
		a := &v.Workload.Status.Admission.PodSetAssignments[i]
		domains, err := places(a)
		if err != nil || a.TopologyAssignment == nil || !assignment.IsByHostname(a.TopologyAssignment.Levels) {
			v.other = true // also a broken assignment, which assigns nothing
			continue
		}
		for _, d := range domains {
			host := d.Values[len(d.Values)-1]
			if len(v.sets[host]) == 0 {
				v.hosts = append(v.hosts, host)
			}
			v.sets[host] = append(v.sets[host], a)
		}
	}
	slices.Sort(v.hosts)
}

// judgeNodes compares the failed nodes with the recorded one. A second one evicts (spec: 20 §7 #36), and so does one whose name is too long
// for the list; a node that is not unhealthy is removed from the list.
func (v *view) judgeNodes(d *Decision) {
	var failed []string
	for _, host := range v.hosts {
		node, exists := v.Node(host)
		if !exists {
			failed = append(failed, host) // the name of the node, as far as is known
			continue
		}
		unhealthy, wake := v.gates.judge(&node, v.worstToleration(host, &node), v.live[node.Name], v.Now)
		if unhealthy {
			failed = append(failed, node.Name)
		} else if !wake.IsZero() && (d.Wake.IsZero() || wake.Before(d.Wake)) {
			d.Wake = wake
		}
	}
	if len(failed) > 1 {
		d.Evict = fmt.Sprintf("The nodes %s failed, and the placement can be repaired for one node at a time", strings.Join(failed, " and "))
		return
	}
	if v.gates.KeepPodOwned && isOfOnePod(v.Workload) {
		failed = nil // its only pod is bound to the node, and ends with it
	}
	for _, name := range failed {
		if len(name) > maxRecorded {
			d.Evict = fmt.Sprintf("The node %s failed, and the placement cannot be repaired: its name has more than %d characters", name, maxRecorded)
			return
		}
		d.Unhealthy = append(d.Unhealthy, kueue.UnhealthyNode{Name: name})
	}
	d.Changed = !slices.Equal(d.Unhealthy, v.Workload.Status.UnhealthyNodes)
}

// judge returns whether a node is unhealthy for a Workload and, if only time is missing, when it will be.
func (g Gates) judge(n *Node, worst tolerance, live bool, now time.Time) (unhealthy bool, wake time.Time) {
	switch {
	case !n.Reported:
		return true, time.Time{}
	case n.Ready && (worst == tolerated || !g.OnTaints):
		return false, time.Time{}
	case n.Ready:
		return !live || (worst == untolerated && !g.OnPodTermination), time.Time{}
	case g.OnPodTermination && !live:
		return true, time.Time{}
	case g.OnPodTermination && !g.AfterFixedTime:
		return false, time.Time{}
	}
	due := n.Since.Add(grace)
	if due.After(now) {
		return false, due
	}
	return true, time.Time{}
}

// findStuck finds ungated pods that wait for a node that will not take them. Pods of a missing node may still find it again.
func (v *view) findStuck(d *Decision) {
	for _, pod := range v.Pods {
		host := WaitsFor(pod)
		if host == "" {
			continue
		}
		node, exists := v.Node(host)
		switch {
		case !exists || !node.Reported:
		case len(v.sets[host]) == 0:
			if !v.other { // else the host may be a wish of the user
				d.Strays = append(d.Strays, pod)
			}
		case !node.Ready || (v.gates.OnTaints && v.worstToleration(host, &node) != tolerated):
			d.Stuck = append(d.Stuck, pod)
		}
	}
	byName := func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(d.Stuck, byName)
	slices.SortFunc(d.Strays, byName)
}

// WaitsFor returns the hostname of the node that an ungated pod waits for, and empty if it waits for none: it has a node, is over or is
// being deleted, or no topology was requested for it.
func WaitsFor(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" || pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil ||
		plan.IsUnplaced(pod) || !plan.AsksForTopology(pod) {
		return ""
	}
	return pod.Spec.NodeSelector[corev1.LabelHostname]
}

// isOfOnePod reports whether the only owner of a Workload is a pod. A pod group has several owners, or a label.
func isOfOnePod(w *kueue.Workload) bool {
	return len(w.OwnerReferences) == 1 && w.OwnerReferences[0].Kind == "Pod" && w.OwnerReferences[0].APIVersion == "v1" &&
		w.Annotations[kueue.IsGroupWorkloadAnnotation] != "true"
}
