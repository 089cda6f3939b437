package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkloadStatus is the observed state of a Workload.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.clusterName) || size(oldSelf.clusterName) == 0 || !has(self.clusterName) || size(self.clusterName) == 0 || self.clusterName == oldSelf.clusterName",message="clusterName is immutable once set: clear it first",fieldPath=".clusterName"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterName) || size(self.clusterName) == 0 || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",message="clusterName and nominatedClusterNames exclude each other",fieldPath=".clusterName"
type WorkloadStatus struct {
	// conditions holds at most 16 conditions; QuotaReserved, Admitted, Evicted and Finished tell the life of the
	// Workload.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// admission is the quota the Workload got. It is set and removed as a whole; of its content only the topology fields
	// may change. Present while quota is reserved.
	//
	// +optional
	Admission *Admission `json:"admission,omitempty"`

	// resourceRequests holds what each pod set asks for, as last looked at while the Workload was not admitted. Emptied
	// on admission. At most 18.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=18
	ResourceRequests []PodSetRequest `json:"resourceRequests,omitempty"`

	// requeueState is the backoff after an eviction. Absent: none is under way.
	//
	// +optional
	RequeueState *RequeueState `json:"requeueState,omitempty"`

	// reclaimablePods holds the pods that do not need their quota any more. Counts only grow while quota is reserved. At
	// most 18.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=18
	ReclaimablePods []ReclaimablePod `json:"reclaimablePods,omitempty"`

	// admissionChecks holds the state of each admission check of the Workload. At most 64, as a
	// ClusterQueue may ask for.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	AdmissionChecks []AdmissionCheckState `json:"admissionChecks,omitempty"`

	// accumulatedPastExecutionTimeSeconds is the time, in seconds, that the Workload spent admitted in earlier admissions.
	// Counts towards spec.maximumExecutionTimeSeconds.
	//
	// +optional
	AccumulatedPastExecutionTimeSeconds *int32 `json:"accumulatedPastExecutionTimeSeconds,omitempty"`

	// schedulingStats counts evictions.
	//
	// +optional
	SchedulingStats *SchedulingStats `json:"schedulingStats,omitempty"`

	// nominatedClusterNames are the worker clusters that may hold a copy of the Workload now. At most 20. Empty once
	// clusterName is set.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=256
	NominatedClusterNames []string `json:"nominatedClusterNames,omitempty"`

	// clusterName is the worker cluster that admitted the Workload, one of the nominatedClusterNames before. Once set it
	// can be cleared but not changed. At most 256 characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ClusterName string `json:"clusterName,omitempty"`

	// unhealthyNodes are nodes of the topology assignment that failed and are to be replaced. At most 8.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	UnhealthyNodes []UnhealthyNode `json:"unhealthyNodes,omitempty"`

	// preemptionGates holds the position of the gates in spec.preemptionGates. A gate without an entry is closed. At
	// most 8.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	PreemptionGates []PreemptionGateState `json:"preemptionGates,omitempty"`
}

// Admission is the quota a Workload got.
type Admission struct {
	// clusterQueue is the ClusterQueue whose quota is used.
	//
	// +optional
	ClusterQueue ClusterQueueReference `json:"clusterQueue,omitempty"`

	// podSetAssignments holds one entry for each pod set of the spec. At most 18.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=18
	PodSetAssignments []PodSetAssignment `json:"podSetAssignments,omitempty"`
}

// PodSetAssignment is the assignment of one pod set.
type PodSetAssignment struct {
	// name of the pod set. Default main.
	//
	// +optional
	// +kubebuilder:default=main
	Name PodSetReference `json:"name,omitempty"`

	// flavors is the flavor of each resource.
	//
	// +optional
	Flavors map[corev1.ResourceName]ResourceFlavorReference `json:"flavors,omitempty"`

	// resourceUsage is the amount of each resource for all pods of the set together. It counts against the quota even if
	// a LimitRange or RuntimeClass changes later.
	//
	// +optional
	ResourceUsage corev1.ResourceList `json:"resourceUsage,omitempty"`

	// count is the number of pods admitted; less than the count of the spec after partial admission. At least 0.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count *int32 `json:"count,omitempty"`

	// topologyAssignment specifies how many pods go into which domain. Absent without topology-aware placement.
	//
	// +optional
	TopologyAssignment *TopologyAssignment `json:"topologyAssignment,omitempty"`

	// delayedTopologyRequest is Pending while the topologyAssignment waits for an admission check, and Ready once it is
	// made. Absent: there is no delay.
	//
	// +optional
	DelayedTopologyRequest *DelayedTopologyRequestState `json:"delayedTopologyRequest,omitempty"`
}

// DelayedTopologyRequestState is the state of a placement that is made after admission checks.
//
// +kubebuilder:validation:Enum=Pending;Ready
// +kubebuilder:validation:MaxLength=7
type DelayedTopologyRequestState string

const (
	// DelayedTopologyRequestPending means that the placement is still to be made.
	DelayedTopologyRequestPending DelayedTopologyRequestState = "Pending"
	// DelayedTopologyRequestReady means that the placement is made.
	DelayedTopologyRequestReady DelayedTopologyRequestState = "Ready"
)

// PodSetRequest is the request of one pod set.
type PodSetRequest struct {
	// name of the pod set.
	//
	// +required
	Name PodSetReference `json:"name"`

	// resources is the amount of each resource for all pods of the set together.
	//
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
}

// RequeueState is the backoff of a Workload that was evicted.
type RequeueState struct {
	// count is the number of times it was put back into the queue. At least 0.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count *int32 `json:"count,omitempty"`

	// requeueAt is when the backoff ends and the Workload goes back into the queue.
	//
	// +optional
	RequeueAt *metav1.Time `json:"requeueAt,omitempty"`
}

// ReclaimablePod counts pods of one pod set that do not need quota any more.
type ReclaimablePod struct {
	// name of the pod set.
	//
	// +required
	Name PodSetReference `json:"name"`

	// count is the number of such pods, at least 0 and at most the count of the pod set.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`
}

// SchedulingStats counts what happened to a Workload.
type SchedulingStats struct {
	// evictions counts evictions by reason and underlying cause. At most 256 entries.
	//
	// +optional
	// +listType=map
	// +listMapKey=reason
	// +listMapKey=underlyingCause
	// +kubebuilder:validation:MaxItems=256
	Evictions []EvictionCount `json:"evictions,omitempty"`
}

// EvictionCount counts evictions for one reason and cause.
type EvictionCount struct {
	// reason is the reason of the Evicted condition, without the cause: Preempted, PodsReadyTimeout, Deactivated and so on. At
	// most 316 characters.
	//
	// +required
	// +kubebuilder:validation:MaxLength=316
	Reason string `json:"reason"`

	// underlyingCause is why a Workload was deactivated or preempted, such as AdmissionCheck. Empty if the reason says it
	// all. At most 316 characters.
	//
	// +required
	// +kubebuilder:validation:MaxLength=316
	UnderlyingCause string `json:"underlyingCause"`

	// count is the number of such evictions.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`
}

// UnhealthyNode is a node that failed under an admitted Workload.
type UnhealthyNode struct {
	// name of the node, at most 63 characters.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}

// PreemptionGatePosition is the position of a preemption gate.
//
// +kubebuilder:validation:Enum=Closed;Open
type PreemptionGatePosition string

const (
	// PreemptionGateClosed keeps the Workload from preempting.
	PreemptionGateClosed PreemptionGatePosition = "Closed"
	// PreemptionGateOpen lets it preempt.
	PreemptionGateOpen PreemptionGatePosition = "Open"
)

// PreemptionGateState is the position of one preemption gate.
type PreemptionGateState struct {
	// name of the gate, 1 to 63 characters.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// position is Closed or Open.
	//
	// +required
	Position PreemptionGatePosition `json:"position"`

	// lastTransitionTime is when the position last changed.
	//
	// +required
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
}
