package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// shapeLength is the length of a shape's digest, in hexadecimal digits.
const shapeLength = 8

// shape is the part of a template that affects quota and placement. Image, command, environment, volumes and ports do not.
type shape struct {
	Containers, Init []asks
	Overhead         corev1.ResourceList               `json:",omitempty"`
	Resources        *corev1.ResourceRequirements      `json:",omitempty"`
	Claims           []corev1.PodResourceClaim         `json:",omitempty"`
	Runtime          *string                           `json:",omitempty"`
	NodeSelector     map[string]string                 `json:",omitempty"`
	Affinity         *corev1.Affinity                  `json:",omitempty"`
	Tolerations      []corev1.Toleration               `json:",omitempty"`
	Spread           []corev1.TopologySpreadConstraint `json:",omitempty"`
	Priority         string                            `json:",omitempty"`
	Topology         map[string]string                 `json:",omitempty"`
}

// asks are the requirements of one container.
type asks struct {
	Requests corev1.ResourceList    `json:",omitempty"`
	Limits   corev1.ResourceList    `json:",omitempty"`
	Claims   []corev1.ResourceClaim `json:",omitempty"`
	Sidecar  bool                   `json:",omitempty"`
}

// Shape is the digest of the requirements of a template. All init containers count, and not only sidecars: a pod needs as much as
// the largest of them (spec: 30 §4.10.3, Limitation 1).
func Shape(template *corev1.PodTemplateSpec) string {
	return digest(shapeOf(template))
}

func digest(s shape) string {
	text, err := json.Marshal(s)
	if err != nil {
		text = []byte(err.Error()) // no value of these types can fail
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:shapeLength]
}

func shapeOf(template *corev1.PodTemplateSpec) shape {
	p := &template.Spec
	s := shape{
		Overhead: p.Overhead, Resources: p.Resources, Claims: p.ResourceClaims, Runtime: p.RuntimeClassName, NodeSelector: p.NodeSelector,
		Affinity: p.Affinity, Tolerations: p.Tolerations, Spread: p.TopologySpreadConstraints, Priority: p.PriorityClassName,
	}
	for i := range p.Containers {
		s.Containers = append(s.Containers, asksOf(&p.Containers[i]))
	}
	for i := range p.InitContainers {
		s.Init = append(s.Init, asksOf(&p.InitContainers[i]))
	}
	for key, value := range template.Annotations { //berth:unordered copies a map
		if strings.HasPrefix(key, topologyPrefix) {
			if s.Topology == nil {
				s.Topology = map[string]string{}
			}
			s.Topology[key] = value
		}
	}
	return s
}

// topologyPrefix is the prefix of topology annotations.
const topologyPrefix = "kueue.x-k8s.io/podset-"

func asksOf(c *corev1.Container) asks {
	return asks{
		Requests: c.Resources.Requests, Limits: c.Resources.Limits, Claims: c.Resources.Claims,
		Sidecar: c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways,
	}
}
