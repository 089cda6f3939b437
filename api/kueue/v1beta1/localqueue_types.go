package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// LocalQueueStatus is the observed state of a LocalQueue.
type LocalQueueStatus struct {
	// conditions of the queue: Active.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
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

	// flavorsReservation is the quota reserved by Workloads of this queue.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	FlavorsReservation []kueue.LocalQueueFlavorUsage `json:"flavorsReservation,omitempty"`

	// flavorUsage is the quota used by admitted Workloads of this queue: flavorsUsage in v1beta2.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	FlavorUsage []kueue.LocalQueueFlavorUsage `json:"flavorUsage,omitempty"`

	// flavors described the flavors of the ClusterQueue. It is accepted and dropped.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Flavors []LocalQueueFlavorStatus `json:"flavors,omitempty"`

	// fairSharing is the ledger of admission fair sharing for this queue.
	//
	// +optional
	FairSharing *kueue.LocalQueueFairSharingStatus `json:"fairSharing,omitempty"`
}

// LocalQueueFlavorStatus described one flavor.
type LocalQueueFlavorStatus struct {
	// name of the flavor.
	//
	// +required
	Name kueue.ResourceFlavorReference `json:"name"`

	// resources of the flavor.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Resources []corev1.ResourceName `json:"resources,omitempty"`

	// nodeLabels of the nodes behind the flavor, at most 8.
	//
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=8
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`

	// nodeTaints of those nodes, at most 8.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	NodeTaints []corev1.Taint `json:"nodeTaints,omitempty"`

	// topology of those nodes.
	//
	// +optional
	Topology *TopologyInfo `json:"topology,omitempty"`
}

// TopologyInfo described a Topology.
type TopologyInfo struct {
	// name of the Topology.
	//
	// +required
	Name kueue.TopologyReference `json:"name"`

	// levels of the Topology, 1 to 16.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Levels []string `json:"levels"`
}

// LocalQueue is the entry point of a tenant: jobs of its namespace name it, and it names a ClusterQueue.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="kueue.x-k8s.io/v1beta1 LocalQueue is deprecated: use kueue.x-k8s.io/v1beta2"
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
	Spec kueue.LocalQueueSpec `json:"spec"`

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
