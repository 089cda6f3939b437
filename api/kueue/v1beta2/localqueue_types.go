package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultLocalQueueName is the LocalQueue that jobs without a queue name get, where one of this name exists
// (spec: 10 §2.4).
const DefaultLocalQueueName LocalQueueName = "default"

// LocalQueueSpec says where the Workloads of a LocalQueue go.
type LocalQueueSpec struct {
	// clusterQueue is the ClusterQueue that admits the Workloads of this queue. It may be set later, but once set it
	// neither changes nor disappears.
	//
	// +optional
	ClusterQueue ClusterQueueReference `json:"clusterQueue,omitempty"`

	// stopPolicy stops this queue alone: Hold admits nothing new, HoldAndDrain also evicts what is admitted. Default
	// None.
	//
	// +optional
	// +kubebuilder:default=None
	StopPolicy StopPolicy `json:"stopPolicy,omitempty"`

	// fairSharing is the weight of this queue among the LocalQueues of the same ClusterQueue. Used only where admission
	// fair sharing is on.
	//
	// +optional
	FairSharing *FairSharing `json:"fairSharing,omitempty"`
}

// LocalQueueStatus is the observed state of a LocalQueue.
type LocalQueueStatus struct {
	// conditions holds at most 16 conditions; Berth writes Active.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// pendingWorkloads is the number of Workloads of this queue that wait for a reservation.
	//
	// +optional
	PendingWorkloads int32 `json:"pendingWorkloads"`

	// reservingWorkloads is the number of Workloads of this queue that hold a reservation, admitted ones included.
	//
	// +optional
	ReservingWorkloads int32 `json:"reservingWorkloads"`

	// admittedWorkloads is the number of admitted Workloads of this queue that are not finished.
	//
	// +optional
	AdmittedWorkloads int32 `json:"admittedWorkloads"`

	// flavorsReservation is the quota reserved by Workloads of this queue, for every flavor and resource of the
	// ClusterQueue, zeros included.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	FlavorsReservation []LocalQueueFlavorUsage `json:"flavorsReservation,omitempty"`

	// flavorsUsage is the quota used by admitted Workloads of this queue, in the same order.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	FlavorsUsage []LocalQueueFlavorUsage `json:"flavorsUsage,omitempty"`

	// fairSharing is the ledger of admission fair sharing for this queue.
	//
	// +optional
	FairSharing *LocalQueueFairSharingStatus `json:"fairSharing,omitempty"`
}

// LocalQueueFlavorUsage is the use of one flavor by a LocalQueue.
type LocalQueueFlavorUsage struct {
	// name of the flavor.
	//
	// +required
	Name ResourceFlavorReference `json:"name"`

	// resources holds the use of each resource, sorted by name. At most 64 entries.
	//
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Resources []LocalQueueResourceUsage `json:"resources"`
}

// LocalQueueResourceUsage is the use of one resource in one flavor by a LocalQueue.
type LocalQueueResourceUsage struct {
	// name of the resource.
	//
	// +required
	Name corev1.ResourceName `json:"name"`

	// total is the amount in use.
	//
	// +optional
	Total resource.Quantity `json:"total"`
}

// LocalQueueFairSharingStatus is the position of a LocalQueue in admission fair sharing.
type LocalQueueFairSharingStatus struct {
	// weightedShare is kept for the wire format; it has no meaning for a LocalQueue.
	//
	// +required
	WeightedShare int64 `json:"weightedShare"`

	// admissionFairSharingStatus is the decayed past usage, kept here so that it survives a restart.
	//
	// +optional
	AdmissionFairSharingStatus *AdmissionFairSharingStatus `json:"admissionFairSharingStatus,omitempty"`
}

// AdmissionFairSharingStatus is the ledger of admission fair sharing (spec: 20 §4.4).
type AdmissionFairSharingStatus struct {
	// consumedResources is the usage of each resource up to lastUpdate, halved every usageHalfLifeTime.
	//
	// +required
	ConsumedResources corev1.ResourceList `json:"consumedResources"`

	// lastUpdate is when consumedResources was computed.
	//
	// +required
	LastUpdate metav1.Time `json:"lastUpdate"`
}

// LocalQueue is the entry point of a tenant: jobs of its namespace name it, and it names a ClusterQueue
// (spec: 10 §2.4).
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced,shortName={queue,queues,lq}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="ClusterQueue",type=string,JSONPath=`.spec.clusterQueue`
// +kubebuilder:printcolumn:name="Pending Workloads",type=integer,JSONPath=`.status.pendingWorkloads`
// +kubebuilder:printcolumn:name="Admitted Workloads",type=integer,JSONPath=`.status.admittedWorkloads`
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.spec) && has(oldSelf.spec.clusterQueue)) || (has(self.spec) && has(self.spec.clusterQueue) && self.spec.clusterQueue == oldSelf.spec.clusterQueue)",message="clusterQueue is immutable once set: create another LocalQueue instead",fieldPath=".spec.clusterQueue"
type LocalQueue struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says where Workloads go.
	//
	// +optional
	Spec LocalQueueSpec `json:"spec"`

	// status is the observed state, written by Berth.
	//
	// +optional
	Status LocalQueueStatus `json:"status,omitzero"`
}

// LocalQueueList is a list of LocalQueues.
//
// +kubebuilder:object:root=true
type LocalQueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []LocalQueue `json:"items"`
}
