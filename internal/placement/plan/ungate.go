// Package plan decides which gated pods may be scheduled, and where.
//
//	admitted slice: main x6 ──┐
//	pods of the chain ────────┴─► room = 6 − pods that run ─► the first gated ones, by name
//
//	assignment: n1 x2, n2 x4 ─┐
//	pods of the Workload ─────┴─► by rank, or the first free domain ─► each gated one with a node selector
//
// A pod of an elastic job is created with a scheduling gate. The gate is removed once a slice with room for it is admitted. The same
// write sets the node selector and labels of its pod set: the template of a running job cannot change any more (spec: 30 §4.11).
//
// A pod of a Workload with a topology assignment has a gate of its own, which is removed together with the choice of its domain
// (spec: 20 §4.8). A pod may have both gates.
package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// Chain returns the chain of slices that a pod belongs to, or empty.
func Chain(pod *corev1.Pod) string {
	if name := pod.Annotations[kueue.WorkloadSliceNameAnnotation]; name != "" {
		return name
	}
	return pod.Annotations[kueue.WorkloadAnnotation]
}

// IsGated reports whether the gate of elastic jobs holds the pod.
func IsGated(pod *corev1.Pod) bool { return slices.Contains(pod.Spec.SchedulingGates, gate) }

var gate = corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate}

// IsOver reports whether the pod uses no resources any more.
func IsOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Observed is a chain of slices and its pods.
type Observed struct {
	// Slice is the admitted slice, and Infos are its assignments, by pod set.
	Slice *kueue.Workload
	Infos []job.PodSetInfo
	// Pods are all pods of the chain, including our own writes that the cache does not show yet.
	Pods []*corev1.Pod
}

// Decide returns the pods to ungate, as they should be. A pod set has room for the granted count, less its ungated pods that are not
// over; a terminating pod still uses its part. A pod that names no pod set of the slice, or whose node selector contradicts the
// admission, stays unchanged and takes no room. contradiction describes the first pod of the latter kind that there is room for.
func Decide(o *Observed) (out []*corev1.Pod, contradiction string) {
	pods := slices.SortedFunc(slices.Values(o.Pods), func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for i := range o.Infos {
		info := &o.Infos[i]
		room := chain.Granted(o.Slice, info.Name)
		var gated []*corev1.Pod
		for _, pod := range pods {
			switch {
			case kueue.PodSetReference(pod.Labels[kueue.PodSetLabel]) != info.Name || IsOver(pod):
			case !IsGated(pod):
				room--
			case pod.DeletionTimestamp == nil:
				gated = append(gated, pod)
			}
		}
		for _, pod := range gated {
			if room <= 0 {
				break
			}
			if next := Free(pod, info); next != nil {
				out = append(out, next)
				room--
			} else if contradiction == "" {
				key := contradicts(pod, info.NodeSelector)
				contradiction = fmt.Sprintf("Pod %s stays gated: its node selector %s is %q and would have to be %q. Delete it, and remove the selector from the template of its job",
					pod.Name, key, pod.Spec.NodeSelector[key], info.NodeSelector[key])
			}
		}
	}
	return out, contradiction
}

// HoldForPlaces adds the topology gate to pods that Decide returned without one, if their pod set has places: the templates of some kinds get
// no gate at the start of the job. Place removes it together with the choice of a domain, so that one write does both.
func HoldForPlaces(pods []*corev1.Pod, infos []job.PodSetInfo) {
	for _, pod := range pods {
		at := slices.IndexFunc(infos, func(i job.PodSetInfo) bool { return string(i.Name) == pod.Labels[kueue.PodSetLabel] })
		if at >= 0 && slices.Contains(infos[at].SchedulingGates, topologyGate) && !IsUnplaced(pod) {
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, topologyGate)
		}
	}
}

// InPlaces returns the freed pods of a slice that get a place of its topology assignment, with its node selector, and the ones whose pod
// sets have none. pods are all pods of the slice, and infos its assignments. An unhealthy node is known by its name.
func InPlaces(w *kueue.Workload, infos []job.PodSetInfo, pods, freed []*corev1.Pod) ([]*corev1.Pod, error) {
	HoldForPlaces(freed, infos)
	o := &Placement{Workload: w, Pods: slices.Clone(freed), Unhealthy: map[string]bool{}}
	for _, pod := range pods {
		if !IsGated(pod) {
			o.Pods = append(o.Pods, pod)
		}
	}
	for _, n := range w.Status.UnhealthyNodes {
		o.Unhealthy[n.Name] = true
	}
	placed, err := Place(o)
	if err != nil {
		return nil, err
	}
	unplaced := func(pod *corev1.Pod) bool { return IsUnplaced(pod) }
	return append(slices.DeleteFunc(slices.Clone(freed), unplaced), slices.DeleteFunc(placed, unplaced)...), nil
}

// Free returns the pod without the gate and with the assignments of its pod set. It returns nil if a node selector has another value,
// since they can only be added. Labels and annotations of an earlier admission are overwritten.
func Free(pod *corev1.Pod, info *job.PodSetInfo) *corev1.Pod {
	if !accepts(pod, info.NodeSelector) {
		return nil
	}
	out := without(pod, gate)
	out.Labels = merged(out.Labels, info.Labels)
	out.Annotations = merged(out.Annotations, info.Annotations)
	out.Spec.NodeSelector = merged(out.Spec.NodeSelector, info.NodeSelector)
	for _, t := range info.Tolerations {
		if !slices.ContainsFunc(out.Spec.Tolerations, func(has corev1.Toleration) bool { return podset.SameToleration(has, t) }) {
			out.Spec.Tolerations = append(out.Spec.Tolerations, t)
		}
	}
	return out
}

// Abandon returns the pod without any gate that an admission would remove, for a namespace that is not managed any more.
func Abandon(pod *corev1.Pod) *corev1.Pod { return without(without(pod, gate), topologyGate) }

// FreeUnplaced returns the pods that the topology gate holds, without it and without a choice of a domain: no places are kept for them any
// more. Pods that the gate of elastic jobs holds keep both.
func FreeUnplaced(pods []*corev1.Pod) (out []*corev1.Pod) {
	for _, pod := range pods {
		if IsUnplaced(pod) && !IsGated(pod) && pod.DeletionTimestamp == nil {
			out = append(out, without(pod, topologyGate))
		}
	}
	return out
}

// accepts reports whether a node selector can be added to a pod: no entry of the pod has another value, because entries can only be added.
func accepts(pod *corev1.Pod, selector map[string]string) bool {
	return contradicts(pod, selector) == ""
}

// contradicts returns the first key of a node selector that has another value in that of a pod, empty for none.
func contradicts(pod *corev1.Pod, selector map[string]string) (first string) {
	for key, value := range selector { //berth:unordered the least key
		if has, ok := pod.Spec.NodeSelector[key]; ok && has != value && (first == "" || key < first) {
			first = key
		}
	}
	return first
}

// without returns a copy of the pod without one of its gates.
func without(pod *corev1.Pod, gate corev1.PodSchedulingGate) *corev1.Pod {
	out := pod.DeepCopy()
	out.Spec.SchedulingGates = slices.DeleteFunc(out.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g == gate })
	return out
}

func merged(to, from map[string]string) map[string]string {
	if len(from) == 0 {
		return to
	}
	if to == nil {
		to = map[string]string{}
	}
	maps.Copy(to, from)
	return to
}
