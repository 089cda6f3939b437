package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QueueingStrategy is the order in which a ClusterQueue looks at its pending Workloads.
//
// +kubebuilder:validation:Enum=StrictFIFO;BestEffortFIFO
type QueueingStrategy string

const (
	// StrictFIFO lets the head of the queue block the ones behind it, even if they would fit.
	StrictFIFO QueueingStrategy = "StrictFIFO"
	// BestEffortFIFO lets later Workloads pass a head that cannot be admitted now.
	BestEffortFIFO QueueingStrategy = "BestEffortFIFO"
)

// ClusterQueueSpec holds the quota and the policies of a ClusterQueue.
//
// +kubebuilder:validation:XValidation:rule="has(self.cohortName) || !has(self.resourceGroups) || self.resourceGroups.all(g, g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",message="borrowingLimit needs cohortName: without a cohort there is nobody to borrow from",fieldPath=".resourceGroups"
type ClusterQueueSpec struct {
	// resourceGroups holds the quota. A group is a set of resources that are always assigned the same flavor; a resource
	// and a flavor belong to at most one group. At most 16 groups, over all of them at most 256 flavors and 256
	// resources. May change at any time; running Workloads keep their quota (spec: 10 §2.2).
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ResourceGroups []ResourceGroup `json:"resourceGroups,omitempty"`

	// cohortName is the cohort this queue borrows from and lends to. A Cohort object of that name need not exist: it then
	// counts as one without quota and limits. Empty: the queue stands alone. May change at any time.
	//
	// +optional
	CohortName CohortReference `json:"cohortName,omitempty"`

	// queueingStrategy specifies whether a Workload that cannot be admitted blocks the ones behind it (StrictFIFO) or not
	// (BestEffortFIFO, the default). Workloads are ordered by priority, then by age. May change at any time.
	//
	// +optional
	// +kubebuilder:default=BestEffortFIFO
	QueueingStrategy QueueingStrategy `json:"queueingStrategy,omitempty"`

	// namespaceSelector selects the namespaces whose Workloads may be admitted here. Absent selects no namespace, the
	// empty selector {} selects all. May change at any time.
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
	Preemption *ClusterQueuePreemption `json:"preemption,omitempty"`

	// admissionChecksStrategy lists the admission checks that a Workload must pass after it has reserved quota.
	//
	// +optional
	AdmissionChecksStrategy *AdmissionChecksStrategy `json:"admissionChecksStrategy,omitempty"`

	// stopPolicy stops the queue: Hold admits nothing new, HoldAndDrain also evicts what is admitted. Default None.
	//
	// +optional
	// +kubebuilder:default=None
	StopPolicy StopPolicy `json:"stopPolicy,omitempty"`

	// fairSharing is the weight of this queue among the members of its cohort. Used only when fair sharing is configured.
	//
	// +optional
	FairSharing *FairSharing `json:"fairSharing,omitempty"`

	// admissionScope specifies whether the LocalQueues of this queue share it by their past usage.
	//
	// +optional
	AdmissionScope *AdmissionScope `json:"admissionScope,omitempty"`

	// concurrentAdmissionPolicy makes a Workload try several flavors at the same time. It cannot be added, changed or
	// removed after creation. Needs the feature gate ConcurrentAdmission (spec: 20 §4.13).
	//
	// +optional
	ConcurrentAdmissionPolicy *ConcurrentAdmissionPolicy `json:"concurrentAdmissionPolicy,omitempty"`
}

// ResourceGroup is a set of resources with their quota per flavor.
//
// +kubebuilder:validation:XValidation:rule="self.flavors.all(f, size(f.resources) == size(self.coveredResources))",message="every flavor must list exactly the coveredResources of its group: the number of resources differs",fieldPath=".flavors"
type ResourceGroup struct {
	// coveredResources names the resources of this group, such as cpu, memory or nvidia.com/gpu. 1 to 64 entries.
	//
	// +required
	// +listType=atomic
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
	Flavors []FlavorQuotas `json:"flavors"`
}

// FlavorQuotas is the quota of one flavor.
type FlavorQuotas struct {
	// name of the ResourceFlavor. While no such object exists the ClusterQueue is inactive.
	//
	// +required
	Name ResourceFlavorReference `json:"name"`

	// resources holds the quota of each covered resource, in the order of coveredResources. 1 to 64 entries.
	//
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Resources []ResourceQuota `json:"resources"`
}

// ResourceQuota is the quota of one resource in one flavor.
type ResourceQuota struct {
	// name of the resource; the i-th entry names the i-th of coveredResources.
	//
	// +required
	Name corev1.ResourceName `json:"name"`

	// nominalQuota is what is available to this queue, or what a Cohort adds for its subtree. At least 0.
	//
	// +required
	NominalQuota resource.Quantity `json:"nominalQuota"`

	// borrowingLimit is the most that may be borrowed from the parent cohort on top of nominalQuota. Absent: no limit.
	// At least 0; legal only with a parent cohort.
	//
	// +optional
	BorrowingLimit *resource.Quantity `json:"borrowingLimit,omitempty"`

	// lendingLimit is the most of nominalQuota that others may use while it is unused here. Absent: all of it. At least
	// 0 and, on a ClusterQueue, at most nominalQuota; legal only with a parent cohort.
	//
	// +optional
	LendingLimit *resource.Quantity `json:"lendingLimit,omitempty"`
}

// FlavorFungibilityPolicy specifies what to do with a flavor that could be used.
//
// +kubebuilder:validation:Enum=MayStopSearch;TryNextFlavor
type FlavorFungibilityPolicy string

const (
	// MayStopSearch takes the flavor.
	MayStopSearch FlavorFungibilityPolicy = "MayStopSearch"
	// TryNextFlavor looks at the remaining flavors first.
	TryNextFlavor FlavorFungibilityPolicy = "TryNextFlavor"
)

// FlavorFungibilityPreference says which of two ways to use a flavor is the lesser evil.
//
// +kubebuilder:validation:Enum=BorrowingOverPreemption;PreemptionOverBorrowing
type FlavorFungibilityPreference string

const (
	// BorrowingOverPreemption prefers a flavor in which the Workload borrows to one in which it preempts.
	BorrowingOverPreemption FlavorFungibilityPreference = "BorrowingOverPreemption"
	// PreemptionOverBorrowing prefers a flavor in which the Workload preempts to one in which it borrows.
	PreemptionOverBorrowing FlavorFungibilityPreference = "PreemptionOverBorrowing"
)

// FlavorFungibility specifies how far the search for a flavor goes (spec: 10 §4.6.4).
//
// +kubebuilder:validation:XValidation:rule="!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",message="preference has a meaning only if whenCanBorrow and whenCanPreempt are both TryNextFlavor",fieldPath=".preference"
type FlavorFungibility struct {
	// whenCanBorrow decides about a flavor that fits by borrowing. Default MayStopSearch.
	//
	// +optional
	// +kubebuilder:default=MayStopSearch
	WhenCanBorrow FlavorFungibilityPolicy `json:"whenCanBorrow,omitempty"`

	// whenCanPreempt decides about a flavor that would fit after a preemption. Default TryNextFlavor.
	//
	// +optional
	// +kubebuilder:default=TryNextFlavor
	WhenCanPreempt FlavorFungibilityPolicy `json:"whenCanPreempt,omitempty"`

	// preference chooses between borrowing and preempting when all flavors were looked at. Absent means
	// BorrowingOverPreemption. Legal only with both policies TryNextFlavor.
	//
	// +optional
	Preference *FlavorFungibilityPreference `json:"preference,omitempty"`
}

// ReclaimPolicy says which Workloads of other queues may be evicted to get lent quota back.
//
// +kubebuilder:validation:Enum=Never;LowerPriority;Any
type ReclaimPolicy string

const (
	// ReclaimNever evicts none.
	ReclaimNever ReclaimPolicy = "Never"
	// ReclaimLowerPriority evicts Workloads of lower priority.
	ReclaimLowerPriority ReclaimPolicy = "LowerPriority"
	// ReclaimAny evicts any that use borrowed quota.
	ReclaimAny ReclaimPolicy = "Any"
)

// PreemptionPolicy says which Workloads of the same queue may be evicted.
//
// +kubebuilder:validation:Enum=Never;LowerPriority;LowerOrNewerEqualPriority
type PreemptionPolicy string

const (
	// PreemptionNever evicts none.
	PreemptionNever PreemptionPolicy = "Never"
	// PreemptionLowerPriority evicts Workloads of lower priority.
	PreemptionLowerPriority PreemptionPolicy = "LowerPriority"
	// PreemptionLowerOrNewerEqualPriority evicts Workloads of lower priority and younger ones of the same priority.
	PreemptionLowerOrNewerEqualPriority PreemptionPolicy = "LowerOrNewerEqualPriority"
)

// BorrowWithinCohortPolicy specifies whether a Workload may preempt while it borrows.
//
// +kubebuilder:validation:Enum=Never;LowerPriority
type BorrowWithinCohortPolicy string

const (
	// BorrowWithinCohortNever does not preempt in other queues while borrowing.
	BorrowWithinCohortNever BorrowWithinCohortPolicy = "Never"
	// BorrowWithinCohortLowerPriority evicts Workloads of lower priority, bounded by maxPriorityThreshold.
	BorrowWithinCohortLowerPriority BorrowWithinCohortPolicy = "LowerPriority"
)

// ClusterQueuePreemption says which Workloads may be evicted for one of this queue (spec: 10 §4.7).
//
// +kubebuilder:validation:XValidation:rule="self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort) || self.borrowWithinCohort.policy == 'Never'",message="borrowWithinCohort.policy must be Never while reclaimWithinCohort is Never",fieldPath=".borrowWithinCohort"
type ClusterQueuePreemption struct {
	// reclaimWithinCohort decides about Workloads of other queues of the cohort that use borrowed quota, when the pending
	// Workload fits into the nominal quota of its own queue. Default Never.
	//
	// +optional
	// +kubebuilder:default=Never
	ReclaimWithinCohort ReclaimPolicy `json:"reclaimWithinCohort,omitempty"`

	// borrowWithinCohort decides about Workloads of other queues when the pending Workload has to borrow. Not used under
	// fair sharing. Default: policy Never.
	//
	// +optional
	// +kubebuilder:default={}
	BorrowWithinCohort *BorrowWithinCohort `json:"borrowWithinCohort,omitempty"`

	// withinClusterQueue decides about Workloads of the same queue. Default Never.
	//
	// +optional
	// +kubebuilder:default=Never
	WithinClusterQueue PreemptionPolicy `json:"withinClusterQueue,omitempty"`
}

// BorrowWithinCohort bounds preemption by a Workload that borrows.
type BorrowWithinCohort struct {
	// policy specifies whether to preempt while borrowing. Anything but Never needs reclaimWithinCohort to be other than
	// Never. Default Never.
	//
	// +optional
	// +kubebuilder:default=Never
	Policy BorrowWithinCohortPolicy `json:"policy,omitempty"`

	// maxPriorityThreshold protects Workloads with a priority above it. Absent: any lower priority may be evicted.
	//
	// +optional
	MaxPriorityThreshold *int32 `json:"maxPriorityThreshold,omitempty"`
}

// AdmissionChecksStrategy lists the checks of a ClusterQueue.
type AdmissionChecksStrategy struct {
	// admissionChecks holds the checks and the flavors they are for. 1 to 64 entries.
	//
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	AdmissionChecks []AdmissionCheckStrategyRule `json:"admissionChecks"`
}

// AdmissionCheckStrategyRule says for which flavors a check is asked.
type AdmissionCheckStrategyRule struct {
	// name of the AdmissionCheck. While it is missing or inactive, so is the ClusterQueue.
	//
	// +required
	Name AdmissionCheckReference `json:"name"`

	// onFlavors restricts the check to Workloads that got one of these flavors of the ClusterQueue. Empty: all flavors.
	// At most 64 entries, no duplicates.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	OnFlavors []ResourceFlavorReference `json:"onFlavors,omitempty"`
}

// AdmissionMode specifies how the LocalQueues of a ClusterQueue share it.
//
// +kubebuilder:validation:Enum=UsageBasedAdmissionFairSharing;NoAdmissionFairSharing
type AdmissionMode string

const (
	// UsageBasedAdmissionFairSharing puts Workloads of LocalQueues with less recent usage first.
	UsageBasedAdmissionFairSharing AdmissionMode = "UsageBasedAdmissionFairSharing"
	// NoAdmissionFairSharing leaves the order to priority and age.
	NoAdmissionFairSharing AdmissionMode = "NoAdmissionFairSharing"
)

// AdmissionScope configures admission fair sharing in a ClusterQueue (spec: 20 §4.4).
type AdmissionScope struct {
	// admissionMode turns admission fair sharing on or off. May change at any time.
	//
	// +required
	AdmissionMode AdmissionMode `json:"admissionMode"`
}

// ConcurrentAdmissionMode says when a Workload settles on a flavor.
//
// +kubebuilder:validation:Enum=TryPreferredFlavors;RetainFirstAdmission
// +kubebuilder:validation:MaxLength=253
type ConcurrentAdmissionMode string

const (
	// TryPreferredFlavors goes on trying flavors that are preferred to the one it runs on, and moves when one is free.
	TryPreferredFlavors ConcurrentAdmissionMode = "TryPreferredFlavors"
	// RetainFirstAdmission stays on the flavor that was available first.
	RetainFirstAdmission ConcurrentAdmissionMode = "RetainFirstAdmission"
)

// ConcurrentAdmissionPolicy configures concurrent admission in a ClusterQueue (spec: 20 §4.13).
type ConcurrentAdmissionPolicy struct {
	// migration specifies what happens after the first admission.
	//
	// +required
	Migration ConcurrentAdmissionMigration `json:"migration"`
}

// ConcurrentAdmissionMigration specifies whether an admitted Workload moves to a better flavor.
type ConcurrentAdmissionMigration struct {
	// mode specifies whether better flavors are tried after the first admission.
	//
	// +required
	Mode ConcurrentAdmissionMode `json:"mode"`

	// constraints narrows the flavors that are acceptable. Legal only with mode TryPreferredFlavors.
	//
	// +optional
	Constraints *ConcurrentAdmissionConstraints `json:"constraints,omitempty"`
}

// ConcurrentAdmissionConstraints narrows the flavors that are acceptable.
type ConcurrentAdmissionConstraints struct {
	// lastAcceptableFlavorName is the least preferred flavor to move to. It must be a flavor of the ClusterQueue.
	//
	// +optional
	LastAcceptableFlavorName ResourceFlavorReference `json:"lastAcceptableFlavorName,omitempty"`
}

// ClusterQueueStatus is the observed state of a ClusterQueue.
type ClusterQueueStatus struct {
	// conditions holds at most 16 conditions: Active, and MultiKueueManagerQuotaAutomation where that is asked for.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// flavorsReservation is the quota reserved by Workloads of this queue, for every flavor and resource of the spec,
	// flavors in the order of the spec, resources by name.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	FlavorsReservation []FlavorUsage `json:"flavorsReservation,omitempty"`

	// flavorsUsage is the quota used by admitted Workloads of this queue, in the same order.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	FlavorsUsage []FlavorUsage `json:"flavorsUsage,omitempty"`

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

	// fairSharing is the position of this queue in fair sharing. Present only while fair sharing is configured.
	//
	// +optional
	FairSharing *FairSharingStatus `json:"fairSharing,omitempty"`
}

// FlavorUsage is the use of one flavor.
type FlavorUsage struct {
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
	Resources []ResourceUsage `json:"resources"`
}

// ResourceUsage is the use of one resource in one flavor.
type ResourceUsage struct {
	// name of the resource.
	//
	// +required
	Name corev1.ResourceName `json:"name"`

	// total is the amount in use, borrowed quota included.
	//
	// +optional
	Total resource.Quantity `json:"total"`

	// borrowed is the part of total above nominalQuota; always 0 without a cohort.
	//
	// +optional
	Borrowed resource.Quantity `json:"borrowed"`
}

// ClusterQueue holds quota for a set of resource flavors and the policies by which it is given to Workloads
// (spec: 10 §2.2).
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName={cq}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cohort",type=string,JSONPath=`.spec.cohortName`
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
