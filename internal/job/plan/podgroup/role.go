package podgroup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// hashLength is how many digits of the hash name a role.
const hashLength = 8

// shapedContainer is what a container needs, and nothing else of it.
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

// Role is the name of what a pod needs: pods of one role are alike to the queue. Users write these names into manifests,
// so they must be exactly those of upstream (spec: 30 §4.9).
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
