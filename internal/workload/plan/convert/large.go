package convert

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// The limits of what is kept of the pods of a Workload, for which its schema has none. Kubernetes refuses pods with longer names. The others
// are of all pod sets together: node selectors, tolerations, and terms, expressions and values of node affinity.
const (
	maxContainerName   = 63
	maxResourceName    = 253 + 1 + 63
	maxConstraints     = 1 << 14
	maxConstraintBytes = 1 << 18
)

// TooLarge returns why the manager does not keep the pods of a Workload, nil if it does.
func TooLarge(sets []kueue.PodSet) *field.Error {
	var of sizes
	for i := range sets {
		spec, at := &sets[i].Template.Spec, func() *field.Path {
			return field.NewPath("spec", "podSets").Index(i).Child("template", "spec")
		}
		for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for k := range containers {
				c := &containers[k]
				if len(c.Name) > maxContainerName {
					return field.TooLong(at().Child("containers").Index(k).Child("name"), "", maxContainerName)
				}
				if hasLongName(c.Resources.Requests, c.Resources.Limits) {
					return field.TooLong(at().Child("containers").Index(k).Child("resources"), "", maxResourceName)
				}
			}
		}
		if hasLongName(spec.Overhead) || spec.Resources != nil && hasLongName(spec.Resources.Requests, spec.Resources.Limits) {
			return field.TooLong(at().Child("resources"), "", maxResourceName)
		}
		if of.add(spec); of.entries > maxConstraints || of.bytes > maxConstraintBytes {
			return field.Forbidden(at(), fmt.Sprintf("tolerations, node selectors and node affinity of all pod sets may have at most %d entries and %d KiB",
				maxConstraints, maxConstraintBytes>>10))
		}
	}
	return nil
}

func hasLongName(lists ...corev1.ResourceList) bool {
	for _, list := range lists {
		for name := range list { //berth:unordered any of them
			if len(name) > maxResourceName {
				return true
			}
		}
	}
	return false
}

// sizes are the sums of what decides about flavors.
type sizes struct{ entries, bytes int }

func (s *sizes) text(all ...string) {
	s.entries++
	for _, t := range all {
		s.bytes += len(t)
	}
}

func (s *sizes) add(spec *corev1.PodSpec) {
	for key, value := range spec.NodeSelector { //berth:unordered a sum
		s.text(key, value)
	}
	for i := range spec.Tolerations {
		t := &spec.Tolerations[i]
		s.text(t.Key, string(t.Operator), t.Value, string(t.Effect))
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return
	}
	affinity := spec.Affinity.NodeAffinity
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for i := range required.NodeSelectorTerms {
			s.term(&required.NodeSelectorTerms[i])
		}
	}
	for i := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		s.term(&affinity.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference)
	}
}

func (s *sizes) term(t *corev1.NodeSelectorTerm) {
	s.text()
	for _, list := range [][]corev1.NodeSelectorRequirement{t.MatchExpressions, t.MatchFields} {
		for k := range list {
			s.text(list[k].Key, string(list[k].Operator))
			for _, value := range list[k].Values {
				s.text(value)
			}
		}
	}
}
