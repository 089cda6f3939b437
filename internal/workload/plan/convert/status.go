package convert

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/state"
)

// Admission returns a grant of the engine as a Workload's status records it.
func Admission(g state.Grant, r Requests) *kueue.Admission {
	a := &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(g.Queue)}
	for _, ps := range g.PodSets {
		count := ps.Count
		out := kueue.PodSetAssignment{Name: kueue.PodSetReference(ps.Name), Count: &count}
		for _, h := range ps.Held {
			if out.Flavors == nil {
				out.Flavors = map[corev1.ResourceName]kueue.ResourceFlavorReference{}
				out.ResourceUsage = corev1.ResourceList{}
			}
			name := corev1.ResourceName(h.Resource)
			out.Flavors[name] = kueue.ResourceFlavorReference(h.Flavor)
			out.ResourceUsage[name] = Quantity(name, h.Amount)
		}
		if ps.Delayed {
			pending := kueue.DelayedTopologyRequestPending
			out.DelayedTopologyRequest = &pending
		}
		out.TopologyAssignment = TopologyAssignment(ps.Placement, r)
		a.PodSetAssignments = append(a.PodSetAssignments, out)
	}
	return a
}

// ResourceRequests returns the totals of every pod set, as the status of a pending workload shows them.
func ResourceRequests(w *kueue.Workload, r Requests) []kueue.PodSetRequest {
	var out []kueue.PodSetRequest
	pods, _ := r.pods(w)
	charges := r.devices(w, pods)
	for i := range w.Spec.PodSets {
		ps := r.podSet(w, i, &pods[i], charges)
		request := kueue.PodSetRequest{Name: kueue.PodSetReference(ps.Name)}
		for _, q := range ps.Requests {
			if request.Resources == nil {
				request.Resources = corev1.ResourceList{}
			}
			name := corev1.ResourceName(q.Resource)
			request.Resources[name] = Quantity(name, q.Amount)
		}
		out = append(out, request)
	}
	return out
}

// FlavorUsage lists usage for every flavor and resource of the groups, zeros
// included and nothing else, flavors in spec order and resources by name.
// spec: 10 §2.2.
func FlavorUsage(groups []kueue.ResourceGroup, used, borrowed []state.Held) []kueue.FlavorUsage {
	var out []kueue.FlavorUsage
	for _, g := range groups {
		for _, f := range g.Flavors {
			fu := kueue.FlavorUsage{Name: f.Name}
			for _, r := range f.Resources {
				fu.Resources = append(fu.Resources, kueue.ResourceUsage{
					Name:     r.Name,
					Total:    Quantity(r.Name, find(used, f.Name, r.Name)),
					Borrowed: Quantity(r.Name, find(borrowed, f.Name, r.Name)),
				})
			}
			slices.SortFunc(fu.Resources, func(a, b kueue.ResourceUsage) int {
				return strings.Compare(string(a.Name), string(b.Name))
			})
			out = append(out, fu)
		}
	}
	return out
}

// maxLocalQueueFlavors bounds the flavors in the status of a LocalQueue; the
// schema refuses more. spec: 10 §6 #21.
const maxLocalQueueFlavors = 64

// LocalQueueUsage is FlavorUsage for a LocalQueue, cut to the number that its schema allows.
func LocalQueueUsage(groups []kueue.ResourceGroup, used []state.Held) []kueue.LocalQueueFlavorUsage {
	var out []kueue.LocalQueueFlavorUsage
	for _, f := range FlavorUsage(groups, used, nil) {
		if len(out) == maxLocalQueueFlavors {
			break
		}
		fu := kueue.LocalQueueFlavorUsage{Name: f.Name}
		for _, r := range f.Resources {
			fu.Resources = append(fu.Resources, kueue.LocalQueueResourceUsage{Name: r.Name, Total: r.Total})
		}
		out = append(out, fu)
	}
	return out
}

func find(held []state.Held, flavor kueue.ResourceFlavorReference, name corev1.ResourceName) resource.Amount {
	total := resource.Amount(0)
	for _, h := range held {
		if h.Flavor == string(flavor) && h.Resource == string(name) {
			total = total.Add(h.Amount)
		}
	}
	return total
}
