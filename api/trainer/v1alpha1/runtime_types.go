package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// TrainingRuntime is a blueprint for the TrainJobs of its namespace.
//
// +kubebuilder:object:root=true
type TrainingRuntime struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. It is not passed on to JobSets.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the blueprint. It may change, but for what a JobSet cannot change in its policies; TrainJobs keep the version that
	// they began with (spec: 50 §2.4, §4.3).
	// +optional
	Spec TrainingRuntimeSpec `json:"spec,omitzero"`
}

// TrainingRuntimeList is a list of TrainingRuntimes.
//
// +kubebuilder:object:root=true
type TrainingRuntimeList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the TrainingRuntimes.
	Items []TrainingRuntime `json:"items"`
}

// ClusterTrainingRuntime is a blueprint for the TrainJobs of every namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type ClusterTrainingRuntime struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. It is not passed on to JobSets.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the blueprint. It may change, but for what a JobSet cannot change in its policies; TrainJobs keep the version that
	// they began with (spec: 50 §2.4, §4.3).
	// +optional
	Spec TrainingRuntimeSpec `json:"spec,omitzero"`
}

// ClusterTrainingRuntimeList is a list of ClusterTrainingRuntimes.
//
// +kubebuilder:object:root=true
type ClusterTrainingRuntimeList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the ClusterTrainingRuntimes.
	Items []ClusterTrainingRuntime `json:"items"`
}

// TrainingRuntimeSpec is the content of a runtime of either kind (spec: 50 §2.4). It cannot be empty.
//
// +kubebuilder:validation:MinProperties=1
type TrainingRuntimeSpec struct {
	// mlPolicy specifies how many nodes train and how they find each other. Unset means that nothing is injected.
	// +optional
	MLPolicy *MLPolicy `json:"mlPolicy,omitempty"`
	// podGroupPolicy asks for all pods of a TrainJob to be scheduled together.
	// +optional
	PodGroupPolicy *PodGroupPolicy `json:"podGroupPolicy,omitempty"`
	// template is the JobSet to make.
	// +optional
	Template JobSetTemplateSpec `json:"template,omitzero"`
}

// JobSetTemplateSpec is the JobSet that a runtime makes. It cannot be empty.
//
// +kubebuilder:validation:MinProperties=1
type JobSetTemplateSpec struct {
	// metadata is the metadata of the JobSet. Labels and annotations are the only fields that are used.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// spec is the spec of the JobSet. The replicated jobs that a TrainJob configures carry the label
	// trainer.kubeflow.org/trainjob-ancestor-step on their Job template (spec: 50 §4.4). failurePolicy, network, startupPolicy,
	// successPolicy, volumeClaimPolicies and replicatedJobs[].dependsOn cannot change, as in a JobSet; each can be added and removed.
	// +optional
	Spec jobsetv1alpha2.JobSetSpec `json:"spec,omitzero"`
}

// MLPolicy specifies how many nodes train and how they find each other.
//
// +kubebuilder:validation:XValidation:rule="[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost), has(self.flux)].filter(set, set).size() <= 1",message="mlPolicy may set at most one of torch, mpi, jax, xgboost and flux"
type MLPolicy struct {
	// numNodes is the number of training pods unless the TrainJob says otherwise. Default: 1.
	// +optional
	NumNodes *int32 `json:"numNodes,omitempty"`

	MLPolicySource `json:",inline"`
}

// MLPolicySource is the framework of an ML policy: at most one of its fields. None means a plain job, into which nothing is
// injected (spec: 50 §4.6).
type MLPolicySource struct {
	// torch configures PyTorch's distributed launcher.
	// +optional
	Torch *TorchPolicy `json:"torch,omitempty"`
	// mpi configures MPI: host file, SSH keys and launcher.
	// +optional
	MPI *MPIPolicy `json:"mpi,omitempty"`
	// jax configures JAX's distributed initialization.
	// +optional
	JAX *JAXPolicy `json:"jax,omitempty"`
	// xgboost configures XGBoost's tracker.
	// +optional
	XGBoost *XGBoostPolicy `json:"xgboost,omitempty"`
	// flux configures the Flux framework: brokers, certificate and entry point.
	// +optional
	Flux *FluxPolicy `json:"flux,omitempty"`
}

// TorchPolicy configures PyTorch's distributed launcher.
type TorchPolicy struct {
	// envInjection asks for the launcher's variables in more containers than the trainer.
	// +optional
	EnvInjection *TorchEnvInjection `json:"envInjection,omitempty"`
}

// TorchEnvInjection lists the containers that get the launcher's variables besides the trainer.
type TorchEnvInjection struct {
	// targets are the replicated jobs and their containers, at most 16.
	// +optional
	// +listType=map
	// +listMapKey=jobName
	// +kubebuilder:validation:MaxItems=16
	Targets []TorchEnvTarget `json:"targets,omitempty"`
}

// TorchEnvTarget names containers of one replicated job.
type TorchEnvTarget struct {
	// jobName is the replicated job, 1 to 253 characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	JobName string `json:"jobName"`
	// containerNames are containers or init containers of that job, 1 to 8 of at most 63 characters. The trainer's own
	// container, node, gets the variables anyway and cannot be named.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!('node' in self)",message="containerNames must not include node, which gets the variables anyway; name other containers"
	ContainerNames []string `json:"containerNames"`
}

// MPIImplementation is an implementation of MPI.
//
// +kubebuilder:validation:Enum=OpenMPI;""
type MPIImplementation string

const (
	// MPIImplementationOpenMPI is Open MPI, the only implementation accepted.
	MPIImplementationOpenMPI MPIImplementation = "OpenMPI"
	// MPIImplementationIntel is Intel MPI. Reserved: the API refuses it.
	MPIImplementationIntel MPIImplementation = "Intel"
	// MPIImplementationMPICH is MPICH. Reserved: the API refuses it.
	MPIImplementationMPICH MPIImplementation = "MPICH"
)

// MPIPolicy configures MPI (spec: 50 §4.6.3).
type MPIPolicy struct {
	// numProcPerNode is the number of processes on each node, at least 1, unless the TrainJob says otherwise. Default: 1, or
	// the number of GPUs if a node has more than one.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="numProcPerNode must be 1 or greater"
	NumProcPerNode *int32 `json:"numProcPerNode,omitempty"`
	// mpiImplementation is the implementation of MPI in the images. Default: OpenMPI.
	// +optional
	// +kubebuilder:default=OpenMPI
	MPIImplementation *MPIImplementation `json:"mpiImplementation,omitempty"`
	// sshAuthMountPath is where the SSH keys are mounted, at most 4096 characters. Default: /root/.ssh.
	// +optional
	// +kubebuilder:default="/root/.ssh"
	// +kubebuilder:validation:MaxLength=4096
	SSHAuthMountPath *string `json:"sshAuthMountPath,omitempty"`
	// runLauncherAsNode makes the launcher train too and count as one of the nodes. Default: false.
	// +optional
	// +kubebuilder:default=false
	RunLauncherAsNode *bool `json:"runLauncherAsNode,omitempty"`
}

// JAXPolicy configures JAX. It has no settings.
type JAXPolicy struct{}

// XGBoostPolicy configures XGBoost. It has no settings.
type XGBoostPolicy struct{}

// FluxPolicy configures the Flux framework (spec: 50 §4.6.4).
type FluxPolicy struct {
	// numProcPerNode is the number of processes on each node, at least 1, unless the TrainJob says otherwise. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="numProcPerNode must be 1 or greater"
	NumProcPerNode *int32 `json:"numProcPerNode,omitempty"`
}

// PodGroupPolicy asks for all pods of a TrainJob to be scheduled together (spec: 50 §4.7).
type PodGroupPolicy struct {
	PodGroupPolicySource `json:",inline"`
}

// PodGroupPolicySource is the scheduler that schedules the pods together. Set one.
type PodGroupPolicySource struct {
	// coscheduling uses the coscheduling plugin of the Kubernetes scheduler plugins.
	// +optional
	Coscheduling *CoschedulingPolicy `json:"coscheduling,omitempty"`
	// volcano uses the Volcano scheduler.
	// +optional
	Volcano *VolcanoPolicy `json:"volcano,omitempty"`
}

// CoschedulingPolicy configures the coscheduling plugin.
type CoschedulingPolicy struct {
	// scheduleTimeoutSeconds is how long pods wait for the rest of their group, in seconds. Default: 60.
	// +optional
	// +kubebuilder:default=60
	ScheduleTimeoutSeconds *int32 `json:"scheduleTimeoutSeconds,omitempty"`
}

// VolcanoPolicy configures the Volcano scheduler.
type VolcanoPolicy struct {
	// networkTopology asks for nodes that are close to each other in the network.
	// +optional
	NetworkTopology *NetworkTopology `json:"networkTopology,omitempty"`
}

// NetworkTopologyMode specifies how strictly nodes must be close.
//
// +kubebuilder:validation:Enum=hard;soft
type NetworkTopologyMode string

const (
	// NetworkTopologyHard keeps the group waiting rather than spread it further.
	NetworkTopologyHard NetworkTopologyMode = "hard"
	// NetworkTopologySoft spreads the group further rather than keep it waiting.
	NetworkTopologySoft NetworkTopologyMode = "soft"
)

// NetworkTopology asks for nodes that are close to each other, in Volcano's own terms.
type NetworkTopology struct {
	// mode is hard or soft. Default: hard.
	// +optional
	// +kubebuilder:default=hard
	Mode NetworkTopologyMode `json:"mode,omitempty"`
	// highestTierAllowed is the highest tier of the network that the group may span. Default: 1.
	// +optional
	// +kubebuilder:default=1
	HighestTierAllowed *int `json:"highestTierAllowed,omitempty"`
}
