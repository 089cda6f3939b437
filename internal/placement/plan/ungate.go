// Package plan decides which pods of an elastic job may be scheduled.
//
//	admitted slice: main x6 ──┐
//	pods of the chain ────────┴─► room = 6 − pods that run ─► the first gated ones, by name
//
// A pod of an elastic job is born with a scheduling gate. It loses the gate when
// a slice is admitted that has room for it, and in the same write gets what the
// admission says about its pod set: a job that is resized while it runs cannot
// get that into its template any more (spec: 30 §4.11).
package plan

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// Chain is the chain of slices that a pod belongs to, or empty.
func Chain(pod *corev1.Pod) string {
	if name := pod.Annotations[kueue.WorkloadSliceNameAnnotation]; name != "" {
		return name
	}
	return pod.Annotations[kueue.WorkloadAnnotation]
}

// IsGated reports whether the gate of elastic jobs holds the pod.
func IsGated(pod *corev1.Pod) bool { return slices.Contains(pod.Spec.SchedulingGates, gate) }

var gate = corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate}

// IsOver reports whether the pod uses nothing any more.
func IsOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Observed is a chain of slices and its pods.
type Observed struct {
	// Slice is the one that lets pods run, and Infos is what its admission says, by pod set.
	Slice *kueue.Workload
	Infos []job.PodSetInfo
	// Pods are all pods of the chain, without the gate from when it was removed.
	Pods []*corev1.Pod
}

// Decide lists the pods that lose their gate, as they are to be. Every pod set has room for as many as are granted, less
// those without a gate that are not over; one that is being deleted still uses its part. A pod that names no pod set of the
// slice, or whose node selector contradicts what was admitted, stays as it is and takes no room.
func Decide(o *Observed) []*corev1.Pod {
	var out []*corev1.Pod
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
			if free := Free(pod, info); free != nil {
				out = append(out, free)
				room--
			}
		}
	}
	return out
}

// Free is the pod without the gate and with what its pod set gets. Node selectors can only be added, so one that has
// another value makes it nil. Labels and annotations that an earlier admission left are overwritten.
func Free(pod *corev1.Pod, info *job.PodSetInfo) *corev1.Pod {
	for _, key := range slices.Sorted(maps.Keys(info.NodeSelector)) {
		if has, ok := pod.Spec.NodeSelector[key]; ok && has != info.NodeSelector[key] {
			return nil
		}
	}
	out := pod.DeepCopy()
	out.Spec.SchedulingGates = slices.DeleteFunc(out.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g == gate })
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
