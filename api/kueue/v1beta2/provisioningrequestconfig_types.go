package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProvisioningRequestParameter is a value passed to a ProvisioningRequest, at most 255 characters.
//
// +kubebuilder:validation:MaxLength=255
type ProvisioningRequestParameter string

// ProvisioningRequestConfigSpec specifies what ProvisioningRequests look like and when they are made again. May change at any
// time: requests that no longer agree are replaced.
type ProvisioningRequestConfigSpec struct {
	// provisioningClassName is the class of the ProvisioningRequests: a DNS-1123 subdomain, 1 to 253 characters.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	ProvisioningClassName string `json:"provisioningClassName"`

	// parameters are copied into the ProvisioningRequests. An annotation provreq.kueue.x-k8s.io/NAME of the job overrides
	// the parameter NAME. At most 100.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Parameters map[string]ProvisioningRequestParameter `json:"parameters,omitempty"`

	// managedResources are the resources that need a ProvisioningRequest: pod sets that use none of them need none.
	// Empty: every pod set needs one. At most 100, no duplicates.
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
	RetryStrategy *ProvisioningRequestRetryStrategy `json:"retryStrategy,omitempty"`

	// podSetUpdates specifies what the pods get from a provisioned request.
	//
	// +optional
	PodSetUpdates *ProvisioningRequestPodSetUpdates `json:"podSetUpdates,omitempty"`

	// podSetMergePolicy says which pod sets of a Workload become one in the ProvisioningRequest. Absent: none.
	//
	// +optional
	PodSetMergePolicy *ProvisioningRequestPodSetMergePolicy `json:"podSetMergePolicy,omitempty"`
}

// ProvisioningRequestPodSetMergePolicy says when two pod sets are alike.
//
// +kubebuilder:validation:Enum=IdenticalPodTemplates;IdenticalWorkloadSchedulingRequirements
type ProvisioningRequestPodSetMergePolicy string

const (
	// IdenticalPodTemplates merges pod sets with equal templates.
	IdenticalPodTemplates ProvisioningRequestPodSetMergePolicy = "IdenticalPodTemplates"
	// IdenticalWorkloadSchedulingRequirements merges pod sets whose requests, node selectors, tolerations, affinity and
	// resource claims are equal.
	IdenticalWorkloadSchedulingRequirements ProvisioningRequestPodSetMergePolicy = "IdenticalWorkloadSchedulingRequirements"
)

// ProvisioningRequestRetryStrategy is the backoff after a failed ProvisioningRequest. The n-th retry comes after
// backoffBaseSeconds doubled n-1 times.
type ProvisioningRequestRetryStrategy struct {
	// backoffLimitCount is the number of retries before the check rejects the Workload. Default 3.
	//
	// +optional
	// +kubebuilder:default=3
	BackoffLimitCount *int32 `json:"backoffLimitCount,omitempty"`

	// backoffBaseSeconds is the time before the first retry, in seconds. Default 60.
	//
	// +optional
	// +kubebuilder:default=60
	BackoffBaseSeconds *int32 `json:"backoffBaseSeconds,omitempty"`

	// backoffMaxSeconds is the longest time before a retry, in seconds. Default 1800.
	//
	// +optional
	// +kubebuilder:default=1800
	BackoffMaxSeconds *int32 `json:"backoffMaxSeconds,omitempty"`
}

// ProvisioningRequestPodSetUpdates is what pods get from a provisioned request.
type ProvisioningRequestPodSetUpdates struct {
	// nodeSelector holds node selectors whose values the request provides. At most 8.
	//
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=8
	NodeSelector []ProvisioningRequestNodeSelectorUpdate `json:"nodeSelector,omitempty"`
}

// ProvisioningRequestNodeSelectorUpdate is a node selector whose value the request provides.
type ProvisioningRequestNodeSelectorUpdate struct {
	// key of the node selector: a label key, 1 to 317 characters.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern="^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
	Key string `json:"key"`

	// valueFromProvisioningClassDetail is the key in status.provisioningClassDetails of the ProvisioningRequest that holds
	// the value; a request without it adds no selector. 1 to 32768 characters.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	ValueFromProvisioningClassDetail string `json:"valueFromProvisioningClassDetail"`
}

// ProvisioningRequestConfig holds the parameters of an AdmissionCheck that asks a cluster autoscaler for nodes
// (spec: 20 §2.6).
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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
