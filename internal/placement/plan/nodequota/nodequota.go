// Package nodequota computes the quota that follows nodes: of each flavor a share of what its ready, schedulable nodes offer.
//
//	annotation ──► ShareOf ─┐
//	nodes, flavors ─────────┴─► Follow ─► nominalQuota of every flavor of a ClusterQueue or Cohort, and when it changes by time alone
//
// It keeps no state: how long a node has not been ready is read from the node, so that a restart decides the same.
package nodequota

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/placement/plan/capacity"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Annotation makes nominalQuota of a ClusterQueue, or of a Cohort without a parent, follow the nodes of its flavors. Its value is a share of
// their allocatable resources, a whole percentage from 1% to 100%.
const Annotation = "berth.dev/quota-from-nodes"

// Grace is for how long a node that is not ready counts on: a node that restarts, or loses its connection for seconds, moves no quota.
const Grace = time.Minute

// settling is how long after its creation a node that is not ready is taken for one that was never ready.
const settling = 10 * time.Second

// ShareOf returns the share of an object in percent, 0 without the annotation. The error describes the values that are allowed.
func ShareOf(annotations map[string]string) (percent int64, err error) {
	value, set := annotations[Annotation]
	if !set {
		return 0, nil
	}
	number, is := strings.CutSuffix(value, "%")
	percent, err = strconv.ParseInt(number, 10, 64)
	if !is || err != nil || percent < 1 || percent > 100 || strconv.FormatInt(percent, 10) != number {
		return 0, fmt.Errorf("must be a whole percentage from 1%% to 100%%, such as 90%%")
	}
	return percent, nil
}

// transient are taints of the control plane that come and go with the state of a node. Readiness and cordons are read from the node itself,
// and a node under pressure is still a node of its flavor.
var transient = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeMemoryPressure,
	corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeNetworkUnavailable,
}

// Is reports whether a node is one of a flavor: it has all labels of the flavor, and no taint that keeps pods away, unless the flavor
// declares or tolerates it (spec: 10 §2.4).
func Is(node *corev1.Node, flavor *kueue.ResourceFlavor) bool {
	for key, value := range flavor.Spec.NodeLabels { //berth:unordered each must match
		if have, has := node.Labels[key]; !has || have != value {
			return false
		}
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || slices.Contains(transient, taint.Key) {
			continue
		}
		declared := slices.ContainsFunc(flavor.Spec.NodeTaints, func(t corev1.Taint) bool { return t.MatchTaint(taint) && t.Value == taint.Value })
		tolerated := slices.ContainsFunc(flavor.Spec.Tolerations, func(t corev1.Toleration) bool { return tolerates(&t, taint) })
		if !declared && !tolerated {
			return false
		}
	}
	return true
}

func tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	return t.Operator == corev1.TolerationOpExists || t.Key != "" && t.Value == taint.Value
}

// Counts reports whether a node offers capacity. A node that is not ready counts until the returned time, which is zero for one that is ready
// or does not count.
func Counts(node *corev1.Node, now time.Time) (counts bool, until time.Time) {
	if node.Spec.Unschedulable || node.DeletionTimestamp != nil {
		return false, time.Time{}
	}
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		since := c.LastTransitionTime.Time
		switch until = since.Add(Grace); {
		case c.Status == corev1.ConditionTrue:
			return true, time.Time{}
		case since.Sub(node.CreationTimestamp.Time) > settling && now.Before(until):
			return true, until
		}
	}
	return false, time.Time{}
}

// Result is the quota of an object.
type Result struct {
	// Groups are the resource groups with the quota that they should have.
	Groups  []kueue.ResourceGroup
	Changed bool
	// Nodes is the number of nodes that count, over all flavors.
	Nodes int
	// Wake is when a node that is not ready stops counting; zero is never.
	Wake time.Time
	// Missing are the flavors that do not exist. Their quota is left as it is.
	Missing []string
}

// Follow returns the quota that follows the nodes. A resource that no node of a flavor offers has a quota of 0. Amounts are rounded down.
func Follow(groups []kueue.ResourceGroup, flavor func(kueue.ResourceFlavorReference) *kueue.ResourceFlavor, nodes []*corev1.Node, percent int64, now time.Time) Result {
	var out Result
	for i := range groups {
		group := groups[i].DeepCopy()
		for j := range group.Flavors {
			f := &group.Flavors[j]
			is := flavor(f.Name)
			if is == nil {
				out.Missing = append(out.Missing, string(f.Name))
				continue
			}
			offer := out.sum(is, nodes, now)
			for k := range f.Resources {
				r := &f.Resources[k]
				quota := convert.Quantity(r.Name, part(offer[string(r.Name)], percent))
				if quota.Cmp(r.NominalQuota) != 0 {
					r.NominalQuota, out.Changed = quota, true
				}
			}
		}
		out.Groups = append(out.Groups, *group)
	}
	return out
}

// sum returns what the nodes of a flavor offer, by resource.
func (r *Result) sum(flavor *kueue.ResourceFlavor, nodes []*corev1.Node, now time.Time) map[string]resource.Amount {
	offer := map[string]resource.Amount{}
	for _, node := range nodes {
		if !Is(node, flavor) {
			continue
		}
		counts, until := Counts(node, now)
		if !counts {
			continue
		}
		r.Nodes++
		if !until.IsZero() && (r.Wake.IsZero() || until.Before(r.Wake)) {
			r.Wake = until
		}
		for _, q := range capacity.NodeOf(node).Allocatable {
			offer[q.Resource] += q.Amount
		}
	}
	return offer
}

// part returns a percentage of an amount, rounded down, without the overflow of a product.
func part(amount resource.Amount, percent int64) resource.Amount {
	share := resource.Amount(percent)
	return amount/100*share + amount%100*share/100
}
