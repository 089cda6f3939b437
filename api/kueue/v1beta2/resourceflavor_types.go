package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceFlavorSpec describes the nodes behind a flavor.
//
// +kubebuilder:validation:XValidation:rule="!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) > 0)",message="topologyName needs at least one entry in nodeLabels",fieldPath=".nodeLabels"
type ResourceFlavorSpec struct {
	// nodeLabels are the labels of the nodes behind this flavor, at most 8. They decide whether the node selector and
	// affinity of a Workload match, and are added to the node selector of the pods that start. May change at any time;
	// admitted Workloads keep their pods.
	//
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=8
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`

	// nodeTaints are the taints of those nodes, at most 8. A Workload gets this flavor only if its pods, together with
	// tolerations below, tolerate the NoSchedule and NoExecute ones; PreferNoSchedule is ignored.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="effect of a taint must be NoSchedule, PreferNoSchedule or NoExecute"
	NodeTaints []corev1.Taint `json:"nodeTaints,omitempty"`

	// tolerations are added to the pods that start with this flavor, at most 8. They also count as the pods' own when
	// taints are matched.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(t, (has(t.key) && size(t.key) > 0) || (has(t.operator) && t.operator == 'Exists'))",message="operator of a toleration without key must be Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))",message="effect of a toleration with tolerationSeconds must be NoExecute"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in ['Equal', 'Exists'])",message="operator of a toleration must be Equal or Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value) || size(t.value) == 0)",message="value of a toleration must be empty if its operator is Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="effect of a toleration must be NoSchedule, PreferNoSchedule or NoExecute, or absent for all three"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// topologyName names the Topology of the nodes behind this flavor, for topology-aware placement. Needs nodeLabels. It
	// may be set later, but once set it neither changes nor disappears.
	//
	// +optional
	TopologyName TopologyReference `json:"topologyName,omitempty"`
}

// ResourceFlavor is a kind of nodes that quota can be given for, such as spot or on-demand (spec: 10 §2.1).
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName={flavor,flavors,rf}
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.spec) && has(oldSelf.spec.topologyName)) || (has(self.spec) && has(self.spec.topologyName) && self.spec.topologyName == oldSelf.spec.topologyName)",message="topologyName is immutable once set: create another ResourceFlavor instead",fieldPath=".spec.topologyName"
type ResourceFlavor struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec describes the nodes behind this flavor.
	//
	// +optional
	Spec ResourceFlavorSpec `json:"spec"`
}

// ResourceFlavorList is a list of ResourceFlavors.
//
// +kubebuilder:object:root=true
type ResourceFlavorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ResourceFlavor `json:"items"`
}
