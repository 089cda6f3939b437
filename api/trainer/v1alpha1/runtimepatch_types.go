package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RuntimePatch is one manager's changes to the runtime of a TrainJob. Entries are merged into the runtime's template one
// after the other (spec: 50 §2.2, §4.9). A patch can add and override, never delete.
type RuntimePatch struct {
	// manager owns the entry: a domain-prefixed path such as acme.io/tuner, 1 to 253 characters, unique in the list.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Manager string `json:"manager"`
	// time is when the content of the entry changed last. The server sets it; it does not affect merging.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// trainingRuntimeSpec holds the changes to the runtime's spec.
	// +optional
	TrainingRuntimeSpec *TrainingRuntimeSpecPatch `json:"trainingRuntimeSpec,omitempty"`
}

// TrainingRuntimeSpecPatch holds changes to a runtime's spec.
type TrainingRuntimeSpecPatch struct {
	// template holds the changes to the JobSet's template.
	// +optional
	Template *JobSetTemplatePatch `json:"template,omitempty"`
}

// JobSetTemplatePatch holds changes to the JobSet's template.
type JobSetTemplatePatch struct {
	// metadata is overlaid on the metadata of the JobSet only. Labels and annotations are the only fields that may be set.
	// +optional
	Metadata *metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec holds the changes to the JobSet's spec.
	// +optional
	Spec *JobSetSpecPatch `json:"spec,omitempty"`
}

// JobSetSpecPatch holds changes to the JobSet's spec.
type JobSetSpecPatch struct {
	// replicatedJobs holds the changes to replicated jobs, by name, at most 100.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	ReplicatedJobs []ReplicatedJobPatch `json:"replicatedJobs,omitempty"`
	// selectedReplicatedJobs holds changes to replicated jobs that are selected by the labels of their Job templates in the
	// unpatched runtime, at most 32. Changes by name come after these. It needs the feature gate RuntimePatchSelectors, and
	// upstream does not know it (spec: 50 §4.13.4).
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	SelectedReplicatedJobs []SelectedReplicatedJobPatch `json:"selectedReplicatedJobs,omitempty"`
}

// SelectedReplicatedJobPatch holds changes to every replicated job that a selector matches.
type SelectedReplicatedJobPatch struct {
	// name identifies the changes within their entry, 1 to 63 characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// selector matches the labels of Job templates. An empty one matches all.
	Selector metav1.LabelSelector `json:"selector"`
	// template holds the changes to the Job templates.
	// +optional
	Template *JobTemplatePatch `json:"template,omitempty"`
}

// ReplicatedJobPatch holds changes to one replicated job.
type ReplicatedJobPatch struct {
	// name is the replicated job to change, 1 to 253 characters. The runtime must have it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// template holds the changes to its Job template.
	// +optional
	Template *JobTemplatePatch `json:"template,omitempty"`
}

// JobTemplatePatch holds changes to a Job template.
type JobTemplatePatch struct {
	// metadata is overlaid on the metadata of the Jobs only. Labels and annotations are the only fields that may be set.
	// +optional
	Metadata *metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec holds the changes to the Job's spec.
	// +optional
	Spec *JobSpecPatch `json:"spec,omitempty"`
}

// JobSpecPatch holds changes to a Job's spec.
type JobSpecPatch struct {
	// template holds the changes to the pod template.
	// +optional
	Template *PodTemplatePatch `json:"template,omitempty"`
}

// PodTemplatePatch holds changes to a pod template.
type PodTemplatePatch struct {
	// metadata is overlaid on the metadata of the pods only. Labels and annotations are the only fields that may be set.
	// +optional
	Metadata *metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec holds the changes to the pod's spec.
	// +optional
	Spec *PodSpecPatch `json:"spec,omitempty"`
}

// PodSpecPatch holds changes to a pod's spec. Immutable fields may be set once and then keep their value while they are
// present.
type PodSpecPatch struct {
	// serviceAccountName replaces the name of the service account, at most 253 characters. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; keep serviceAccountName as it was"
	ServiceAccountName *string `json:"serviceAccountName,omitempty"`
	// volumes are merged by name, at most 128. Immutable.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; keep volumes as they were"
	Volumes []corev1.Volume `json:"volumes,omitempty"`
	// initContainers holds the changes to init containers, by name, at most 64. Immutable.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; keep initContainers as they were"
	InitContainers []ContainerPatch `json:"initContainers,omitempty"`
	// containers holds the changes to containers, by name, at most 64. Immutable.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; keep containers as they were"
	Containers []ContainerPatch `json:"containers,omitempty"`
	// imagePullSecrets are merged by name, at most 64. Immutable.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; keep imagePullSecrets as they were"
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// securityContext is merged field by field into the pod's security context. Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; keep securityContext as it was"
	SecurityContext *corev1.PodSecurityContext `json:"securityContext,omitempty"`
	// terminationGracePeriodSeconds replaces the pod's grace period, in seconds, 0 or more. Immutable.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable; keep terminationGracePeriodSeconds as it was"
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
	// nodeSelector is merged by key.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// affinity is merged field by field; its inner lists are replaced whole.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// tolerations replace the pod's tolerations, at most 128. Tolerations of a queue's manager are added instead (spec: 50 §4.9).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// schedulingGates are merged by name, at most 16.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	SchedulingGates []corev1.PodSchedulingGate `json:"schedulingGates,omitempty"`
}

// ContainerPatch holds changes to one container. Image, command, arguments, resources and ports cannot be patched.
type ContainerPatch struct {
	// name is the container to change, 1 to 253 characters. The runtime's pod must have it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// env is merged by name, at most 128 variables. It cannot be set for the containers that spec.trainer and
	// spec.initializer configure.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Env []corev1.EnvVar `json:"env,omitempty"`
	// volumeMounts are merged by mount path, at most 128; one entry can name a volume only once.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
	// securityContext is merged field by field into the container's security context.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`
}
