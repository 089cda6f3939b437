package podgroup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-project/berth/internal/job"
)

// hashLength is the number of digits of a role's name.
const hashLength = 8

// shapedContainer is the part of a container that affects its role.
type shapedContainer struct {
	Ports     []corev1.ContainerPort `json:"ports"`
	Resources shapedResources        `json:"resources"`
}

type shapedResources struct {
	Requests corev1.ResourceList `json:"requests"`
}

func shapes(containers []corev1.Container) []shapedContainer {
	var out []shapedContainer
	for i := range containers {
		out = append(out, shapedContainer{containers[i].Ports, shapedResources{containers[i].Resources.Requests}})
	}
	return out
}

// Role hashes the requirements of a pod: pods of one role are equal to the queue. Users write these names into manifests, so they
// equal the upstream names (spec: 30 §4.9).
func Role(spec *corev1.PodSpec) (string, error) {
	shape := map[string]any{
		"affinity":                  spec.Affinity,
		"containers":                shapes(spec.Containers),
		"initContainers":            shapes(spec.InitContainers),
		"nodeSelector":              spec.NodeSelector,
		"overhead":                  spec.Overhead,
		"priority":                  spec.Priority,
		"resourceClaims":            spec.ResourceClaims,
		"runtimeClassName":          spec.RuntimeClassName,
		"tolerations":               spec.Tolerations,
		"topologySpreadConstraints": spec.TopologySpreadConstraints,
	}
	if spec.Resources != nil {
		shape["resources"] = spec.Resources.Requests
	}
	text, err := json.Marshal(map[string]any{"spec": shape})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:hashLength], nil
}

// exceeds returns an error if a pod asks for more than a pod of its role that is charged for all: the name of a role is the user's. Containers
// are compared by their order first, since a role does not have their names.
func exceeds(pod, of *corev1.PodSpec) error {
	if pod.Resources == nil && len(pod.ResourceClaims) == 0 && askAlike(pod.InitContainers, of.InitContainers) && askAlike(pod.Containers, of.Containers) {
		return nil
	}
	return job.PodExceeds(pod, of)
}

// askAlike reports whether containers ask for the same, one by one.
func askAlike(list, of []corev1.Container) bool {
	return slices.EqualFunc(list, of, func(a, b corev1.Container) bool {
		same := func(a, b corev1.ResourceList) bool { return maps.EqualFunc(a, b, resource.Quantity.Equal) }
		return same(a.Resources.Requests, b.Resources.Requests) && same(a.Resources.Limits, b.Resources.Limits) && ptr.Equal(a.RestartPolicy, b.RestartPolicy)
	})
}
