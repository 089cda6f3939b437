package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// AdmissionCheckSpec names the controller of the check.
type AdmissionCheckSpec struct {
	// controllerName is the controller that makes the check. Immutable.
	//
	// +required
	ControllerName string `json:"controllerName"`

	// retryDelayMinutes has no effect. It is accepted and dropped.
	//
	// +optional
	// +kubebuilder:default=15
	RetryDelayMinutes *int64 `json:"retryDelayMinutes,omitempty"`

	// parameters names a cluster-scoped object with the settings of the check. Absent: the controller has none.
	//
	// +optional
	Parameters *AdmissionCheckParametersReference `json:"parameters,omitempty"`
}

// AdmissionCheckParametersReference names an object that holds the parameters of a check.
type AdmissionCheckParametersReference struct {
	// apiGroup of the object: a DNS-1123 subdomain of at most 253 characters.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	APIGroup string `json:"apiGroup"`

	// kind of the object, at most 63 letters, digits and dashes.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern="^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$"
	Kind string `json:"kind"`

	// name of the object: a DNS label of at most 63 characters.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	Name string `json:"name"`
}

// AdmissionCheckStatus is the observed state of an AdmissionCheck.
type AdmissionCheckStatus struct {
	// conditions of the check; Active reports whether it can be made.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AdmissionCheck is something that a Workload must pass after it has reserved quota and before it starts.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="kueue.x-k8s.io/v1beta1 AdmissionCheck is deprecated: use kueue.x-k8s.io/v1beta2"
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

// ProvisioningRequestConfigSpec specifies what ProvisioningRequests look like and when they are made again.
type ProvisioningRequestConfigSpec struct {
	// provisioningClassName is the class of the ProvisioningRequests: a DNS-1123 subdomain of at most 253 characters.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	ProvisioningClassName string `json:"provisioningClassName"`

	// parameters are copied into the ProvisioningRequests. At most 100.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Parameters map[string]kueue.ProvisioningRequestParameter `json:"parameters,omitempty"`

	// managedResources are the resources that need a ProvisioningRequest. Empty: every pod set needs one. At most 100, no
	// duplicates.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	ManagedResources []corev1.ResourceName `json:"managedResources,omitempty"`

	// retryStrategy specifies how often and when a failed ProvisioningRequest is made again. Default: 3 times, after 60 s and
	// doubling, at most 1800 s.
	//
	// +optional
	// +kubebuilder:default={backoffLimitCount:3,backoffBaseSeconds:60,backoffMaxSeconds:1800}
	RetryStrategy *kueue.ProvisioningRequestRetryStrategy `json:"retryStrategy,omitempty"`

	// podSetUpdates specifies what the pods get from a provisioned request.
	//
	// +optional
	PodSetUpdates *ProvisioningRequestPodSetUpdates `json:"podSetUpdates,omitempty"`

	// podSetMergePolicy says which pod sets of a Workload become one in the ProvisioningRequest. Absent: none.
	//
	// +optional
	PodSetMergePolicy *kueue.ProvisioningRequestPodSetMergePolicy `json:"podSetMergePolicy,omitempty"`
}

// ProvisioningRequestPodSetUpdates is what pods get from a provisioned request.
type ProvisioningRequestPodSetUpdates struct {
	// nodeSelector holds node selectors whose values the request provides. At most 8.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=8
	NodeSelector []kueue.ProvisioningRequestNodeSelectorUpdate `json:"nodeSelector,omitempty"`
}

// ProvisioningRequestConfig holds the parameters of an AdmissionCheck that asks a cluster autoscaler for nodes.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="kueue.x-k8s.io/v1beta1 ProvisioningRequestConfig is deprecated: use kueue.x-k8s.io/v1beta2"
// +kubebuilder:resource:scope=Cluster,shortName={prc}
type ProvisioningRequestConfig struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec specifies what to ask for.
	//
	// +optional
	Spec ProvisioningRequestConfigSpec `json:"spec"`
}

// ProvisioningRequestConfigList is a list of ProvisioningRequestConfigs.
//
// +kubebuilder:object:root=true
type ProvisioningRequestConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ProvisioningRequestConfig `json:"items"`
}
