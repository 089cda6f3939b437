package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// ResourceFlavor is a kind of nodes that quota can be given for, such as spot or on-demand.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="kueue.x-k8s.io/v1beta1 ResourceFlavor is deprecated: use kueue.x-k8s.io/v1beta2"
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
	Spec kueue.ResourceFlavorSpec `json:"spec"`
}

// ResourceFlavorList is a list of ResourceFlavors.
//
// +kubebuilder:object:root=true
type ResourceFlavorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ResourceFlavor `json:"items"`
}

// Topology is the hierarchy of the nodes behind a flavor, such as block, rack and host.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="kueue.x-k8s.io/v1beta1 Topology is deprecated: use kueue.x-k8s.io/v1beta2"
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
	Spec kueue.TopologySpec `json:"spec"`
}

// TopologyList is a list of Topologies.
//
// +kubebuilder:object:root=true
type TopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Topology `json:"items"`
}

// WorkloadPriorityClass is a priority that counts in queues and preemption but not in the pod scheduler.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="kueue.x-k8s.io/v1beta1 WorkloadPriorityClass is deprecated: use kueue.x-k8s.io/v1beta2"
// +kubebuilder:resource:scope=Cluster,shortName={wpc}
// +kubebuilder:printcolumn:name="Value",type=integer,JSONPath=`.value`
type WorkloadPriorityClass struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// value is the priority; higher goes first.
	//
	// +required
	Value int32 `json:"value"`

	// description says when to use this class, for people.
	//
	// +optional
	Description string `json:"description,omitempty"`
}

// WorkloadPriorityClassList is a list of WorkloadPriorityClasses.
//
// +kubebuilder:object:root=true
type WorkloadPriorityClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []WorkloadPriorityClass `json:"items"`
}
