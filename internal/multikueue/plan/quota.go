package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Contribution is the quota of one worker cluster for a ClusterQueue of the manager. Quantities of one resource have a fixed order, so
// that their sum is always written in the same way.
type Contribution map[corev1.ResourceName][]resource.Quantity

// Contribute returns the nominal quota, over all flavors, of the ClusterQueues behind the LocalQueues with the given names, each
// ClusterQueue once. Cohorts do not count (spec: 40 §4.11).
func Contribute(related []types.NamespacedName, localQueues []*kueue.LocalQueue, clusterQueues []*kueue.ClusterQueue) Contribution {
	var used []kueue.ClusterQueueReference
	for _, lq := range localQueues {
		if slices.Contains(related, types.NamespacedName{Namespace: lq.Namespace, Name: lq.Name}) {
			used = append(used, lq.Spec.ClusterQueue)
		}
	}
	sorted := slices.SortedFunc(slices.Values(clusterQueues), func(a, b *kueue.ClusterQueue) int { return cmp.Compare(a.Name, b.Name) })
	out := Contribution{}
	for _, cq := range sorted {
		if !slices.Contains(used, kueue.ClusterQueueReference(cq.Name)) {
			continue
		}
		for _, g := range cq.Spec.ResourceGroups {
			for _, f := range g.Flavors {
				for _, r := range f.Resources {
					out[r.Name] = append(out[r.Name], r.NominalQuota)
				}
			}
		}
	}
	return out
}

// Automate sets the quota of a ClusterQueue to the sum of contributions, and returns whether that changed its spec. If that is not
// possible it returns why, and leaves the quota alone.
func Automate(cq *kueue.ClusterQueue, parts []Contribution) (changed bool, unsupported string) {
	if unsupported = oneFlavor(cq); unsupported != "" {
		return false, unsupported
	}
	group := &cq.Spec.ResourceGroups[0]
	var missing []string
	for _, part := range parts {
		for name := range part { //berth:unordered sorted below
			if !slices.Contains(group.CoveredResources, name) && !slices.Contains(missing, string(name)) {
				missing = append(missing, string(name))
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return false, "worker clusters have quota of resources that are not in coveredResources: " + strings.Join(missing, ", ")
	}
	flavor := &group.Flavors[0]
	next := make([]kueue.ResourceQuota, 0, len(group.CoveredResources))
	for _, name := range group.CoveredResources {
		quota := kueue.ResourceQuota{Name: name}
		if at := slices.IndexFunc(flavor.Resources, func(r kueue.ResourceQuota) bool { return r.Name == name }); at >= 0 {
			quota = *flavor.Resources[at].DeepCopy() // with its limits
		}
		sum := resource.Quantity{Format: resource.DecimalSI}
		for _, part := range parts {
			for _, q := range part[name] {
				sum.Add(q) // the first that is not zero determines its notation
			}
		}
		if quota.NominalQuota.Cmp(sum) != 0 {
			quota.NominalQuota = sum
		}
		next = append(next, quota)
	}
	same := func(a, b kueue.ResourceQuota) bool {
		return a.Name == b.Name && a.NominalQuota.Cmp(b.NominalQuota) == 0
	}
	if slices.EqualFunc(flavor.Resources, next, same) {
		return false, ""
	}
	flavor.Resources = next
	return true, ""
}

func oneFlavor(cq *kueue.ClusterQueue) string {
	flavors := 0
	for _, g := range cq.Spec.ResourceGroups {
		flavors += len(g.Flavors)
	}
	if len(cq.Spec.ResourceGroups) == 1 && flavors == 1 {
		return ""
	}
	return fmt.Sprintf("there must be one resource group with one flavor, and there are %d with %d", len(cq.Spec.ResourceGroups), flavors)
}
