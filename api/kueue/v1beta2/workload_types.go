package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkloadSpec specifies what a Workload wants to run.
//
// +kubebuilder:validation:XValidation:rule="!has(self.priorityClassRef) || has(self.priority)",message="priority must be set together with priorityClassRef",fieldPath=".priority"
type WorkloadSpec struct {
	// podSets are the groups of equal pods that start together, 1 to 18. Immutable while quota is reserved, except that
	// the count of an elastic Workload may shrink.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=18
	PodSets []PodSet `json:"podSets,omitempty"`

	// queueName is the LocalQueue, in the same namespace, that the Workload waits in. Immutable while quota is reserved;
	// otherwise a change moves the Workload.
	//
	// +optional
	QueueName LocalQueueName `json:"queueName,omitempty"`

	// priorityClassRef names the class that priority was taken from. Needs priority. While quota is reserved it can be
	// neither added nor removed, and only the name of a WorkloadPriorityClass may change.
	//
	// +optional
	PriorityClassRef *PriorityClassRef `json:"priorityClassRef,omitempty"`

	// priority orders Workloads in queues and preemption; higher goes first. Absent counts as 0. May change at any time.
	//
	// +optional
	Priority *int32 `json:"priority,omitempty"`

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

	// preemptionGates are gates that must be open before this Workload may preempt others. A gate without an entry in
	// status.preemptionGates is closed. At most 8.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	PreemptionGates []PreemptionGate `json:"preemptionGates,omitempty"`
}

// PodSet is a group of equal pods of a Workload.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minCount) || self.minCount <= self.count",message="minCount must not exceed count",fieldPath=".minCount"
type PodSet struct {
	// name of the pod set, unique in the Workload. Default main.
	//
	// +optional
	// +kubebuilder:default=main
	Name PodSetReference `json:"name,omitempty"`

	// template is the template of the pods. Of its metadata only labels and annotations are used. Requests are what the
	// quota is asked for.
	//
	// +required
	Template corev1.PodTemplateSpec `json:"template"`

	// count is the number of pods. At least 0, default 1.
	//
	// +optional
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
// meant to be set (spec: 20 §2.3).
type PodSetTopologyRequest struct {
	// required is a level of the Topology, by node label: all pods go into one domain of it, or none start.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Required *string `json:"required,omitempty"`

	// preferred is a level of the Topology, by node label: all pods go into one domain of it if that is possible, else
	// into one of a higher level, else into several.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Preferred *string `json:"preferred,omitempty"`

	// unconstrained lets the pods go to any nodes that have room, counted node by node.
	//
	// +optional
	Unconstrained *bool `json:"unconstrained,omitempty"`

	// podIndexLabel is the pod label that holds the index of the pod, for placement in the order of ranks.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	PodIndexLabel *string `json:"podIndexLabel,omitempty"`

	// subGroupIndexLabel is the pod label that holds the index of the child job in a set of replicated jobs.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	SubGroupIndexLabel *string `json:"subGroupIndexLabel,omitempty"`

	// subGroupCount is the number of child jobs, at least 0. The rank of a pod is its sub-group index times the pods per
	// child job, plus its pod index.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	SubGroupCount *int32 `json:"subGroupCount,omitempty"`

	// podSetGroupName groups pod sets that must get the same flavor and the same domain, such as a leader and its
	// workers.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	PodSetGroupName *string `json:"podSetGroupName,omitempty"`

	// podSetSliceRequiredTopology is a level of the Topology, by node label: pods are cut into slices of podSetSliceSize,
	// and each slice goes into one domain of it. Needs podSetSliceSize.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	PodSetSliceRequiredTopology *string `json:"podSetSliceRequiredTopology,omitempty"`

	// podSetSliceSize is the number of pods in a slice, at least 1. Needs podSetSliceRequiredTopology.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	PodSetSliceSize *int32 `json:"podSetSliceSize,omitempty"`

	// podsetSliceRequiredTopologyConstraints cuts pods into slices of slices, outermost first, at most 3 layers. It takes
	// the place of podSetSliceRequiredTopology and podSetSliceSize.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	PodSetSliceRequiredTopologyConstraints []PodSetSliceTopologyConstraint `json:"podsetSliceRequiredTopologyConstraints,omitempty"`
}

// PodSetSliceTopologyConstraint is one layer of slices.
type PodSetSliceTopologyConstraint struct {
	// topology is a level of the Topology, by node label, 1 to 63 characters: each slice goes into one domain of it.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Topology string `json:"topology"`

	// size is the number of pods in a slice of this layer, at least 1.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	Size int32 `json:"size"`
}

// PriorityClassGroup is the API group of a priority class.
//
// +kubebuilder:validation:Enum=kueue.x-k8s.io;scheduling.k8s.io
type PriorityClassGroup string

// PriorityClassKind is the kind of a priority class.
//
// +kubebuilder:validation:Enum=WorkloadPriorityClass;PriorityClass
type PriorityClassKind string

const (
	// WorkloadPriorityClassGroup is the group of a WorkloadPriorityClass.
	WorkloadPriorityClassGroup PriorityClassGroup = GroupName
	// WorkloadPriorityClassKind is the kind of a WorkloadPriorityClass.
	WorkloadPriorityClassKind PriorityClassKind = "WorkloadPriorityClass"

	// PodPriorityClassGroup is the group of a PriorityClass of pods.
	PodPriorityClassGroup PriorityClassGroup = "scheduling.k8s.io"
	// PodPriorityClassKind is the kind of a PriorityClass of pods.
	PodPriorityClassKind PriorityClassKind = "PriorityClass"
)

// PriorityClassRef names a WorkloadPriorityClass or a PriorityClass of pods.
//
// +kubebuilder:validation:XValidation:rule="(self.group == 'kueue.x-k8s.io') == (self.kind == 'WorkloadPriorityClass')",message="kind must be WorkloadPriorityClass for group kueue.x-k8s.io and PriorityClass for group scheduling.k8s.io",fieldPath=".kind"
type PriorityClassRef struct {
	// group is kueue.x-k8s.io or scheduling.k8s.io.
	//
	// +required
	Group PriorityClassGroup `json:"group"`

	// kind is WorkloadPriorityClass or PriorityClass, whichever the group has.
	//
	// +required
	Kind PriorityClassKind `json:"kind"`

	// name of the class: a DNS-1123 subdomain, 1 to 253 characters.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	Name string `json:"name"`
}

// PreemptionGate is a gate that keeps a Workload from preempting others.
type PreemptionGate struct {
	// name of the gate, 1 to 63 characters.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}

// Workload is the unit of queueing: the pods of one job, which get quota and start together or not at all
// (spec: 10 §2.5).
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced,shortName={kwl,kueueworkload,kueueworkloads}
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.status.admission.clusterQueue`
// +kubebuilder:printcolumn:name="Queue",type=string,JSONPath=`.spec.queueName`
// +kubebuilder:printcolumn:name="Reserved in",type=string,JSONPath=`.status.admission.clusterQueue`
// +kubebuilder:printcolumn:name="Admitted",type=string,JSONPath=`.status.conditions[?(@.type=='Admitted')].status`
// +kubebuilder:printcolumn:name="Finished",type=string,JSONPath=`.status.conditions[?(@.type=='Finished')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!self.?status.?admission.hasValue() || self.?spec.?podSets.orValue([]).size() == self.status.admission.?podSetAssignments.orValue([]).size() || !(has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True'))",message="podSetAssignments must hold one entry for each of spec.podSets while quota is reserved",fieldPath=".status.admission.podSetAssignments"
// +kubebuilder:validation:XValidation:rule="self.?spec.?priorityClassRef.hasValue() == oldSelf.?spec.?priorityClassRef.hasValue() || !(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True'))",message="priorityClassRef can be neither added nor removed while quota is reserved",fieldPath=".spec.priorityClassRef"
// +kubebuilder:validation:XValidation:rule="!self.?spec.?priorityClassRef.hasValue() || !oldSelf.?spec.?priorityClassRef.hasValue() || (self.spec.priorityClassRef.group == oldSelf.spec.priorityClassRef.group && self.spec.priorityClassRef.kind == oldSelf.spec.priorityClassRef.kind) || !(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True'))",message="group and kind of priorityClassRef are immutable while quota is reserved",fieldPath=".spec.priorityClassRef"
// +kubebuilder:validation:XValidation:rule="!self.?spec.?priorityClassRef.hasValue() || !oldSelf.?spec.?priorityClassRef.hasValue() || self.spec.priorityClassRef.name == oldSelf.spec.priorityClassRef.name || oldSelf.spec.priorityClassRef.kind != 'PriorityClass' || !(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True'))",message="name of a priorityClassRef to a PriorityClass is immutable while quota is reserved; only that of a WorkloadPriorityClass may change",fieldPath=".spec.priorityClassRef.name"
// +kubebuilder:validation:XValidation:rule="(self.?spec.?queueName.hasValue() && oldSelf.?spec.?queueName.hasValue() ? self.spec.queueName == oldSelf.spec.queueName : self.?spec.?queueName.hasValue() == oldSelf.?spec.?queueName.hasValue()) || !(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')) || !(has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True'))",message="queueName is immutable while quota is reserved",fieldPath=".spec.queueName"
// +kubebuilder:validation:XValidation:rule="self.?spec.?maximumExecutionTimeSeconds == oldSelf.?spec.?maximumExecutionTimeSeconds || !(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Admitted' && c.status == 'True')) || !(has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, c.type == 'Admitted' && c.status == 'True'))",message="maximumExecutionTimeSeconds is immutable while quota reserved and admitted",fieldPath=".spec.maximumExecutionTimeSeconds"
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
