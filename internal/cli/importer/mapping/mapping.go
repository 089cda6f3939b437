// Package mapping maps pods to the LocalQueues of an import. The rules come from a file, or from a label of the pods and a list of its
// values. spec: 70 §4.11.
package mapping

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Rule maps the pods that match it. The first matching rule of Rules applies.
type Rule struct {
	// Match is empty for a rule that matches every pod.
	Match Match `json:"match"`
	// ToLocalQueue is a LocalQueue in the namespace of the pod.
	ToLocalQueue string `json:"toLocalQueue"`
	// Skip ignores the pods, without an error.
	Skip bool `json:"skip"`
}

// Match is a conjunction of conditions on a pod.
type Match struct {
	// PriorityClassName of the pod. Empty matches any.
	PriorityClassName string            `json:"priorityClassName"`
	Labels            map[string]string `json:"labels"`
}

// Rules map pods to queues.
type Rules struct {
	rules []Rule
	label string // of --queuelabel; empty for rules of a file
}

// Target is the result of the rules for a pod.
type Target struct {
	// Queue is the LocalQueue, empty with Skip.
	Queue string
	Skip  bool
}

// FromLabel returns the rules of --queuelabel and --queuemapping: queues has a LocalQueue for each value of the label.
func FromLabel(label string, queues map[string]string) (*Rules, error) {
	if wrong := validation.IsQualifiedName(label); len(wrong) > 0 {
		return nil, fmt.Errorf("--queuelabel %q: is no label: %s", label, wrong[0])
	}
	if len(queues) == 0 {
		return nil, fmt.Errorf("--queuemapping: is missing: name a LocalQueue for each value of the label %s, as in value=queue", label)
	}
	r := &Rules{label: label}
	for _, value := range slices.Sorted(maps.Keys(queues)) {
		if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
			return nil, fmt.Errorf("--queuemapping %s=%s: %q is no value of a label: %s", value, queues[value], value, wrong[0])
		}
		if wrong := queueProblem(queues[value]); wrong != "" {
			return nil, fmt.Errorf("--queuemapping %s=%s: %s", value, queues[value], wrong)
		}
		r.rules = append(r.rules, Rule{Match: Match{Labels: map[string]string{label: value}}, ToLocalQueue: queues[value]})
	}
	return r, nil
}

// queueProblem returns the reason why a text cannot be the name of a LocalQueue that pods name in a label; "" if it can.
func queueProblem(name string) string {
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return fmt.Sprintf("%q is no name of a LocalQueue: %s", name, wrong[0])
	}
	if wrong := validation.IsValidLabelValue(name); len(wrong) > 0 {
		return fmt.Sprintf("pods cannot name the LocalQueue %q in a label: %s", name, wrong[0])
	}
	return ""
}

// Of finds the target of a pod. The error has the same text for all pods with the same problem.
func (r *Rules) Of(pod *corev1.Pod) (Target, error) {
	for i := range r.rules {
		if rule := &r.rules[i]; rule.Match.takes(pod) {
			return Target{Queue: rule.ToLocalQueue, Skip: rule.Skip}, nil
		}
	}
	value, has := pod.Labels[r.label]
	switch {
	case r.label == "" && pod.Spec.PriorityClassName == "":
		return Target{}, fmt.Errorf("no rule matches the labels %s", describe(pod.Labels))
	case r.label == "":
		return Target{}, fmt.Errorf("no rule matches the labels %s and the priority class %s", describe(pod.Labels), pod.Spec.PriorityClassName)
	case !has:
		return Target{}, fmt.Errorf("it has no label %s", r.label)
	default:
		return Target{}, fmt.Errorf("--queuemapping has no LocalQueue for the label %s=%s", r.label, value)
	}
}

func (m *Match) takes(pod *corev1.Pod) bool {
	if m.PriorityClassName != "" && m.PriorityClassName != pod.Spec.PriorityClassName {
		return false
	}
	for key, value := range m.Labels {
		if have, ok := pod.Labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

func describe(labels map[string]string) string {
	if len(labels) == 0 {
		return "(none)"
	}
	parts := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, key+"="+labels[key])
	}
	return strings.Join(parts, ",")
}
