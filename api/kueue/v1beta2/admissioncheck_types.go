package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the admission check controllers that are part of Berth.
const (
	// ProvisioningRequestControllerName is the controller of checks that ask a cluster autoscaler for nodes.
	ProvisioningRequestControllerName = "kueue.x-k8s.io/provisioning-request"
	// MultiKueueControllerName is the controller of checks that send Workloads to worker clusters. It is also the value
	// of managedBy on jobs that run elsewhere, and the name of a preemption gate.
	MultiKueueControllerName = "kueue.x-k8s.io/multikueue"
)

// CheckState is the state of one admission check of one Workload.
//
// +kubebuilder:validation:Enum=Pending;Ready;Retry;Rejected
type CheckState string

const (
	// CheckStatePending means that the check has not been made.
	CheckStatePending CheckState = "Pending"
	// CheckStateReady means that the check passed.
	CheckStateReady CheckState = "Ready"
	// CheckStateRetry means that the Workload must give up its quota and try again later.
	CheckStateRetry CheckState = "Retry"
	// CheckStateRejected means that the Workload must be deactivated.
	CheckStateRejected CheckState = "Rejected"
)

// AdmissionCheckState is the state of one admission check of a Workload (spec: 20 §4.17).
type AdmissionCheckState struct {
	// name of the AdmissionCheck.
	//
	// +required
	Name AdmissionCheckReference `json:"name"`

	// state of the check.
	//
	// +required
	State CheckState `json:"state"`

	// lastTransitionTime is when the state last changed.
	//
	// +required
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`

	// message explains the state to people. May be empty; at most 32768 characters.
	//
	// +required
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message"`

	// requeueAfterSeconds, with state Retry, is how many seconds after lastTransitionTime the Workload may be tried again.
	// At least 0. Absent: at once.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	RequeueAfterSeconds *int32 `json:"requeueAfterSeconds,omitempty"`

	// retryCount is how often this check sent the Workload back. At least 0.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	RetryCount *int32 `json:"retryCount,omitempty"`

	// podSetUpdates are changes that the check makes to the pods when they start. They cannot change while the check stays
	// Ready. At most 18.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=18
	PodSetUpdates []PodSetUpdate `json:"podSetUpdates,omitempty"`
}

// PodSetUpdate is what a check adds to the pods of one pod set. A key that is there already with another value makes the
// job fail to start.
type PodSetUpdate struct {
	// name of the pod set.
	//
	// +required
	Name PodSetReference `json:"name"`

	// labels to add.
	//
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// annotations to add.
	//
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// nodeSelector holds node labels to select.
	//
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations to add, at most 8.
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
}

// AdmissionCheckSpec names the controller of the check.
type AdmissionCheckSpec struct {
	// controllerName is the controller that makes the check, 1 to 253 characters. Immutable.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ControllerName string `json:"controllerName"`

	// parameters names a cluster-scoped object with the settings of the check. Absent: the controller has none.
	//
	// +optional
	Parameters *AdmissionCheckParametersReference `json:"parameters,omitempty"`
}

// AdmissionCheckParametersReference names an object that holds the parameters of a check.
type AdmissionCheckParametersReference struct {
	// apiGroup of the object: a DNS-1123 subdomain, 1 to 253 characters.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	APIGroup string `json:"apiGroup"`

	// kind of the object, 1 to 63 letters, digits and dashes.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern="^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$"
	Kind string `json:"kind"`

	// name of the object: a DNS label, 1 to 63 characters.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	Name string `json:"name"`
}

// AdmissionCheckStatus is the observed state of an AdmissionCheck.
type AdmissionCheckStatus struct {
	// conditions holds at most 16 conditions; Active reports whether the check can be made.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AdmissionCheck is something that a Workload must pass after it has reserved quota and before it starts
// (spec: 20 §2.5).
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName={ac}
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec) || (has(self.spec) && self.spec.controllerName == oldSelf.spec.controllerName)",message="controllerName is immutable: create another AdmissionCheck instead",fieldPath=".spec.controllerName"
type AdmissionCheck struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec names the controller of the check.
	//
	// +optional
	Spec AdmissionCheckSpec `json:"spec"`

	// status is the observed state, written by the controller of the check.
	//
	// +optional
	Status AdmissionCheckStatus `json:"status,omitzero"`
}

// AdmissionCheckList is a list of AdmissionChecks.
//
// +kubebuilder:object:root=true
type AdmissionCheckList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []AdmissionCheck `json:"items"`
}
