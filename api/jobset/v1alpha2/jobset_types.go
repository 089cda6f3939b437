package v1alpha2

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobSet is a group of Jobs built from several templates and driven as one unit: created together or in order, restarted
// together or one by one, suspended and resumed together, and declared Completed or Failed by policy.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="TerminalState",JSONPath=".status.terminalState",type=string,description="Completed or Failed once the JobSet has finished"
// +kubebuilder:printcolumn:name="Restarts",JSONPath=".status.restarts",type=string,description="Number of times the whole JobSet was restarted"
// +kubebuilder:printcolumn:name="Completed",JSONPath=".status.conditions[?(@.type==\"Completed\")].status",type=string,description="Status of the condition Completed"
// +kubebuilder:printcolumn:name="Suspended",JSONPath=".spec.suspend",type=string,description="Whether the JobSet is suspended"
// +kubebuilder:printcolumn:name="Age",JSONPath=".metadata.creationTimestamp",type=date,description="Time since the JobSet was created"
type JobSet struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name must be a DNS-1035 label that, with the longest replicated job name
	// and its indexes appended, stays within 63 characters (spec: 60 §3.2).
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which Jobs are wanted and how they start, fail and finish.
	// +optional
	Spec JobSetSpec `json:"spec,omitzero"`
	// status is what the controller observed. It is written by the controller named in spec.managedBy only.
	// +optional
	Status JobSetStatus `json:"status,omitzero"`
}

// JobSetList is a list of JobSets.
//
// +kubebuilder:object:root=true
type JobSetList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the JobSets.
	Items []JobSet `json:"items"`
}

// JobSetSpec is the wanted state of a JobSet.
//
// The rules below that compare with the old value hold inside training runtimes too, where their text advises a new runtime
// (spec: 50 §2.4).
//
// +kubebuilder:validation:XValidation:rule="!has(self.startupPolicy) || self.startupPolicy.startupPolicyOrder != 'InOrder' || (has(self.replicatedJobs) && self.replicatedJobs.all(r, !has(r.dependsOn)))",message="startupPolicyOrder InOrder needs replicatedJobs of which none sets dependsOn; use dependsOn with AnyOrder",fieldPath=".startupPolicy"
type JobSetSpec struct {
	// replicatedJobs are the Job templates, each with a number of copies. The list may be empty: the JobSet then idles forever.
	// Entries can be neither added, removed, renamed nor reordered, and replicas cannot change. While the JobSet is suspended,
	// or in the update that suspends or resumes it, the pod templates' labels, annotations, nodeSelector, tolerations and
	// schedulingGates may change (spec: 60 §3.4).
	// +optional
	// +listType=map
	// +listMapKey=name
	ReplicatedJobs []ReplicatedJob `json:"replicatedJobs,omitempty"`

	// network specifies how the pods find each other by name. The mutating webhook adds it, with host names on, if it is absent;
	// a stored object without it gets no host names (spec: 60 §3.1).
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; create a new JobSet to change network"
	Network *Network `json:"network,omitempty"`

	// successPolicy says when the JobSet is Completed. Default: all Jobs must succeed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; create a new JobSet to change successPolicy"
	SuccessPolicy *SuccessPolicy `json:"successPolicy,omitempty"`

	// failurePolicy specifies what a failed Job causes. Without it the first failed Job fails the JobSet (spec: 60 §4.6).
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; create a new JobSet to change failurePolicy"
	FailurePolicy *FailurePolicy `json:"failurePolicy,omitempty"`

	// startupPolicy says in which order the replicated jobs start. Default: any order. Deprecated: use dependsOn.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; create a new JobSet to change startupPolicy"
	StartupPolicy *StartupPolicy `json:"startupPolicy,omitempty"`

	// suspend holds all Jobs suspended while true. Unset means false. May change at any time.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`

	// coordinator names one pod whose address is published on every Job and pod as label and annotation
	// jobset.sigs.k8s.io/coordinator. A change affects only Jobs created afterwards.
	// +optional
	Coordinator *Coordinator `json:"coordinator,omitempty"`

	// managedBy is the controller that runs this JobSet, a domain-prefixed path of at most 63 characters. Unset means
	// jobset.sigs.k8s.io/jobset-controller; with any other value the built-in controller leaves the object and its status
	// alone. It cannot be changed, nor set later (spec: 60 §3.4).
	// +optional
	ManagedBy *string `json:"managedBy,omitempty"`

	// ttlSecondsAfterFinished is how long the JobSet is kept after it finished, in seconds; 0 deletes it at once. Unset keeps
	// it. May change at any time, also after the JobSet finished (spec: 60 §4.12).
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// volumeClaimPolicies are persistent volume claims shared by the JobSet's pods, at most 50 policies (spec: 60 §4.11).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; create a new JobSet to change volumeClaimPolicies"
	VolumeClaimPolicies []VolumeClaimPolicy `json:"volumeClaimPolicies,omitempty"`
}

// ReplicatedJob is one Job template and the number of Jobs to make from it.
type ReplicatedJob struct {
	// name identifies the entry and becomes part of the names of its Jobs and pods. It must be unique in the list.
	Name string `json:"name"`

	// groupName puts the entry into a logical group. It affects only the group indexes in labels and annotations
	// (spec: 60 §4.2). Default: default. A DNS-1035 label.
	// +optional
	// +kubebuilder:default=default
	GroupName string `json:"groupName,omitempty"`

	// template is the Job made for every replica. Labels and annotations of its metadata go to the Job; its metadata.name is
	// ignored. The webhook defaults completionMode to Indexed and the pods' restartPolicy to OnFailure.
	Template batchv1.JobTemplateSpec `json:"template"`

	// replicas is the number of Jobs made from the template. Default: 1. Zero is legal and means none. It is a pointer so that
	// a Go client can send zero and a read-modify-write keeps it (spec: 60 §2.1). Immutable.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// dependsOn lists replicated jobs that stand earlier in the list and must reach a state before this one starts, at most 5.
	// It excludes startupPolicyOrder InOrder.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; create a new JobSet to change dependsOn"
	DependsOn []DependsOn `json:"dependsOn,omitempty"`
}

// DependencyStatus is a state that a replicated job must reach before its dependents start.
//
// +kubebuilder:validation:Enum=Ready;Complete
type DependencyStatus string

const (
	// DependencyReady is reached when every Job of the dependency is ready, succeeded or failed.
	DependencyReady DependencyStatus = "Ready"
	// DependencyComplete is reached when every Job of the dependency succeeded.
	DependencyComplete DependencyStatus = "Complete"
)

// DependsOn is one dependency of a replicated job.
type DependsOn struct {
	// name is the replicated job depended on. It must stand earlier in spec.replicatedJobs.
	Name string `json:"name"`
	// status is the state that it must reach: Ready or Complete.
	Status DependencyStatus `json:"status"`
}

// Network specifies how the pods of a JobSet find each other by name (spec: 60 §4.9).
type Network struct {
	// enableDNSHostnames gives every pod a stable host name through a headless Service. The webhook defaults it to true; in a
	// stored object that lacks it, it counts as false.
	// +optional
	EnableDNSHostnames *bool `json:"enableDNSHostnames,omitempty"`
	// subdomain is the name of the headless Service and the pods' subdomain, a DNS-1035 label. Default: the JobSet's name,
	// filled in by the controller and not stored.
	// +optional
	Subdomain string `json:"subdomain,omitempty"`
	// publishNotReadyAddresses makes pods resolvable before they are ready. Default: true.
	// +optional
	PublishNotReadyAddresses *bool `json:"publishNotReadyAddresses,omitempty"`
}

// Operator specifies whether all or any of a set of Jobs must satisfy a policy.
//
// +kubebuilder:validation:Enum=All;Any
type Operator string

const (
	// OperatorAll asks for every targeted Job.
	OperatorAll Operator = "All"
	// OperatorAny asks for one targeted Job.
	OperatorAny Operator = "Any"
)

// SuccessPolicy says when a JobSet is Completed (spec: 60 §4.5).
type SuccessPolicy struct {
	// operator specifies whether All or Any of the targeted Jobs must succeed. The webhook's default policy uses All.
	Operator Operator `json:"operator"`
	// targetReplicatedJobs names the replicated jobs that count. Empty means all.
	// +optional
	// +listType=atomic
	TargetReplicatedJobs []string `json:"targetReplicatedJobs,omitempty"`
}

// RestartStrategy specifies how Jobs are replaced in a restart.
//
// +kubebuilder:validation:Enum=Recreate;BlockingRecreate;InPlaceRestart
type RestartStrategy string

const (
	// RestartRecreate makes each new Job as soon as the Job that it replaces is gone.
	RestartRecreate RestartStrategy = "Recreate"
	// RestartBlockingRecreate makes new Jobs only when every old Job is gone.
	RestartBlockingRecreate RestartStrategy = "BlockingRecreate"
	// RestartInPlace restarts the containers of healthy pods where they are. Needs the gate InPlaceRestart.
	RestartInPlace RestartStrategy = "InPlaceRestart"
)

// FailurePolicy specifies what a failed Job causes (spec: 60 §4.6).
type FailurePolicy struct {
	// maxRestarts is the number of counted restarts allowed before the JobSet fails. Default: 0. Negative counts as 0.
	// +optional
	MaxRestarts int32 `json:"maxRestarts,omitempty"`
	// restartStrategy specifies how Jobs are replaced in a restart. Default: Recreate.
	// +optional
	// +kubebuilder:default=Recreate
	RestartStrategy RestartStrategy `json:"restartStrategy,omitempty"`
	// rules are tried in order on a failed Job; the first that matches decides. Without a match the JobSet is restarted and
	// the restart counts towards maxRestarts.
	// +optional
	Rules []FailurePolicyRule `json:"rules,omitempty"`
}

// FailurePolicyAction is what a failure policy rule causes.
//
// +kubebuilder:validation:Enum=FailJobSet;RestartJobSet;RestartJobSetAndIgnoreMaxRestarts;RestartJob;RestartJobAndIgnoreMaxRestarts
type FailurePolicyAction string

const (
	// ActionFailJobSet fails the JobSet at once.
	ActionFailJobSet FailurePolicyAction = "FailJobSet"
	// ActionRestartJobSet restarts all Jobs and counts towards maxRestarts.
	ActionRestartJobSet FailurePolicyAction = "RestartJobSet"
	// ActionRestartJobSetAndIgnoreMaxRestarts restarts all Jobs without counting.
	ActionRestartJobSetAndIgnoreMaxRestarts FailurePolicyAction = "RestartJobSetAndIgnoreMaxRestarts"
	// ActionRestartJob restarts only the failed Job and counts towards maxRestarts. Needs the gate RestartJob.
	ActionRestartJob FailurePolicyAction = "RestartJob"
	// ActionRestartJobAndIgnoreMaxRestarts restarts only the failed Job without counting. Needs the gate RestartJob.
	ActionRestartJobAndIgnoreMaxRestarts FailurePolicyAction = "RestartJobAndIgnoreMaxRestarts"
)

// FailurePolicyRule matches failed Jobs and names the action to take. All lists that are set must match.
type FailurePolicyRule struct {
	// name identifies the rule in condition reasons. 1 to 128 characters, unique. The webhook defaults it to
	// failurePolicyRule followed by the rule's index.
	Name string `json:"name"`
	// action is what a match causes.
	Action FailurePolicyAction `json:"action"`
	// onJobFailureReasons matches if the reason of the Job's Failed condition is in the list. Empty matches any reason.
	// Allowed: BackoffLimitExceeded, DeadlineExceeded, FailedIndexes, MaxFailedIndexesExceeded, PodFailurePolicy.
	// +optional
	OnJobFailureReasons []string `json:"onJobFailureReasons,omitempty"`
	// onJobFailureMessagePatterns are RE2 expressions searched, unanchored, in the message of the Job's Failed condition. One
	// match suffices. Empty matches any message.
	// +optional
	OnJobFailureMessagePatterns []string `json:"onJobFailureMessagePatterns,omitempty"`
	// targetReplicatedJobs names the replicated jobs whose Jobs the rule looks at. Empty means all.
	// +optional
	// +listType=atomic
	TargetReplicatedJobs []string `json:"targetReplicatedJobs,omitempty"`
}

// StartupPolicyOrder is an order in which replicated jobs start.
//
// +kubebuilder:validation:Enum=AnyOrder;InOrder
type StartupPolicyOrder string

const (
	// StartupAnyOrder starts all replicated jobs at once.
	StartupAnyOrder StartupPolicyOrder = "AnyOrder"
	// StartupInOrder starts a replicated job when all before it in the list have started.
	StartupInOrder StartupPolicyOrder = "InOrder"
)

// StartupPolicy says in which order the replicated jobs start (spec: 60 §4.4). Deprecated: use dependsOn.
type StartupPolicy struct {
	// startupPolicyOrder is AnyOrder or InOrder.
	StartupPolicyOrder StartupPolicyOrder `json:"startupPolicyOrder"`
}

// Coordinator names the pod whose address is published on every Job and pod.
type Coordinator struct {
	// replicatedJob is the entry of spec.replicatedJobs that the pod belongs to.
	ReplicatedJob string `json:"replicatedJob"`
	// jobIndex is the index of the Job within that entry. Default: 0. Must be less than its replicas.
	// +optional
	JobIndex int `json:"jobIndex,omitempty"`
	// podIndex is the completion index of the pod within that Job. Default: 0. Must be less than its completions.
	// +optional
	PodIndex int `json:"podIndex,omitempty"`
}

// VolumeClaimPolicy is a group of volume claims with one retention policy.
type VolumeClaimPolicy struct {
	// templates are the claims, at most 50. A claim is named <template name>-<JobSet name>, and every pod with a container that
	// mounts a volume of the template's name gets it. Template names are unique over all policies.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:XValidation:rule="!has(self.metadata) || !has(self.metadata.__namespace__) || self.metadata.__namespace__ == ''",message="metadata.namespace must not be set; claims are made in the namespace of the JobSet",fieldPath=".metadata"
	Templates []corev1.PersistentVolumeClaim `json:"templates,omitempty"`
	// retentionPolicy specifies what becomes of the claims when the JobSet is deleted. The webhook defaults it to Delete; a stored
	// policy without it keeps them.
	// +optional
	RetentionPolicy *VolumeClaimRetentionPolicy `json:"retentionPolicy,omitempty"`
}

// RetentionPolicyType specifies what becomes of a volume claim when its JobSet is deleted.
//
// +kubebuilder:validation:Enum=Delete;Retain
type RetentionPolicyType string

const (
	// RetentionDelete deletes the claims together with the JobSet.
	RetentionDelete RetentionPolicyType = "Delete"
	// RetentionRetain keeps the claims.
	RetentionRetain RetentionPolicyType = "Retain"
)

// VolumeClaimRetentionPolicy specifies what becomes of volume claims over time.
type VolumeClaimRetentionPolicy struct {
	// whenDeleted specifies what becomes of the claims when the JobSet is deleted: Delete or Retain. Default: Delete.
	// +optional
	// +kubebuilder:default=Delete
	WhenDeleted RetentionPolicyType `json:"whenDeleted,omitempty"`
}

// JobSetStatus is the observed state of a JobSet.
type JobSetStatus struct {
	// conditions are the JobSet's conditions by type (spec: 60 §5.1).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// restarts is the number of times the whole JobSet was restarted. Always written, also when 0.
	// +optional
	Restarts int32 `json:"restarts"`
	// restartsCountTowardsMax is the part of restarts that counts towards failurePolicy.maxRestarts.
	// +optional
	RestartsCountTowardsMax int32 `json:"restartsCountTowardsMax,omitempty"`
	// terminalState is Completed or Failed once the JobSet has finished, and empty before.
	// +optional
	TerminalState string `json:"terminalState,omitempty"`
	// replicatedJobsStatus counts the Jobs of every replicated job of the spec, in descending order of name.
	// +optional
	// +listType=map
	// +listMapKey=name
	ReplicatedJobsStatus []ReplicatedJobStatus `json:"replicatedJobsStatus,omitempty"`
	// previousInPlaceRestartAttempt is the attempt whose workers must exit; used by in-place restarts only.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PreviousInPlaceRestartAttempt *int32 `json:"previousInPlaceRestartAttempt,omitempty"`
	// currentInPlaceRestartAttempt is the attempt whose workers may run; used by in-place restarts only.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CurrentInPlaceRestartAttempt *int32 `json:"currentInPlaceRestartAttempt,omitempty"`
}

// ReplicatedJobStatus counts the Jobs of one replicated job. One Job can be in several counters (spec: 60 §4.3).
type ReplicatedJobStatus struct {
	// name is the replicated job.
	Name string `json:"name"`
	// ready is the number of active Jobs with as many ready or succeeded pods as they want.
	Ready int32 `json:"ready"`
	// succeeded is the number of Jobs that completed.
	Succeeded int32 `json:"succeeded"`
	// failed is the number of Jobs that failed.
	Failed int32 `json:"failed"`
	// active is the number of Jobs that have at least one pending or running pod.
	Active int32 `json:"active"`
	// suspended is the number of unfinished Jobs that are suspended.
	Suspended int32 `json:"suspended"`
	// jobRestarts is the number of restarts of each Job on its own, by job index. Absent until one is restarted so.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	JobRestarts []int32 `json:"jobRestarts,omitempty"`
	// jobRestartsCountTowardsMax is the part of jobRestarts that counts towards failurePolicy.maxRestarts, by job index.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	JobRestartsCountTowardsMax []int32 `json:"jobRestartsCountTowardsMax,omitempty"`
}
