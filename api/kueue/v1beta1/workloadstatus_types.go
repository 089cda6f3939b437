package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// WorkloadStatus is the observed state of a Workload.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.clusterName) || size(oldSelf.clusterName) == 0 || !has(self.clusterName) || size(self.clusterName) == 0 || self.clusterName == oldSelf.clusterName",message="clusterName is immutable once set: clear it first",fieldPath=".clusterName"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterName) || size(self.clusterName) == 0 || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",message="clusterName and nominatedClusterNames exclude each other",fieldPath=".clusterName"
type WorkloadStatus struct {
	// conditions of the Workload; QuotaReserved, Admitted, Evicted and Finished tell its life.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// admission is the quota the Workload got. It is set and removed as a whole; of its content only the topology fields
	// may change. Present while quota is reserved.
	//
	// +optional
	Admission *Admission `json:"admission,omitempty"`

	// resourceRequests holds what each pod set asks for, as last looked at while the Workload was not admitted. At most
	// 18.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=18
	ResourceRequests []kueue.PodSetRequest `json:"resourceRequests,omitempty"`

	// requeueState is the backoff after an eviction. Absent: none is under way.
	//
	// +optional
	RequeueState *kueue.RequeueState `json:"requeueState,omitempty"`

	// reclaimablePods holds the pods that do not need their quota any more. Counts only grow while quota is reserved. At
	// most 18.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=18
	ReclaimablePods []kueue.ReclaimablePod `json:"reclaimablePods,omitempty"`

	// admissionChecks holds the state of each admission check of the Workload. At most 64, as a
	// ClusterQueue may ask for.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	AdmissionChecks []AdmissionCheckState `json:"admissionChecks,omitempty"`

	// accumulatedPastExexcutionTimeSeconds is the time, in seconds, that the Workload spent admitted in earlier
	// admissions. The API has this spelling; v1beta2 has accumulatedPastExecutionTimeSeconds.
	//
	// +optional
	AccumulatedPastExexcutionTimeSeconds *int32 `json:"accumulatedPastExexcutionTimeSeconds,omitempty"`

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
	NominatedClusterNames []string `json:"nominatedClusterNames,omitempty"`

	// clusterName is the worker cluster that admitted the Workload, one of the nominatedClusterNames before. Once set it
	// can be cleared but not changed.
	//
	// +optional
	ClusterName string `json:"clusterName,omitempty"`

	// unhealthyNodes are nodes of the topology assignment that failed and are to be replaced.
	//
	// +optional
	UnhealthyNodes []UnhealthyNode `json:"unhealthyNodes,omitempty"`
}

// Admission is the quota a Workload got.
type Admission struct {
	// clusterQueue is the ClusterQueue whose quota is used.
	//
	// +required
	ClusterQueue kueue.ClusterQueueReference `json:"clusterQueue"`

	// podSetAssignments holds one entry for each pod set of the spec. At most 18.
	//
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=18
	PodSetAssignments []PodSetAssignment `json:"podSetAssignments"`
}

// PodSetAssignment is the assignment of one pod set.
type PodSetAssignment struct {
	// name of the pod set. Default main.
	//
	// +required
	// +kubebuilder:default=main
	Name kueue.PodSetReference `json:"name"`

	// flavors is the flavor of each resource.
	//
	// +optional
	Flavors map[corev1.ResourceName]kueue.ResourceFlavorReference `json:"flavors,omitempty"`

	// resourceUsage is the amount of each resource for all pods of the set together.
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
	DelayedTopologyRequest *string `json:"delayedTopologyRequest,omitempty"`
}

// TopologyAssignment specifies how many pods of a pod set go into which topology domain: slices of domains in v1beta2. The number
// of domains is not bounded, so no rule can look at each: domains without a value for each level are refused when they are
// converted.
type TopologyAssignment struct {
	// levels are the node labels of the levels that the values below are for, broadest first. 1 to 16 entries.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Levels []string `json:"levels"`

	// domains of the narrowest level, with their pods.
	//
	// +required
	Domains []TopologyDomainAssignment `json:"domains"`
}

// TopologyDomainAssignment specifies how many pods go into one topology domain.
type TopologyDomainAssignment struct {
	// values holds the value of the node label of each level. 1 to 16 entries, as many as there are levels.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Values []string `json:"values"`

	// count is the number of pods, at least 1.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count"`
}

// AdmissionCheckState is the state of one admission check of a Workload.
type AdmissionCheckState struct {
	// name of the AdmissionCheck.
	//
	// +required
	Name AdmissionCheckReference `json:"name"`

	// state of the check.
	//
	// +required
	State kueue.CheckState `json:"state"`

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

	// podSetUpdates are changes that the check makes to the pods when they start. At most 18.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=18
	PodSetUpdates []PodSetUpdate `json:"podSetUpdates,omitempty"`
}

// PodSetUpdate is what a check adds to the pods of one pod set.
type PodSetUpdate struct {
	// name of the pod set.
	//
	// +required
	Name kueue.PodSetReference `json:"name"`

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
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(t, (has(t.key) && size(t.key) > 0) || (has(t.operator) && t.operator == 'Exists'))",message="operator of a toleration without key must be Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))",message="effect of a toleration with tolerationSeconds must be NoExecute"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in ['Equal', 'Exists'])",message="operator of a toleration must be Equal or Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value) || size(t.value) == 0)",message="value of a toleration must be empty if its operator is Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="effect of a toleration must be NoSchedule, PreferNoSchedule or NoExecute, or absent for all three"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// SchedulingStats counts what happened to a Workload.
type SchedulingStats struct {
	// evictions counts evictions by reason and underlying cause.
	//
	// +optional
	// +listType=map
	// +listMapKey=reason
	// +listMapKey=underlyingCause
	Evictions []kueue.EvictionCount `json:"evictions,omitempty"`
}

// UnhealthyNode is a node that failed under an admitted Workload.
type UnhealthyNode struct {
	// name of the node.
	//
	// +required
	Name string `json:"name"`
}
