package podset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// ElasticGate holds a pod until its slice is admitted.
var ElasticGate = corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate}

// HasGate reports whether gates has ElasticGate.
func HasGate(gates []corev1.PodSchedulingGate) bool { return slices.Contains(gates, ElasticGate) }

// Gate adds ElasticGate to a pod template, once.
func Gate(template *corev1.PodTemplateSpec) {
	if !HasGate(template.Spec.SchedulingGates) {
		template.Spec.SchedulingGates = append(template.Spec.SchedulingGates, ElasticGate)
	}
}

// Ungate removes ElasticGate from a pod template.
func Ungate(template *corev1.PodTemplateSpec) {
	gates := slices.DeleteFunc(slices.Clone(template.Spec.SchedulingGates), func(g corev1.PodSchedulingGate) bool { return g == ElasticGate })
	if template.Spec.SchedulingGates = gates; len(gates) == 0 {
		template.Spec.SchedulingGates = nil
	}
}
