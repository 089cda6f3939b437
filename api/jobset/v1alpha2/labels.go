package v1alpha2

// DefaultManager is the value of spec.managedBy that means the built-in controller, and the meaning of leaving it unset.
const DefaultManager = "jobset.sigs.k8s.io/jobset-controller"

// Terminal states, the values of status.terminalState.
const (
	TerminalStateCompleted = "Completed"
	TerminalStateFailed    = "Failed"
)

// Keys set as both label and annotation on every child Job and on its pod template (spec: 60 §4.2).
const (
	// JobSetNameKey is the name of the JobSet.
	JobSetNameKey = "jobset.sigs.k8s.io/jobset-name"
	// JobSetUIDKey is the UID of the JobSet.
	JobSetUIDKey = "jobset.sigs.k8s.io/jobset-uid"
	// ReplicatedJobNameKey is the name of the replicated job.
	ReplicatedJobNameKey = "jobset.sigs.k8s.io/replicatedjob-name"
	// ReplicatedJobReplicasKey is the number of replicas of the replicated job.
	ReplicatedJobReplicasKey = "jobset.sigs.k8s.io/replicatedjob-replicas"
	// GlobalReplicasKey is the sum of replicas over all replicated jobs.
	GlobalReplicasKey = "jobset.sigs.k8s.io/global-replicas"
	// JobIndexKey is the index of the Job within its replicated job.
	JobIndexKey = "jobset.sigs.k8s.io/job-index"
	// JobGlobalIndexKey is the index of the Job within the JobSet, in the order of spec.replicatedJobs.
	JobGlobalIndexKey = "jobset.sigs.k8s.io/job-global-index"
	// JobKeyKey is the lower-case hexadecimal SHA-1 of "<namespace>/<job name>".
	JobKeyKey = "jobset.sigs.k8s.io/job-key"
	// RestartAttemptKey is status.restarts at the time the Job was created.
	RestartAttemptKey = "jobset.sigs.k8s.io/restart-attempt"
	// JobRestartAttemptKey is the number of restarts of this Job on its own at the time it was created; set only with the gate
	// RestartJob.
	JobRestartAttemptKey = "jobset.sigs.k8s.io/job-restart-attempt"
	// GroupNameKey is the group of the replicated job.
	GroupNameKey = "jobset.sigs.k8s.io/group-name"
	// GroupReplicasKey is the sum of replicas over the replicated jobs of the group.
	GroupReplicasKey = "jobset.sigs.k8s.io/group-replicas"
	// JobGroupIndexKey is the index of the Job within its group.
	JobGroupIndexKey = "jobset.sigs.k8s.io/job-group-index"
	// CoordinatorKey is the address of the coordinator pod, set if spec.coordinator is.
	CoordinatorKey = "jobset.sigs.k8s.io/coordinator"
)

// Keys of exclusive placement and in-place restarts, set on some objects only (spec: 60 §4.2, §4.6.4, §4.10).
const (
	// ExclusiveTopologyAnnotation holds the node label whose values get at most one Job each. On JobSets, Job templates, Jobs
	// and pods.
	ExclusiveTopologyAnnotation = "alpha.jobset.sigs.k8s.io/exclusive-topology"
	// NodeSelectorStrategyAnnotation asks for exclusive placement through pre-labelled nodes. Any value counts.
	NodeSelectorStrategyAnnotation = "alpha.jobset.sigs.k8s.io/node-selector"
	// NamespacedJobLabel is the node label and pod node selector "<namespace>_<job name>" of the node selector strategy.
	NamespacedJobLabel = "alpha.jobset.sigs.k8s.io/namespaced-job"
	// NoScheduleTaint is the node taint tolerated by the node selector strategy.
	NoScheduleTaint = "alpha.jobset.sigs.k8s.io/no-schedule"
	// PriorityLabel is the pod's priority in decimal, n10 for -10. On pods only.
	PriorityLabel = "jobset.sigs.k8s.io/priority"
	// InPlaceRestartAttemptAnnotation is the attempt a pod is in. On pods only, set by the agent.
	InPlaceRestartAttemptAnnotation = "jobset.sigs.k8s.io/in-place-restart-attempt"
	// DisableInPlaceRestartAnnotation on a JobSet lets its workers start at once. Any value counts.
	DisableInPlaceRestartAnnotation = "jobset.sigs.k8s.io/disable-in-place-restart"
)
