package v1beta2

import "k8s.io/apimachinery/pkg/api/resource"

// ResourceFlavorReference is the name of a ResourceFlavor: a DNS-1123 subdomain of at most 253 characters.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
type ResourceFlavorReference string

// ClusterQueueReference is the name of a ClusterQueue: a DNS-1123 subdomain of at most 253 characters.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
type ClusterQueueReference string

// CohortReference is the name of a cohort: a DNS-1123 subdomain of at most 253 characters. A Cohort object of that
// name need not exist (spec: 10 §2.2).
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
type CohortReference string

// LocalQueueName is the name of a LocalQueue, without its namespace: a DNS-1123 subdomain of at most 253 characters.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
type LocalQueueName string

// TopologyReference is the name of a Topology: a DNS-1123 subdomain of at most 253 characters.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
type TopologyReference string

// AdmissionCheckReference is the name of an AdmissionCheck, 1 to 316 characters.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=316
type AdmissionCheckReference string

// PodSetReference is the name of a pod set of a Workload: a DNS label of at most 63 characters.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
type PodSetReference string

// StopPolicy stops a queue's admissions, and optionally evicts the Workloads that it has admitted (spec: 10 §4.12).
//
// +kubebuilder:validation:Enum=None;Hold;HoldAndDrain
type StopPolicy string

const (
	// StopPolicyNone lets the queue work normally.
	StopPolicyNone StopPolicy = "None"
	// StopPolicyHold stops new reservations. Workloads that are reserved but not admitted lose their quota; admitted ones
	// run on.
	StopPolicyHold StopPolicy = "Hold"
	// StopPolicyHoldAndDrain does the same and evicts the admitted Workloads.
	StopPolicyHoldAndDrain StopPolicy = "HoldAndDrain"
)

// FairSharing sets the weight of a ClusterQueue, Cohort or LocalQueue when resources are shared fairly.
type FairSharing struct {
	// weight divides the share of the object: twice the weight may use twice as much before others come first.
	// A Quantity of at least 0, default 1; above 0 but at most 1n is refused. With weight 0 the object goes behind all others as
	// soon as it borrows. May change at any time. On a LocalQueue it counts for admission fair sharing only
	// (spec: 20 §2.1).
	//
	// +optional
	// +kubebuilder:default=1
	Weight *resource.Quantity `json:"weight,omitempty"`
}

// FairSharingStatus is the position of a ClusterQueue or Cohort in fair sharing.
type FairSharingStatus struct {
	// weightedShare is the share by which fair sharing orders: borrowed quota relative to what the parent can lend, per
	// mille, divided by the weight and rounded up. 9223372036854775807 stands for infinite: it borrows with weight 0
	// (spec: 20 §2.1). Absent while fair sharing is off.
	//
	// +required
	WeightedShare int64 `json:"weightedShare"`
}
