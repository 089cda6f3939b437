package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// WorkloadSpec specifies what a Workload wants to run.
//
// +kubebuilder:validation:XValidation:rule="!has(self.priorityClassName) || has(self.priority)",message="priority must be set together with priorityClassName",fieldPath=".priority"
type WorkloadSpec struct {
	// podSets are the groups of equal pods that start together, 1 to 18. Immutable while quota is reserved, except that
	// the count of an elastic Workload may shrink.
	//
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=18
	PodSets []PodSet `json:"podSets"`

	// queueName is the LocalQueue, in the same namespace, that the Workload waits in. Immutable while quota is reserved;
	// otherwise a change moves the Workload.
	//
	// +optional
	QueueName kueue.LocalQueueName `json:"queueName,omitempty"`

	// priorityClassName names the class that priority was taken from: priorityClassRef in v1beta2. It is dropped if
	// priorityClassSource is empty. Needs priority.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// priority orders Workloads in queues and preemption; higher goes first. Absent counts as 0. May change at any time.
	//
	// +optional
	Priority *int32 `json:"priority,omitempty"`

	// priorityClassSource specifies what priorityClassName names: a WorkloadPriorityClass, a PriorityClass of pods, or, if
	// empty, nothing.
	//
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:Enum=kueue.x-k8s.io/workloadpriorityclass;scheduling.k8s.io/priorityclass;""
	PriorityClassSource string `json:"priorityClassSource,omitempty"`

	// active specifies whether the Workload may be admitted. Setting it to false evicts the Workload; setting it to true again
	// puts it back into its queue. Default true.
	//
	// +optional
	// +kubebuilder:default=true
	Active *bool `json:"active,omitempty"`

	// maximumExecutionTimeSeconds bounds the time, in seconds, that the Workload may be admitted for, over all its
	// admissions; when it is used up the Workload is deactivated. At least 1. Absent: no bound. Immutable while admitted.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaximumExecutionTimeSeconds *int32 `json:"maximumExecutionTimeSeconds,omitempty"`
}

// PodSet is a group of equal pods of a Workload.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minCount) || self.minCount <= self.count",message="minCount must not exceed count",fieldPath=".minCount"
type PodSet struct {
	// name of the pod set, unique in the Workload. Default main.
	//
	// +optional
	// +kubebuilder:default=main
	Name kueue.PodSetReference `json:"name,omitempty"`

	// template is the template of the pods. Of its metadata only labels and annotations are used. Requests are what the
	// quota is asked for.
	//
	// +required
	Template corev1.PodTemplateSpec `json:"template"`

	// count is the number of pods. At least 0, default 1.
	//
	// +required
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`

	// minCount is the number of pods with which the job can still run, if count does not fit: partial admission. 1 to
	// count; on at most one pod set of a Workload. Absent: only the whole count is admitted.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinCount *int32 `json:"minCount,omitempty"`

	// topologyRequest specifies how the pods are to be placed in the topology of the nodes.
	//
	// +optional
	TopologyRequest *PodSetTopologyRequest `json:"topologyRequest,omitempty"`
}

// PodSetTopologyRequest is a wish for topology-aware placement. At most one of required, preferred and unconstrained is
// meant to be set.
type PodSetTopologyRequest struct {
	// required is a level of the Topology, by node label: all pods go into one domain of it, or none start.
	//
	// +optional
	Required *string `json:"required,omitempty"`

	// preferred is a level of the Topology, by node label: all pods go into one domain of it if that is possible, else
	// into one of a higher level, else into several.
	//
	// +optional
	Preferred *string `json:"preferred,omitempty"`

	// unconstrained lets the pods go to any nodes that have room, counted node by node.
	//
	// +optional
	Unconstrained *bool `json:"unconstrained,omitempty"`

	// podIndexLabel is the pod label that holds the index of the pod, for placement in the order of ranks.
	//
	// +optional
	PodIndexLabel *string `json:"podIndexLabel,omitempty"`

	// subGroupIndexLabel is the pod label that holds the index of the child job in a set of replicated jobs.
	//
	// +optional
	SubGroupIndexLabel *string `json:"subGroupIndexLabel,omitempty"`

	// subGroupCount is the number of child jobs.
	//
	// +optional
	SubGroupCount *int32 `json:"subGroupCount,omitempty"`

	// podSetGroupName groups pod sets that must get the same flavor and the same domain, such as a leader and its
	// workers.
	//
	// +optional
	PodSetGroupName *string `json:"podSetGroupName,omitempty"`

	// podSetSliceRequiredTopology is a level of the Topology, by node label: pods are cut into slices of podSetSliceSize,
	// and each slice goes into one domain of it. Needs podSetSliceSize.
	//
	// +optional
	PodSetSliceRequiredTopology *string `json:"podSetSliceRequiredTopology,omitempty"`

	// podSetSliceSize is the number of pods in a slice, at least 1. Needs podSetSliceRequiredTopology.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	PodSetSliceSize *int32 `json:"podSetSliceSize,omitempty"`
}

// Workload is the unit of queueing: the pods of one job, which get quota and start together or not at all. While quota is
// reserved, priorityClassSource and priorityClassName are fixed only if they were there before and still are, so that
// clients which do not know what v1beta2 keeps can still write (spec: 10 §2.7).
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="kueue.x-k8s.io/v1beta1 Workload is deprecated: use kueue.x-k8s.io/v1beta2"
// +kubebuilder:resource:scope=Namespaced,shortName={kwl,kueueworkload,kueueworkloads}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Queue",type=string,JSONPath=`.spec.queueName`
// +kubebuilder:printcolumn:name="Reserved in",type=string,JSONPath=`.status.admission.clusterQueue`
// +kubebuilder:printcolumn:name="Admitted",type=string,JSONPath=`.status.conditions[?(@.type=='Admitted')].status`
// +kubebuilder:printcolumn:name="Finished",type=string,JSONPath=`.status.conditions[?(@.type=='Finished')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!(has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')) || !has(self.status.admission) || (has(self.status.admission.podSetAssignments) ? size(self.status.admission.podSetAssignments) : 0) == ((has(self.spec) && has(self.spec.podSets)) ? size(self.spec.podSets) : 0)",message="podSetAssignments must hold one entry for each of spec.podSets while quota is reserved",fieldPath=".status.admission.podSetAssignments"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')) || !(has(self.spec) && has(self.spec.priorityClassSource)) || !(has(oldSelf.spec) && has(oldSelf.spec.priorityClassSource)) || self.spec.priorityClassSource == oldSelf.spec.priorityClassSource",message="priorityClassSource is immutable while quota is reserved",fieldPath=".spec.priorityClassSource"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')) || !(has(self.spec) && has(self.spec.priorityClassName)) || !(has(oldSelf.spec) && has(oldSelf.spec.priorityClassName)) || (has(self.spec.priorityClassSource) && self.spec.priorityClassSource == 'kueue.x-k8s.io/workloadpriorityclass') || self.spec.priorityClassName == oldSelf.spec.priorityClassName",message="priorityClassName is immutable while quota is reserved; only that of a WorkloadPriorityClass may change",fieldPath=".spec.priorityClassName"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')) || !(has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')) || ((has(self.spec) && has(self.spec.queueName)) ? (has(oldSelf.spec) && has(oldSelf.spec.queueName)) && self.spec.queueName == oldSelf.spec.queueName : !(has(oldSelf.spec) && has(oldSelf.spec.queueName)))",message="queueName is immutable while quota is reserved",fieldPath=".spec.queueName"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Admitted' && c.status == 'True')) || !(has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, c.type == 'Admitted' && c.status == 'True')) || ((has(self.spec) && has(self.spec.maximumExecutionTimeSeconds)) ? (has(oldSelf.spec) && has(oldSelf.spec.maximumExecutionTimeSeconds)) && self.spec.maximumExecutionTimeSeconds == oldSelf.spec.maximumExecutionTimeSeconds : !(has(oldSelf.spec) && has(oldSelf.spec.maximumExecutionTimeSeconds)))",message="maximumExecutionTimeSeconds is immutable while quota reserved and admitted",fieldPath=".spec.maximumExecutionTimeSeconds"
type Workload struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec specifies what to run.
	//
	// +optional
	Spec WorkloadSpec `json:"spec"`

	// status is the observed state, written by Berth, admission check controllers and job integrations.
	//
	// +optional
	Status WorkloadStatus `json:"status,omitzero"`
}

// WorkloadList is a list of Workloads.
//
// +kubebuilder:object:root=true
type WorkloadList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Workload `json:"items"`
}
