package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// ClusterQueueSpec holds the quota and the policies of a ClusterQueue.
//
// +kubebuilder:validation:XValidation:rule="has(self.cohort) || !has(self.resourceGroups) || self.resourceGroups.all(g, g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",message="borrowingLimit needs cohort: without a cohort there is nobody to borrow from",fieldPath=".resourceGroups"
type ClusterQueueSpec struct {
	// resourceGroups holds the quota. A group is a set of resources that are always assigned the same flavor; a resource
	// and a flavor belong to at most one group. At most 16 groups.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ResourceGroups []ResourceGroup `json:"resourceGroups,omitempty"`

	// cohort is the cohort this queue borrows from and lends to: cohortName in v1beta2.
	//
	// +optional
	Cohort kueue.CohortReference `json:"cohort,omitempty"`

	// queueingStrategy specifies whether a Workload that cannot be admitted blocks the ones behind it (StrictFIFO) or not
	// (BestEffortFIFO, the default).
	//
	// +optional
	// +kubebuilder:default=BestEffortFIFO
	QueueingStrategy kueue.QueueingStrategy `json:"queueingStrategy,omitempty"`

	// namespaceSelector selects the namespaces whose Workloads may be admitted here. Absent selects no namespace, the
	// empty selector {} selects all.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// flavorFungibility says when to go on to the next flavor although the present one could be used by borrowing or
	// preempting. Default: whenCanBorrow MayStopSearch, whenCanPreempt TryNextFlavor.
	//
	// +optional
	// +kubebuilder:default={}
	FlavorFungibility *FlavorFungibility `json:"flavorFungibility,omitempty"`

	// preemption says which Workloads may be evicted to make room for one of this queue. Default: none.
	//
	// +optional
	// +kubebuilder:default={}
	Preemption *kueue.ClusterQueuePreemption `json:"preemption,omitempty"`

	// admissionChecks lists admission checks for all flavors. It takes the place of an admissionChecksStrategy that is
	// given at the same time, and is read back as one.
	//
	// +optional
	AdmissionChecks []AdmissionCheckReference `json:"admissionChecks,omitempty"`

	// admissionChecksStrategy lists the admission checks that a Workload must pass after it has reserved quota.
	//
	// +optional
	AdmissionChecksStrategy *AdmissionChecksStrategy `json:"admissionChecksStrategy,omitempty"`

	// stopPolicy stops the queue: Hold admits nothing new, HoldAndDrain also evicts what is admitted. Default None.
	//
	// +optional
	// +kubebuilder:default=None
	StopPolicy kueue.StopPolicy `json:"stopPolicy,omitempty"`

	// fairSharing is the weight of this queue among the members of its cohort. Used only when fair sharing is configured.
	//
	// +optional
	FairSharing *kueue.FairSharing `json:"fairSharing,omitempty"`

	// admissionScope specifies whether the LocalQueues of this queue share it by their past usage.
	//
	// +optional
	AdmissionScope *AdmissionScope `json:"admissionScope,omitempty"`
}

// AdmissionCheckReference is the name of an AdmissionCheck, at most 316 characters.
//
// +kubebuilder:validation:MaxLength=316
type AdmissionCheckReference string

// ResourceGroup is a set of resources with their quota per flavor.
//
// +kubebuilder:validation:XValidation:rule="self.flavors.all(f, size(f.resources) == size(self.coveredResources))",message="every flavor must list exactly the coveredResources of its group: the number of resources differs",fieldPath=".flavors"
type ResourceGroup struct {
	// coveredResources names the resources of this group, such as cpu, memory or nvidia.com/gpu. 1 to 64 entries.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	CoveredResources []corev1.ResourceName `json:"coveredResources"`

	// flavors holds the quota of each flavor. The order is the order of preference. 1 to 64 entries.
	//
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Flavors []kueue.FlavorQuotas `json:"flavors"`
}

// FlavorFungibility specifies how far the search for a flavor goes.
//
// +kubebuilder:validation:XValidation:rule="!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",message="preference has a meaning only if whenCanBorrow and whenCanPreempt are both TryNextFlavor",fieldPath=".preference"
type FlavorFungibility struct {
	// whenCanBorrow decides about a flavor that fits by borrowing. Borrow is the old word for MayStopSearch, which is
	// the default and what is read back.
	//
	// +optional
	// +kubebuilder:default=MayStopSearch
	// +kubebuilder:validation:Enum=MayStopSearch;TryNextFlavor;Borrow
	WhenCanBorrow string `json:"whenCanBorrow,omitempty"`

	// whenCanPreempt decides about a flavor that would fit after a preemption. Preempt is the old word for
	// MayStopSearch, which is what is read back. Default TryNextFlavor.
	//
	// +optional
	// +kubebuilder:default=TryNextFlavor
	// +kubebuilder:validation:Enum=MayStopSearch;TryNextFlavor;Preempt
	WhenCanPreempt string `json:"whenCanPreempt,omitempty"`

	// preference chooses between borrowing and preempting when all flavors were looked at. Absent means
	// BorrowingOverPreemption. Legal only with both policies TryNextFlavor.
	//
	// +optional
	Preference *kueue.FlavorFungibilityPreference `json:"preference,omitempty"`
}

// AdmissionChecksStrategy lists the checks of a ClusterQueue.
type AdmissionChecksStrategy struct {
	// admissionChecks holds the checks and the flavors they are for.
	//
	// +optional
	AdmissionChecks []AdmissionCheckStrategyRule `json:"admissionChecks,omitempty"`
}

// AdmissionCheckStrategyRule says for which flavors a check is asked.
type AdmissionCheckStrategyRule struct {
	// name of the AdmissionCheck.
	//
	// +required
	Name AdmissionCheckReference `json:"name"`

	// onFlavors restricts the check to Workloads that got one of these flavors of the ClusterQueue. Empty: all flavors.
	//
	// +optional
	OnFlavors []kueue.ResourceFlavorReference `json:"onFlavors,omitempty"`
}

// AdmissionScope configures admission fair sharing in a ClusterQueue.
type AdmissionScope struct {
	// admissionMode is UsageBasedAdmissionFairSharing or NoAdmissionFairSharing.
	//
	// +required
	AdmissionMode string `json:"admissionMode"`
}

// ClusterQueueStatus is the observed state of a ClusterQueue.
type ClusterQueueStatus struct {
	// conditions of the queue: Active.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// flavorsReservation is the quota reserved by Workloads of this queue.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	FlavorsReservation []kueue.FlavorUsage `json:"flavorsReservation,omitempty"`

	// flavorsUsage is the quota used by admitted Workloads of this queue.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	FlavorsUsage []kueue.FlavorUsage `json:"flavorsUsage,omitempty"`

	// pendingWorkloads is the number of Workloads that wait for a reservation.
	//
	// +optional
	PendingWorkloads int32 `json:"pendingWorkloads"`

	// reservingWorkloads is the number of Workloads that hold a reservation, admitted ones included.
	//
	// +optional
	ReservingWorkloads int32 `json:"reservingWorkloads"`

	// admittedWorkloads is the number of admitted Workloads that are not finished.
	//
	// +optional
	AdmittedWorkloads int32 `json:"admittedWorkloads"`

	// pendingWorkloadsStatus was a list of waiting Workloads. It is accepted and dropped: ask the visibility API.
	//
	// +optional
	PendingWorkloadsStatus *ClusterQueuePendingWorkloadsStatus `json:"pendingWorkloadsStatus,omitempty"`

	// fairSharing is the position of this queue in fair sharing. Present only while fair sharing is configured.
	//
	// +optional
	FairSharing *FairSharingStatus `json:"fairSharing,omitempty"`
}

// ClusterQueuePendingWorkloadsStatus was a list of the Workloads that wait in a ClusterQueue.
type ClusterQueuePendingWorkloadsStatus struct {
	// clusterQueuePendingWorkload names the Workloads.
	//
	// +optional
	// +listType=atomic
	ClusterQueuePendingWorkload []ClusterQueuePendingWorkload `json:"clusterQueuePendingWorkload,omitempty"`

	// lastChangeTime is when the list last changed.
	//
	// +required
	LastChangeTime metav1.Time `json:"lastChangeTime"`
}

// ClusterQueuePendingWorkload names a Workload that waits.
type ClusterQueuePendingWorkload struct {
	// name of the Workload.
	//
	// +required
	Name string `json:"name"`

	// namespace of the Workload.
	//
	// +required
	Namespace string `json:"namespace"`
}

// FairSharingStatus is the position of a ClusterQueue or Cohort in fair sharing.
type FairSharingStatus struct {
	// weightedShare is the share by which fair sharing orders.
	//
	// +required
	WeightedShare int64 `json:"weightedShare"`

	// admissionFairSharingStatus has a meaning for LocalQueues only. It is accepted and dropped.
	//
	// +optional
	AdmissionFairSharingStatus *kueue.AdmissionFairSharingStatus `json:"admissionFairSharingStatus,omitempty"`
}

// ClusterQueue holds quota for a set of resource flavors and the policies by which it is given to Workloads.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="kueue.x-k8s.io/v1beta1 ClusterQueue is deprecated: use kueue.x-k8s.io/v1beta2"
// +kubebuilder:resource:scope=Cluster,shortName={cq}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cohort",type=string,JSONPath=`.spec.cohort`
// +kubebuilder:printcolumn:name="Strategy",type=string,priority=1,JSONPath=`.spec.queueingStrategy`
// +kubebuilder:printcolumn:name="Pending Workloads",type=integer,JSONPath=`.status.pendingWorkloads`
// +kubebuilder:printcolumn:name="Admitted Workloads",type=integer,priority=1,JSONPath=`.status.admittedWorkloads`
type ClusterQueue struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec holds the quota and the policies.
	//
	// +optional
	Spec ClusterQueueSpec `json:"spec"`

	// status is the observed state, written by Berth.
	//
	// +optional
	Status ClusterQueueStatus `json:"status,omitzero"`
}

// ClusterQueueList is a list of ClusterQueues.
//
// +kubebuilder:object:root=true
type ClusterQueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ClusterQueue `json:"items"`
}
