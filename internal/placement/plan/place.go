package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

var topologyGate = corev1.PodSchedulingGate{Name: kueue.TopologySchedulingGate}

// IsUnplaced reports whether the topology gate holds the pod.
func IsUnplaced(pod *corev1.Pod) bool { return slices.Contains(pod.Spec.SchedulingGates, topologyGate) }

// HasPlaces reports whether the pods of a Workload may be placed: it is admitted with a topology assignment, and not over. A reservation
// alone is not enough, and a variant of another Workload has no pods (spec: 20 §4.8).
func HasPlaces(w *kueue.Workload) bool {
	return chain.LetsPodsRun(w) && !IsVariant(w) && IsAssigned(w)
}

// IsAssigned reports whether a Workload has a topology assignment.
func IsAssigned(w *kueue.Workload) bool {
	return w.Status.Admission != nil &&
		slices.ContainsFunc(w.Status.Admission.PodSetAssignments, func(a kueue.PodSetAssignment) bool { return a.TopologyAssignment != nil })
}

// IsVariant reports whether a Workload is one of several that try different flavors for another Workload, which has the pods.
func IsVariant(w *kueue.Workload) bool {
	owner := metav1.GetControllerOfNoCopy(w)
	return owner != nil && owner.Kind == "Workload"
}

// Placement is a Workload with a topology assignment, and its pods.
type Placement struct {
	Workload *kueue.Workload
	// Pods are all pods of the Workload, including our own writes that the cache does not show yet.
	Pods []*corev1.Pod
	// Unhealthy are the hostnames of the Workload's unhealthy nodes.
	Unhealthy map[string]bool
}

// Place returns the pods to ungate, as they should be: without the topology gate, and with a node selector for every level of the
// assignment. Pods with valid ranks go to the domain of their rank. If one pod of a pod set has none, or an ungated one is in another
// domain, the whole pod set is filled in the order of the domains. A pod whose domain is an unhealthy node stays gated
// (spec: 20 §4.8).
func Place(o *Placement) ([]*corev1.Pod, error) {
	var out []*corev1.Pod
	if !HasPlaces(o.Workload) {
		return nil, nil
	}
	for i := range o.Workload.Status.Admission.PodSetAssignments {
		a := &o.Workload.Status.Admission.PodSetAssignments[i]
		if a.TopologyAssignment == nil {
			continue
		}
		at := slices.IndexFunc(o.Workload.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == a.Name })
		if at < 0 {
			continue
		}
		domains, err := Places(o.Workload, a, o.Pods)
		if err != nil {
			return nil, fmt.Errorf("topology assignment of pod set %s: %w", a.Name, err)
		}
		set := &filling{levels: a.TopologyAssignment.Levels, domains: domains, pods: o.podsOf(a.Name)}
		numbers, numbered, err := newNumbering(o.Workload, &o.Workload.Spec.PodSets[at], set.pods)
		if err != nil {
			return nil, err
		}
		if !numbered || !set.fillByRank(&numbers) {
			set.fillInOrder()
		}
		out = append(out, set.ungated(o.Unhealthy)...)
	}
	return out, nil
}

// Places returns the domains of the topology assignment of a pod set, nil without one. A pod set that has shrunk while the Workload held quota
// keeps the places where its pods are, and the first others up to its count: which pods end is the choice of the controller of the job. The
// assignment in the status is kept, like the granted count (spec: 20 §4.11).
func Places(w *kueue.Workload, a *kueue.PodSetAssignment, pods []*corev1.Pod) ([]assignment.Domain, error) {
	domains, err := assignment.Decode(a.TopologyAssignment)
	if err != nil || a.TopologyAssignment == nil || !chain.ScaledDown(w, a.Name) {
		return domains, err
	}
	at := slices.IndexFunc(w.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == a.Name })
	f := &filling{levels: a.TopologyAssignment.Levels, domains: domains, pods: (&Placement{Workload: w, Pods: pods}).podsOf(a.Name)}
	taken, left := f.taken(), w.Spec.PodSets[at].Count
	for i, d := range domains {
		taken[i] = min(taken[i], int(d.Count))
		left -= int32(taken[i])
	}
	out := domains[:0]
	for i, d := range domains {
		more := max(0, min(d.Count-int32(taken[i]), left))
		left -= more
		if d.Count = int32(taken[i]) + more; d.Count > 0 {
			out = append(out, d)
		}
	}
	return out, nil
}

// podsOf returns the pods of a pod set that are not over, by name. A gated pod that is being deleted will never run.
func (o *Placement) podsOf(set kueue.PodSetReference) []*corev1.Pod {
	var out []*corev1.Pod
	for _, pod := range o.Pods {
		over := job.PodIsOver(pod) || (IsUnplaced(pod) && pod.DeletionTimestamp != nil)
		if kueue.PodSetReference(pod.Labels[kueue.PodSetLabel]) == set && !over {
			out = append(out, pod)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// filling is a pod set while its pods get their domains.
type filling struct {
	levels  []string
	domains []assignment.Domain
	pods    []*corev1.Pod // by name
	chosen  []choice
}

// choice is a gated pod and its domain.
type choice struct {
	pod    *corev1.Pod
	domain int
}

// fillByRank chooses the domain of each gated pod by its rank: the k-th slot, when the domains are expanded in their order. A rank without
// a pod keeps its slot. It reports false if the ranks are not valid.
func (f *filling) fillByRank(n *numbering) bool {
	pods, valid := n.ranks(f.pods, assignment.Pods(f.domains))
	if !valid {
		return false
	}
	first := 0 // the rank of the first slot of a domain
	for i, d := range f.domains {
		for rank := first; rank < first+int(d.Count); rank++ {
			switch pod := pods[rank]; {
			case pod == nil:
			case IsUnplaced(pod):
				f.chosen = append(f.chosen, choice{pod, i})
			case !f.isIn(pod, i):
				f.chosen = nil
				return false
			}
		}
		first += int(d.Count)
	}
	return true
}

// fillInOrder chooses the first domain with a free slot for each gated pod that its node selector allows.
func (f *filling) fillInOrder() {
	taken := f.taken()
	first := 0 // all before it are chosen
	chosen := make([]bool, len(f.pods))
	for i, d := range f.domains {
		selector := f.selector(i)
		for at := first; at < len(f.pods) && taken[i] < int(d.Count); at++ {
			switch pod := f.pods[at]; {
			case chosen[at] || !IsUnplaced(pod):
				chosen[at] = true
			case accepts(pod, selector):
				f.chosen = append(f.chosen, choice{pod, i})
				chosen[at] = true
				taken[i]++
			}
			if chosen[at] && at == first {
				first++
			}
		}
	}
}

// taken returns the number of ungated pods in each domain: the domain that their node selectors name. Of equal domains it is the first one
// with a free slot.
func (f *filling) taken() []int {
	taken := make([]int, len(f.domains))
	byPath := make(map[string][]int, len(f.domains))
	for i, d := range f.domains {
		byPath[d.Path()] = append(byPath[d.Path()], i)
	}
	for _, pod := range f.pods {
		if IsUnplaced(pod) {
			continue
		}
		own := assignment.Domain{Values: make([]string, len(f.levels))}
		for i, level := range f.levels {
			own.Values[i] = pod.Spec.NodeSelector[level]
		}
		at := byPath[own.Path()]
		if len(at) == 0 {
			continue
		}
		free := slices.IndexFunc(at, func(i int) bool { return taken[i] < int(f.domains[i].Count) })
		taken[at[max(free, 0)]]++
	}
	return taken
}

// isIn reports whether the node selector of a pod names a domain. The node of the pod does not matter.
func (f *filling) isIn(pod *corev1.Pod, domain int) bool {
	for i, level := range f.levels {
		if pod.Spec.NodeSelector[level] != f.domains[domain].Values[i] {
			return false
		}
	}
	return true
}

func (f *filling) selector(domain int) map[string]string {
	out := make(map[string]string, len(f.levels))
	for i, level := range f.levels {
		out[level] = f.domains[domain].Values[i]
	}
	return out
}

// ungated returns the chosen pods without their gate, except for pods on unhealthy nodes and pods with another node selector.
func (f *filling) ungated(unhealthy map[string]bool) (out []*corev1.Pod) {
	hosts := assignment.IsByHostname(f.levels)
	for _, c := range f.chosen {
		values, selector := f.domains[c.domain].Values, f.selector(c.domain)
		if (hosts && unhealthy[values[len(values)-1]]) || !accepts(c.pod, selector) {
			continue
		}
		pod := without(c.pod, topologyGate)
		podset.Merge(&pod.Spec.NodeSelector, selector)
		out = append(out, pod)
	}
	return out
}

// requests are the annotations of pods that request a topology. Pods that get a place without a request have one of them from the start
// of their job.
var requests = []string{
	kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation,
	kueue.PodSetSliceRequiredTopologyAnnotation, kueue.PodSetSliceRequiredTopologyConstraintsAnnotation,
}

// TopologyAnnotations returns the annotations of pods that request a topology.
func TopologyAnnotations() []string { return slices.Clone(requests) }

// AsksForTopology reports whether the capacity that a pod uses is part of a topology assignment: one of the annotations that request a
// topology is set (spec: 20 §4.5, §4.9).
func AsksForTopology(pod *corev1.Pod) bool {
	return slices.ContainsFunc(requests, func(key string) bool { _, has := pod.Annotations[key]; return has })
}
