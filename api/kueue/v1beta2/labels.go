package v1beta2

// ResourceInUseFinalizer keeps queues, flavors, topologies, checks and Workloads until nothing depends on them.
const ResourceInUseFinalizer = "kueue.x-k8s.io/resource-in-use"

// ManagedFinalizer keeps a pod until Berth has accounted for its end. It is also the label, with value true, on pods and
// pod templates that Berth manages.
const ManagedFinalizer = "kueue.x-k8s.io/managed"

// Labels (spec: 10 §5.3, 20 §5.3, 30 §5.3).
const (
	// QueueNameLabel, on a job, names the LocalQueue; a job that has it is managed by Berth.
	QueueNameLabel = "kueue.x-k8s.io/queue-name"
	// PriorityClassLabel, on a job, names the WorkloadPriorityClass.
	PriorityClassLabel = "kueue.x-k8s.io/priority-class"
	// PrebuiltWorkloadLabel, on a job, names the Workload to use instead of making one. Also an annotation.
	PrebuiltWorkloadLabel = "kueue.x-k8s.io/prebuilt-workload-name"
	// MaxExecTimeSecondsLabel, on a job, becomes maximumExecutionTimeSeconds of the Workload.
	MaxExecTimeSecondsLabel = "kueue.x-k8s.io/max-exec-time-seconds"
	// JobUIDLabel, on a Workload, is the UID of the job.
	JobUIDLabel = "kueue.x-k8s.io/job-uid"
	// PodSetLabel, on a pod, is the name of the pod set.
	PodSetLabel = "kueue.x-k8s.io/podset"
	// LocalQueueLabel, on a pod, is the LocalQueue of its Workload.
	LocalQueueLabel = "kueue.x-k8s.io/local-queue-name"
	// ClusterQueueLabel, on a pod, is the ClusterQueue of its Workload.
	ClusterQueueLabel = "kueue.x-k8s.io/cluster-queue-name"
	// ManagedLabel, on a pod or pod template, is true if Berth manages it.
	ManagedLabel = "kueue.x-k8s.io/managed"
	// PodGroupNameLabel, on a pod, names its pod group. Also an annotation.
	PodGroupNameLabel = "kueue.x-k8s.io/pod-group-name"
	// PodGroupPodIndexLabel, on a pod, is its index in the pod group.
	PodGroupPodIndexLabel = "kueue.x-k8s.io/pod-group-pod-index"
	// ConcurrentAdmissionParentLabel, on a Workload, marks the parent of variants.
	ConcurrentAdmissionParentLabel = "kueue.x-k8s.io/concurrent-admission-parent"
	// MultiKueueOriginLabel, on what a manager made on a worker, names the manager.
	MultiKueueOriginLabel = "kueue.x-k8s.io/multikueue-origin"
	// MultiKueueWorkerWorkloadPodLabel, on a pod of such a job, is true.
	MultiKueueWorkerWorkloadPodLabel = "kueue.x-k8s.io/multikueue-worker-workload-pod"
)

// Annotations of jobs, Workloads and pods (spec: 10 §5.3, 20 §5.3, 30 §5.3).
const (
	// AdmissionGatedByAnnotation, on a job or Workload, is a comma list of gates that keep it out of its queue.
	AdmissionGatedByAnnotation = "kueue.x-k8s.io/admission-gated-by"
	// PriorityBoostAnnotation, on a Workload, is added to its priority.
	PriorityBoostAnnotation = "kueue.x-k8s.io/priority-boost"
	// AllowedResourceFlavorsAnnotation, on a Workload, restricts the flavors it may get.
	AllowedResourceFlavorsAnnotation = "kueue.x-k8s.io/workload-allowed-resource-flavors"
	// ElasticJobAnnotation, on a job or Workload, lets it be resized while it runs.
	ElasticJobAnnotation = "kueue.x-k8s.io/elastic-job"
	// WorkloadAnnotation, on a pod, names its Workload.
	WorkloadAnnotation = "kueue.x-k8s.io/workload"
	// WorkloadSliceNameAnnotation, on a Workload or pod, names the chain of slices.
	WorkloadSliceNameAnnotation = "kueue.x-k8s.io/workload-slice-name"
	// WorkloadSliceReplacementForAnnotation, on a Workload, names the slice it replaces, as NAMESPACE/NAME.
	WorkloadSliceReplacementForAnnotation = "kueue.x-k8s.io/workload-slice-replacement-for"
	// JobOwnerGVKAnnotation, on a Workload, is the kind of the true owner, such as "apps/v1, Kind=StatefulSet".
	JobOwnerGVKAnnotation = "kueue.x-k8s.io/job-owner-gvk"
	// JobOwnerNameAnnotation, on a Workload, is the name of the true owner.
	JobOwnerNameAnnotation = "kueue.x-k8s.io/job-owner-name"
	// ComponentWorkloadIndexAnnotation, on a Workload, is its index among those of the same owner.
	ComponentWorkloadIndexAnnotation = "kueue.x-k8s.io/component-workload-index"
	// IsGroupWorkloadAnnotation marks the Workload of a pod group.
	IsGroupWorkloadAnnotation = "kueue.x-k8s.io/is-group-workload"
	// PodGroupTotalCountAnnotation, on a pod, is the number of pods in its group.
	PodGroupTotalCountAnnotation = "kueue.x-k8s.io/pod-group-total-count"
	// PodGroupFastAdmissionAnnotation, on a pod, lets the group be admitted before all pods exist.
	PodGroupFastAdmissionAnnotation = "kueue.x-k8s.io/pod-group-fast-admission"
	// PodGroupServingAnnotation, on a pod, marks a group that serves and does not finish.
	PodGroupServingAnnotation = "kueue.x-k8s.io/pod-group-serving"
	// PodGroupPodIndexLabelAnnotation, on a pod, names the label that holds its index in the group.
	PodGroupPodIndexLabelAnnotation = "kueue.x-k8s.io/pod-group-pod-index-label"
	// PodIndexOffsetAnnotation, on a pod template, is subtracted from pod indexes to get ranks.
	PodIndexOffsetAnnotation = "kueue.x-k8s.io/pod-index-offset"
	// RoleHashAnnotation, on a pod of a group, is the name of its pod set.
	RoleHashAnnotation = "kueue.x-k8s.io/role-hash"
	// RetriableInGroupAnnotation, on a pod, is false if the group does not wait for its replacement.
	RetriableInGroupAnnotation = "kueue.x-k8s.io/retriable-in-group"
	// PodSuspendingParentAnnotation, on a pod or template, names the integration that suspends it.
	PodSuspendingParentAnnotation = "kueue.x-k8s.io/pod-suspending-parent"
	// SafeToForcefullyDeleteAnnotation, on a pod, is true if it may be deleted by force when it is stuck.
	SafeToForcefullyDeleteAnnotation = "kueue.x-k8s.io/safe-to-forcefully-delete"
	// JobMinParallelismAnnotation, on a batch Job, is the parallelism it can run with: partial admission.
	JobMinParallelismAnnotation = "kueue.x-k8s.io/job-min-parallelism"
	// JobCompletionsEqualParallelismAnnotation, on a batch Job, keeps completions equal to parallelism.
	JobCompletionsEqualParallelismAnnotation = "kueue.x-k8s.io/job-completions-equal-parallelism"
	// JobStoppingAnnotation, on a batch Job, marks a stop that is under way.
	JobStoppingAnnotation = "kueue.x-k8s.io/stopping"
	// RayClusterGenerationAnnotation, on a Ray object, is part of the name of its Workload.
	RayClusterGenerationAnnotation = "kueue.x-k8s.io/raycluster-generation"
	// RayClusterPodSetReplicaSizesAnnotation, on a Ray object, holds the sizes of its worker groups.
	RayClusterPodSetReplicaSizesAnnotation = "kueue.x-k8s.io/raycluster-podset-replica-sizes"
	// MultiKueueOriginUIDAnnotation, on what a manager made on a worker, is the UID of the object on the manager.
	MultiKueueOriginUIDAnnotation = "kueue.x-k8s.io/multikueue-origin-uid"
	// ProvisioningRequestParameterPrefix begins annotations that set parameters of a ProvisioningRequest.
	ProvisioningRequestParameterPrefix = "provreq.kueue.x-k8s.io/"
)

// Annotations of pod templates that become a topologyRequest (spec: 20 §5.3).
const (
	// PodSetRequiredTopologyAnnotation becomes required.
	PodSetRequiredTopologyAnnotation = "kueue.x-k8s.io/podset-required-topology"
	// PodSetPreferredTopologyAnnotation becomes preferred.
	PodSetPreferredTopologyAnnotation = "kueue.x-k8s.io/podset-preferred-topology"
	// PodSetUnconstrainedTopologyAnnotation becomes unconstrained.
	PodSetUnconstrainedTopologyAnnotation = "kueue.x-k8s.io/podset-unconstrained-topology"
	// PodSetSliceRequiredTopologyAnnotation becomes podSetSliceRequiredTopology.
	PodSetSliceRequiredTopologyAnnotation = "kueue.x-k8s.io/podset-slice-required-topology"
	// PodSetSliceSizeAnnotation becomes podSetSliceSize.
	PodSetSliceSizeAnnotation = "kueue.x-k8s.io/podset-slice-size"
	// PodSetSliceRequiredTopologyConstraintsAnnotation, a JSON list, becomes podsetSliceRequiredTopologyConstraints.
	PodSetSliceRequiredTopologyConstraintsAnnotation = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
	// PodSetGroupNameAnnotation becomes podSetGroupName.
	PodSetGroupNameAnnotation = "kueue.x-k8s.io/podset-group-name"
)

// Scheduling gates of pods.
const (
	// AdmissionSchedulingGate holds a pod until its Workload is admitted.
	AdmissionSchedulingGate = "kueue.x-k8s.io/admission"
	// TopologySchedulingGate holds a pod until its place is known.
	TopologySchedulingGate = "kueue.x-k8s.io/topology"
	// ElasticJobSchedulingGate holds a pod until the slice it belongs to is admitted.
	ElasticJobSchedulingGate = "kueue.x-k8s.io/elastic-job"
)

// Names of preemption gates.
const (
	// MultiKueuePreemptionGate is opened by the manager cluster.
	MultiKueuePreemptionGate = "kueue.x-k8s.io/multikueue"
	// ConcurrentAdmissionPreemptionGate is opened when it is the turn of a variant.
	ConcurrentAdmissionPreemptionGate = "kueue.x-k8s.io/concurrent-admission"
)
