package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TrainJob is one training run. It names a runtime, an administrator's blueprint, and overrides parts of it; the controller
// merges both into one JobSet of the same name and mirrors the JobSet's status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="State",JSONPath=".status.conditions[?(@.status==\"True\")].type",type=string,description="Type of the condition that holds: Suspended, Complete or Failed"
// +kubebuilder:printcolumn:name="Suspended",JSONPath=".spec.suspend",type=boolean,description="Whether the TrainJob is suspended"
// +kubebuilder:printcolumn:name="Age",JSONPath=".metadata.creationTimestamp",type=date,description="Time since the TrainJob was created"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be at most 63 characters, start with a lower-case letter, hold only lower-case letters, digits and '-', and end with a letter or digit"
type TrainJob struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is a DNS-1035 label and becomes the name of the JobSet. Labels and
	// annotations are not passed on to it.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies what to run.
	// +required
	Spec TrainJobSpec `json:"spec,omitzero"`
	// status is what the controller observed.
	// +optional
	Status TrainJobStatus `json:"status,omitzero"`
}

// TrainJobList is a list of TrainJobs.
//
// +kubebuilder:object:root=true
type TrainJobList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the TrainJobs.
	Items []TrainJob `json:"items"`
}

// TrainJobSpec is the wanted state of a TrainJob (spec: 50 §2.1).
type TrainJobSpec struct {
	// runtimeRef names the runtime that this TrainJob is built from. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; create a new TrainJob to use another runtime"
	RuntimeRef RuntimeRef `json:"runtimeRef"`

	// initializer overrides the runtime's initialization steps, which fetch the dataset and the model. Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; create a new TrainJob to change initializer"
	Initializer *Initializer `json:"initializer,omitempty"`

	// trainer overrides the runtime's training step. Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; create a new TrainJob to change trainer"
	Trainer *Trainer `json:"trainer,omitempty"`

	// runtimePatches are further changes to the runtime, one entry for each manager, at most 16. They may change only while the
	// TrainJob is suspended before or after the update (spec: 50 §3.5).
	// +optional
	// +listType=map
	// +listMapKey=manager
	// +kubebuilder:validation:MaxItems=16
	RuntimePatches []RuntimePatch `json:"runtimePatches,omitempty"`

	// suspend holds the TrainJob while true: its JobSet exists but runs no pods. Default: false. May change at any time.
	// +optional
	// +kubebuilder:default=false
	Suspend *bool `json:"suspend,omitempty"`

	// activeDeadlineSeconds is how long the TrainJob may be active before it fails, in seconds, counted from its creation or
	// last resume. At least 1. Unset means no limit. Immutable.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; create a new TrainJob to change activeDeadlineSeconds"
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// managedBy is the controller that runs this TrainJob: trainer.kubeflow.org/trainjob-controller, the default, or
	// kueue.x-k8s.io/multikueue, with which the local controller leaves the object alone. Immutable.
	// +optional
	// +kubebuilder:default="trainer.kubeflow.org/trainjob-controller"
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self in ['trainer.kubeflow.org/trainjob-controller', 'kueue.x-k8s.io/multikueue']",message="managedBy must be trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; create a new TrainJob to change managedBy"
	ManagedBy *string `json:"managedBy,omitempty"`
}

// RuntimeRef names the runtime that a TrainJob is built from.
type RuntimeRef struct {
	// name is the runtime's name. A TrainingRuntime is looked up in the namespace of the TrainJob.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// apiGroup is the group of the runtime's kind. Default: trainer.kubeflow.org.
	// +optional
	// +kubebuilder:default="trainer.kubeflow.org"
	// +kubebuilder:validation:MaxLength=253
	APIGroup *string `json:"apiGroup,omitempty"`
	// kind is the runtime's kind: ClusterTrainingRuntime, the default, or TrainingRuntime.
	// +optional
	// +kubebuilder:default="ClusterTrainingRuntime"
	// +kubebuilder:validation:MaxLength=253
	Kind *string `json:"kind,omitempty"`
}

// Initializer overrides the runtime's initialization steps.
type Initializer struct {
	// dataset overrides the step dataset-initializer, which the runtime must have.
	// +optional
	Dataset *InitializerStep `json:"dataset,omitempty"`
	// model overrides the step model-initializer, which the runtime must have.
	// +optional
	Model *InitializerStep `json:"model,omitempty"`
}

// InitializerStep overrides one initialization step.
type InitializerStep struct {
	// storageUri is where to fetch from, such as hf://owner/name or s3://bucket/path. It becomes the variable STORAGE_URI, also
	// when empty. At most 2048 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')",message="storageUri must be empty or a URI of the form scheme://something"
	StorageURI *string `json:"storageUri,omitempty"`
	// env is merged by name into the environment of the step's container, at most 128 variables.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Env []corev1.EnvVar `json:"env,omitempty"`
	// secretRef names a Secret in the TrainJob's namespace whose keys become variables of the step's container.
	// +optional
	SecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
}

// Trainer overrides the container named node of the runtime's training step (spec: 50 §4.4).
type Trainer struct {
	// image replaces the container's image. At most 500 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=500
	Image *string `json:"image,omitempty"`
	// command replaces the container's command; an empty list clears it. At most 128 items of at most 1 MiB.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=1048576
	Command []string `json:"command,omitzero"`
	// args replaces the container's arguments; an empty list clears them. At most 128 items of at most 1 MiB.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=1048576
	Args []string `json:"args,omitzero"`
	// env is merged by name into the container's environment, at most 128 variables.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Env []corev1.EnvVar `json:"env,omitempty"`
	// numNodes is the number of training pods. Default: the runtime's mlPolicy.numNodes. Zero is legal.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NumNodes *int32 `json:"numNodes,omitempty"`
	// resourcesPerNode is merged by key into the container's resources.
	// +optional
	ResourcesPerNode *corev1.ResourceRequirements `json:"resourcesPerNode,omitempty"`
	// numProcPerNode is the number of processes on each node, at least 1. Default: what the ML policy says (spec: 50 §4.6).
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="numProcPerNode must be 1 or greater"
	NumProcPerNode *int32 `json:"numProcPerNode,omitempty"`
}

// TrainJobStatus is the observed state of a TrainJob (spec: 50 §2.3). It is never written empty.
//
// +kubebuilder:validation:MinProperties=1
type TrainJobStatus struct {
	// conditions are the TrainJob's conditions by type, at most 8 (spec: 50 §5.1). A TrainJob that runs and was never suspended
	// has none.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// jobsStatus counts the Jobs of each replicated job, as the JobSet does, at most 100.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	JobsStatus []JobStatus `json:"jobsStatus,omitempty"`
	// trainerStatus is the progress that the training code reported. Needs the gate TrainJobStatus.
	// +optional
	TrainerStatus *TrainerStatus `json:"trainerStatus,omitempty"`
	// runtimePatches says which runtime patches the JobSet was built from, one entry for each manager, at most 16. Berth's own
	// extension (spec: 50 §4.13.6).
	// +optional
	// +listType=map
	// +listMapKey=manager
	// +kubebuilder:validation:MaxItems=16
	RuntimePatches []RuntimePatchStatus `json:"runtimePatches,omitempty"`
	// runtimeSnapshot identifies the snapshot of the runtime that the JobSet is built from. A ConfigMap with other content is not
	// used. Berth's own extension: the snapshot can be written by the users of the namespace, and the status cannot.
	// +optional
	RuntimeSnapshot *RuntimeSnapshotStatus `json:"runtimeSnapshot,omitempty"`
}

// RuntimeSnapshotStatus identifies the content of a runtime snapshot.
type RuntimeSnapshotStatus struct {
	// hash is sha256: and the SHA-256 of the snapshot's key runtime, in hexadecimal. It is absent while there is no snapshot.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	Hash string `json:"hash,omitempty"`
}

// JobStatus counts the Jobs of one replicated job. One Job can be in several counters.
type JobStatus struct {
	// name is the replicated job.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// ready is the number of Jobs with as many ready or succeeded pods as they want.
	// +kubebuilder:validation:Minimum=0
	Ready int32 `json:"ready"`
	// succeeded is the number of Jobs that completed.
	// +kubebuilder:validation:Minimum=0
	Succeeded int32 `json:"succeeded"`
	// failed is the number of Jobs that failed.
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
	// active is the number of Jobs that have at least one pending or running pod.
	// +kubebuilder:validation:Minimum=0
	Active int32 `json:"active"`
	// suspended is the number of unfinished Jobs that are suspended.
	// +kubebuilder:validation:Minimum=0
	Suspended int32 `json:"suspended"`
}

// TrainerStatus is the progress that the training code reported last. A report replaces the one before it.
//
// +kubebuilder:validation:XValidation:rule="has(self.lastUpdatedTime)",message="lastUpdatedTime is required in trainerStatus; set it to the time of the report",reason=FieldValueRequired,fieldPath=".lastUpdatedTime"
type TrainerStatus struct {
	// progressPercentage is the share of the work done, 0 to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	ProgressPercentage *int32 `json:"progressPercentage,omitempty"`
	// estimatedRemainingSeconds is the expected time to the end, in seconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	EstimatedRemainingSeconds *int32 `json:"estimatedRemainingSeconds,omitempty"`
	// metrics are named values such as loss or accuracy, at most 256.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Metrics []Metric `json:"metrics,omitempty"`
	// lastUpdatedTime is when the training code made the report. Required.
	// +optional
	LastUpdatedTime metav1.Time `json:"lastUpdatedTime,omitzero"`
}

// Metric is a named value that the training code reported.
type Metric struct {
	// name is the metric's name, 1 to 64 characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`
	// value is the metric's value as text, 1 to 64 characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Value string `json:"value"`
}

// RuntimePatchState is the outcome of a manager's runtime patch.
//
// +kubebuilder:validation:Enum=Pending;Applied;Overridden
type RuntimePatchState string

const (
	// RuntimePatchPending means that the JobSet was not yet built from the patch's present content.
	RuntimePatchPending RuntimePatchState = "Pending"
	// RuntimePatchApplied means that the JobSet was built from the patch's present content.
	RuntimePatchApplied RuntimePatchState = "Applied"
	// RuntimePatchOverridden means that it was, but other managers overrode parts of it.
	RuntimePatchOverridden RuntimePatchState = "Overridden"
)

// RuntimePatchStatus is the outcome of one manager's runtime patch (spec: 50 §4.13.6).
type RuntimePatchStatus struct {
	// manager is the entry of spec.runtimePatches that this is about.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Manager string `json:"manager"`
	// state is Pending, Applied or Overridden.
	State RuntimePatchState `json:"state"`
	// observedTime is the time in the spec of the content that was applied.
	// +optional
	ObservedTime *metav1.Time `json:"observedTime,omitempty"`
	// appliedTime is when the JobSet was built from that content.
	// +optional
	AppliedTime *metav1.Time `json:"appliedTime,omitempty"`
	// hash is the beginning of the SHA-256 of that content without its time: 16 hexadecimal digits.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Hash string `json:"hash,omitempty"`
	// fields are the paths of the leaf fields that the patch sets, at most 64, followed by "…" if there are more.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=65
	Fields []string `json:"fields,omitempty"`
	// overriddenBy lists what other managers' patches overrode, at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	OverriddenBy []RuntimePatchOverride `json:"overriddenBy,omitempty"`
	// message explains the state, at most 256 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// RuntimePatchOverride names one field that another manager's patch overrode.
type RuntimePatchOverride struct {
	// manager is the manager whose value won.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Manager string `json:"manager"`
	// field is the path of the leaf field.
	Field string `json:"field"`
}
