package podset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Normalise removes duplicate environment variables as the kubelet does: the last value wins, at the position of the first. It sets
// the defaults of the Workload schema, so that a job whose own schema has no defaults equals its Workload.
func Normalise(podSets []kueue.PodSet) {
	for i := range podSets {
		spec := &podSets[i].Template.Spec
		for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for j := range containers {
				containers[j].Env = lastOfEach(containers[j].Env)
				fillIn(&containers[j])
			}
		}
	}
}

func fillIn(c *corev1.Container) {
	for i := range c.Ports {
		if c.Ports[i].Protocol == "" {
			c.Ports[i].Protocol = corev1.ProtocolTCP
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil && from.FileKeyRef.Optional == nil {
			from.FileKeyRef.Optional = new(false)
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil && probe.GRPC != nil && probe.GRPC.Service == nil {
			probe.GRPC.Service = new("")
		}
	}
}

func lastOfEach(env []corev1.EnvVar) []corev1.EnvVar {
	at := make(map[string]int, len(env))
	var out []corev1.EnvVar
	for _, e := range env {
		if i, ok := at[e.Name]; ok {
			out[i] = e
			continue
		}
		at[e.Name] = len(out)
		out = append(out, e)
	}
	return out
}

// SameSets compares pod sets one by one, quantities by value and nil like empty.
func SameSets(a, b []kueue.PodSet, ignoreTolerations, strict bool) bool {
	return slices.EqualFunc(a, b, func(x, y kueue.PodSet) bool {
		p, q := &x.Template.Spec, &y.Template.Spec
		return x.Count == y.Count && same(x.MinCount, y.MinCount) &&
			same(p.InitContainers, q.InitContainers) && same(p.Containers, q.Containers) &&
			(ignoreTolerations || same(p.Tolerations, q.Tolerations)) &&
			(!strict || sameBeforeStart(&x, &y))
	})
}

// sameBeforeStart compares the fields that affect placement and requests, beside the containers.
func sameBeforeStart(x, y *kueue.PodSet) bool {
	p, q := &x.Template.Spec, &y.Template.Spec
	return x.Name == y.Name && same(x.TopologyRequest, y.TopologyRequest) &&
		same(p.NodeSelector, q.NodeSelector) && same(p.Affinity, q.Affinity) &&
		p.PriorityClassName == q.PriorityClassName && same(p.RuntimeClassName, q.RuntimeClassName) &&
		same(p.ResourceClaims, q.ResourceClaims) && same(p.Overhead, q.Overhead) && same(p.Resources, q.Resources)
}

func same(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }

// Copy returns a deep copy.
func Copy(podSets []kueue.PodSet) []kueue.PodSet {
	out := make([]kueue.PodSet, len(podSets))
	for i := range podSets {
		podSets[i].DeepCopyInto(&out[i])
	}
	return out
}
