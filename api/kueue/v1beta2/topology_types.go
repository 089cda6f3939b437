package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TopologySpec holds the levels of a Topology.
type TopologySpec struct {
	// levels from the broadest to the narrowest, 1 to 16, no label twice; kubernetes.io/hostname only as the last. They
	// may change only if kubernetes.io/hostname is the last level before and after.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, b.nodeLabel == a.nodeLabel))",message="levels must not name a nodeLabel twice"
	// +kubebuilder:validation:XValidation:rule="!self.exists(l, l.nodeLabel == 'kubernetes.io/hostname') || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",message="nodeLabel kubernetes.io/hostname is allowed only in the last of levels"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf || (self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname' && oldSelf[size(oldSelf) - 1].nodeLabel == 'kubernetes.io/hostname')",message="levels may change only if kubernetes.io/hostname is the last level before and after"
	Levels []TopologyLevel `json:"levels"`
}

// TopologyLevel is one level of a Topology.
type TopologyLevel struct {
	// nodeLabel is the node label whose values are the domains of this level, such as topology.kubernetes.io/zone. 1 to
	// 316 characters.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern="^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
	NodeLabel string `json:"nodeLabel"`
}

// Topology is the hierarchy of the nodes behind a flavor, such as block, rack and host (spec: 20 §2.2).
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName={topo}
type Topology struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec holds the levels.
	//
	// +optional
	Spec TopologySpec `json:"spec"`
}

// TopologyList is a list of Topologies.
//
// +kubebuilder:object:root=true
type TopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Topology `json:"items"`
}
