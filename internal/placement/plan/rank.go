package plan

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// numbering is the rule that gives the pods of a pod set their ranks.
type numbering struct {
	index, group string // labels; group may be empty
	groups       int    // positive with a group
	size         int    // pods in each group
	offset       int    // the index of the first pod
	count        int    // pods of the pod set
}

// newNumbering returns the numbering of a pod set with a topology assignment. It reports false if the pods have no ranks. An annotation
// of the offset that is no number is an error.
func newNumbering(w *kueue.Workload, set *kueue.PodSet, pods []*corev1.Pod) (numbering, bool, error) {
	n := numbering{count: int(granted(w, set))}
	if len(pods) > 0 {
		if text, has := pods[0].Annotations[kueue.PodIndexOffsetAnnotation]; has {
			offset, err := strconv.Atoi(text)
			if err != nil {
				return n, false, fmt.Errorf("annotation %s of pod %s/%s is %q: it must be an integer",
					kueue.PodIndexOffsetAnnotation, pods[0].Namespace, pods[0].Name, text)
			}
			n.offset = offset
		}
	}
	n.offset += leaders(w, set)
	request := set.TopologyRequest
	if request == nil || ptr.Deref(request.PodIndexLabel, "") == "" {
		return n, false, nil
	}
	n.index, n.group = *request.PodIndexLabel, ptr.Deref(request.SubGroupIndexLabel, "")
	if n.group != "" {
		if n.groups = int(ptr.Deref(request.SubGroupCount, 0)); n.groups < 1 {
			return n, false, nil
		}
		n.size = n.count / n.groups
	}
	return n, true, nil
}

// leaders returns the pods of the other pod set of a group of two, if set is the larger one, else 0. Both pod sets of such a group share
// one numbering: the leader has index 0. Of two equal ones the first has the workers.
func leaders(w *kueue.Workload, set *kueue.PodSet) int {
	group := groupOf(set)
	if group == "" {
		return 0
	}
	var members []*kueue.PodSet
	for i := range w.Spec.PodSets {
		if s := &w.Spec.PodSets[i]; groupOf(s) == group {
			members = append(members, s)
		}
	}
	if len(members) != 2 {
		return 0
	}
	workers, leader := members[0], members[1]
	if granted(w, leader) > granted(w, workers) {
		workers, leader = leader, workers
	}
	if workers.Name != set.Name {
		return 0
	}
	return int(granted(w, leader))
}

func groupOf(set *kueue.PodSet) string {
	if set.TopologyRequest == nil {
		return ""
	}
	return ptr.Deref(set.TopologyRequest.PodSetGroupName, "")
}

// granted returns the number of admitted pods of a pod set.
func granted(w *kueue.Workload, set *kueue.PodSet) int32 {
	if w.Status.Admission != nil {
		for _, a := range w.Status.Admission.PodSetAssignments {
			if a.Name == set.Name {
				return ptr.Deref(a.Count, set.Count)
			}
		}
	}
	return set.Count
}

// rank returns the rank of a pod in its pod set. It reports false if a label is missing or out of range.
func (n *numbering) rank(pod *corev1.Pod) (int, bool) {
	index, ok := number(pod, n.index)
	if !ok {
		return 0, false
	}
	if n.group != "" {
		group, ok := number(pod, n.group)
		if !ok || index >= n.size || group >= n.groups {
			return 0, false
		}
		index += group * n.size
	}
	rank := index - n.offset
	return rank, rank >= 0 && rank < n.count
}

func number(pod *corev1.Pod, label string) (int, bool) {
	n, err := strconv.ParseUint(pod.Labels[label], 10, 31)
	return int(n), err == nil
}

// ranks returns the pods by their ranks. It reports false if a pod has no rank, two have the same, or a rank has no slot.
func (n *numbering) ranks(pods []*corev1.Pod, slots int) (map[int]*corev1.Pod, bool) {
	out := make(map[int]*corev1.Pod, len(pods))
	for _, pod := range pods {
		rank, ok := n.rank(pod)
		if !ok || rank >= slots || out[rank] != nil {
			return nil, false
		}
		out[rank] = pod
	}
	return out, true
}
