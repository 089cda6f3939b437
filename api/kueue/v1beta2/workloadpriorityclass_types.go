package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WorkloadPriorityClass is a priority that counts in queues and preemption but not in the pod scheduler (spec: 10 §2.6).
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName={wpc}
// +kubebuilder:printcolumn:name="Value",type=integer,JSONPath=`.value`
type WorkloadPriorityClass struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// value is the priority; higher goes first. A change is copied into the priority of every Workload that refers to
	// this class, whatever its state.
	//
	// +required
	Value int32 `json:"value"`

	// description says when to use this class, for people. At most 2048 characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
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
