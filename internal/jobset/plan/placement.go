package plan

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// Exclusive placement gives every Job a topology domain of its own (spec: 60 §4.10). The pod with completion index 0, the
// leader, is placed by affinity; the others, the followers, are created only once the leader has a node, with a node
// selector for its domain. The functions below are the decisions of the pod webhook and of the repair.

// IsExclusive reports whether a pod is placed in this way. Pods of the node selector strategy are not: their Job has the
// selector.
func IsExclusive(pod *corev1.Pod) bool {
	_, ours := pod.Annotations[jobsetv1alpha2.JobSetNameKey]
	_, exclusive := pod.Annotations[jobsetv1alpha2.ExclusiveTopologyAnnotation]
	_, strategy := pod.Annotations[jobsetv1alpha2.NodeSelectorStrategyAnnotation]
	return ours && exclusive && !strategy
}

// IsLeader reports whether a pod is the leader of its Job.
func IsLeader(pod *corev1.Pod) bool {
	return pod.Annotations[batchv1.JobCompletionIndexAnnotation] == "0"
}

// IsPlacedLeader reports whether a pod is a live leader that has a node. A Job keeps a failed leader beside its replacement: the followers
// need not be in its domain.
func IsPlacedLeader(pod *corev1.Pod) bool {
	return IsExclusive(pod) && IsLiveLeader(pod) && pod.Spec.NodeName != ""
}

// priorityLabel returns the label value of a priority. A label value cannot begin with a minus sign: n10 stands for -10.
func priorityLabel(priority int32) string {
	text := strconv.Itoa(int(priority))
	if digits, negative := strings.CutPrefix(text, "-"); negative {
		return "n" + digits
	}
	return text
}

// LabelPriority copies the priority of a pod of a JobSet into its label, where affinity can see it.
func LabelPriority(pod *corev1.Pod) {
	_, ours := pod.Annotations[jobsetv1alpha2.JobSetNameKey]
	_, strategy := pod.Annotations[jobsetv1alpha2.NodeSelectorStrategyAnnotation]
	if ours && !strategy && pod.Spec.Priority != nil {
		put(&pod.Labels, jobsetv1alpha2.PriorityLabel, priorityLabel(*pod.Spec.Priority))
	}
}

// PlaceLeader restricts a leader to domains with pods of its Job and without pods of other Jobs of its priority.
func PlaceLeader(pod *corev1.Pod) {
	topology, key := pod.Annotations[jobsetv1alpha2.ExclusiveTopologyAnnotation], pod.Labels[jobsetv1alpha2.JobKeyKey]
	term := func(expressions ...metav1.LabelSelectorRequirement) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{
			LabelSelector: &metav1.LabelSelector{MatchExpressions: expressions}, TopologyKey: topology, NamespaceSelector: &metav1.LabelSelector{},
		}
	}
	requirement := func(label string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: label, Operator: operator, Values: values}
	}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	a := pod.Spec.Affinity
	if a.PodAffinity == nil {
		a.PodAffinity = &corev1.PodAffinity{}
	}
	if a.PodAntiAffinity == nil {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	with, without := &a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*with = append(*with, term(requirement(jobsetv1alpha2.JobKeyKey, metav1.LabelSelectorOpIn, key)))
	*without = append(*without, term(
		requirement(jobsetv1alpha2.JobKeyKey, metav1.LabelSelectorOpExists),
		requirement(jobsetv1alpha2.JobKeyKey, metav1.LabelSelectorOpNotIn, key),
		requirement(jobsetv1alpha2.PriorityLabel, metav1.LabelSelectorOpIn, pod.Labels[jobsetv1alpha2.PriorityLabel]),
	))
}

// JobOf identifies the Job of a pod among the pods of its namespace, by its controller and its label; "" if it has none of one.
func JobOf(pod *corev1.Pod) string {
	by, key := metav1.GetControllerOf(pod), pod.Labels[jobsetv1alpha2.JobKeyKey]
	if by == nil || key == "" {
		return ""
	}
	return key + "/" + string(by.UID)
}

// IsLiveLeader reports whether a pod is a leader that has not ended and stays.
func IsLiveLeader(pod *corev1.Pod) bool { return IsLeader(pod) && isLive(pod) }

// LeaderOf returns the one leader of a follower, if it has a node, among some pods: two live leaders of its Job at least, if there are several.
// The error is why there is none.
func LeaderOf(follower *corev1.Pod, pods []*corev1.Pod) (*corev1.Pod, error) {
	if metav1.GetControllerOf(follower) == nil {
		return nil, errors.New("the follower pod has no controller")
	}
	of := JobOf(follower)
	var found []*corev1.Pod
	for _, pod := range pods {
		if IsLiveLeader(pod) && of != "" && JobOf(pod) == of {
			found = append(found, pod)
		}
	}
	switch {
	case len(found) == 0:
		return nil, errors.New("the leader pod is not there yet")
	case len(found) > 1:
		return nil, errors.New("there are several leader pods")
	case found[0].Spec.NodeName == "":
		return nil, fmt.Errorf("the leader pod %s is not scheduled yet", found[0].Name)
	}
	return found[0], nil
}

func isLive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

// Domain returns the domain of a node. A nil node does not exist.
func Domain(node metav1.Object, name, topology string) (string, error) {
	if node == nil {
		return "", fmt.Errorf("node %s of the leader pod is gone", name)
	}
	domain := node.GetLabels()[topology]
	if domain == "" {
		return "", fmt.Errorf("node %s of the leader pod has no label %s", name, topology)
	}
	return domain, nil
}

// PlaceFollower restricts a follower to a domain.
func PlaceFollower(pod *corev1.Pod, domain string) {
	put(&pod.Spec.NodeSelector, pod.Annotations[jobsetv1alpha2.ExclusiveTopologyAnnotation], domain)
}

// unplaced begins the refusal of a follower. Users know this text.
const unplaced = "follower pod node selector not set"

// CheckFollower refuses a follower without a domain. The Job controller retries, which is how followers wait for
// their leader. noLeader is the error of LeaderOf.
func CheckFollower(pod *corev1.Pod, noLeader error) error {
	for _, label := range []string{jobsetv1alpha2.JobSetNameKey, jobsetv1alpha2.ReplicatedJobNameKey, jobsetv1alpha2.JobIndexKey} {
		if pod.Labels[label] == "" {
			return fmt.Errorf("%s: the pod has no label %s", unplaced, label)
		}
	}
	if noLeader != nil {
		return fmt.Errorf("%s: %w", unplaced, noLeader)
	}
	if pod.Spec.NodeSelector[pod.Annotations[jobsetv1alpha2.ExclusiveTopologyAnnotation]] == "" {
		return errors.New(unplaced)
	}
	return nil
}

// Misplaced returns the followers of a leader that are bound to another domain, by name. The error is about a
// leader with an unknown domain, and nil if no follower could be wrong.
func Misplaced(leader *corev1.Pod, pods []*corev1.Pod, node metav1.Object) ([]*corev1.Pod, error) {
	topology := leader.Annotations[jobsetv1alpha2.ExclusiveTopologyAnnotation]
	owner := metav1.GetControllerOf(leader)
	if owner == nil || leader.Labels[jobsetv1alpha2.JobKeyKey] == "" {
		return nil, fmt.Errorf("leader pod %s has no controller or no label %s", leader.Name, jobsetv1alpha2.JobKeyKey)
	}
	domain, err := Domain(node, leader.Spec.NodeName, topology)
	var out []*corev1.Pod
	domains := map[string]bool{}
	for _, pod := range pods {
		by := metav1.GetControllerOf(pod)
		if pod.UID == leader.UID || IsLeader(pod) || by == nil || by.UID != owner.UID || !isLive(pod) || !IsExclusive(pod) {
			continue
		}
		selected := pod.Spec.NodeSelector[topology]
		domains[selected] = true
		if selected != domain {
			out = append(out, pod)
		}
	}
	if err != nil {
		// Followers that agree with one another are probably where their leader is: they stay until its domain is known.
		if node == nil && len(domains) <= 1 && !domains[""] {
			err = nil
		}
		return nil, err
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
