package v1beta2

// Trainer configures how TrainJobs are run. (spec: 50 §4.13.7)
type Trainer struct {
	// RuntimePatches restricts the content of spec.runtimePatches of a
	// TrainJob, and its writers.
	// +optional
	RuntimePatches *RuntimePatches `json:"runtimePatches,omitempty"`

	// RecreateDeletedJobSet makes the JobSet of a TrainJob again if somebody
	// deletes it before it has finished. Otherwise the TrainJob fails, with
	// the reason JobSetDeleted. Default: true.
	// +optional
	RecreateDeletedJobSet *bool `json:"recreateDeletedJobSet,omitempty"`

	// GPUResources are resource names that count as GPUs, in addition to names that
	// contain "gpu", when the processes of a node are counted.
	// Default: none.
	// +optional
	GPUResources []string `json:"gpuResources,omitempty"`

	// CountMergedResources counts the processes of a node by the resources
	// of its pods: the runtime's, merged with the TrainJob's. Otherwise a TrainJob whose resourcesPerNode names
	// CPUs or GPUs is counted by its own resources alone. Default: false.
	// +optional
	CountMergedResources *bool `json:"countMergedResources,omitempty"`

	// StatusServer takes the progress that training code reports. It needs
	// the feature gate TrainJobStatus.
	// +optional
	StatusServer *TrainerStatusServer `json:"statusServer,omitempty"`
}

// RuntimePatches configures the checks of runtime patches. (spec: 50 §4.13)
type RuntimePatches struct {
	// ConflictPolicy specifies what happens when two managers set one field to
	// different values: Reject, Warn or Ignore. Under the latter two the
	// later entry wins. Default: Warn, which existing clients expect; Reject
	// is safer where all clients are known.
	// +optional
	ConflictPolicy string `json:"conflictPolicy,omitempty"`

	// Ownership restricts who may write the entry of a manager.
	// +optional
	Ownership *RuntimePatchOwnership `json:"ownership,omitempty"`

	// SchedulingManagers are merged after all others, and their tolerations
	// are added to the existing ones: names, or a domain followed by "/*".
	// Default: kueue.x-k8s.io/*.
	// +optional
	SchedulingManagers []string `json:"schedulingManagers,omitempty"`

	// RestrictMetadata refuses, in the metadata of patches, everything but
	// labels and annotations, and keys that belong to a controller.
	// Default: true.
	// +optional
	RestrictMetadata *bool `json:"restrictMetadata,omitempty"`

	// StrictTargets refuses patches of replicated jobs and containers that
	// the runtime does not have. Otherwise they have no effect.
	// Default: true.
	// +optional
	StrictTargets *bool `json:"strictTargets,omitempty"`
}

// RuntimePatchOwnership protects entries from everybody but their owners.
type RuntimePatchOwnership struct {
	// Mode is Reserved (only the managers in reserved are protected), Strict
	// (all are; who creates an entry owns it) or Off. Default: Reserved.
	// +optional
	Mode string `json:"mode,omitempty"`

	// Reserved are the protected managers and their owners, in addition to the accounts
	// that RBAC permits to manage them. Default: kueue.x-k8s.io/* belongs to this
	// manager, by its own service account.
	// +optional
	Reserved []ReservedManager `json:"reserved,omitempty"`
}

// ReservedManager names managers and their owners.
type ReservedManager struct {
	// Manager is a name such as acme.io/tuner, or a domain followed by "/*".
	Manager string `json:"manager"`

	// Subjects own them: user:<name>, group:<name>, or
	// system:serviceaccount:<namespace>:<name>. The account of the manager
	// in its own namespace always owns kueue.x-k8s.io/*.
	// +optional
	Subjects []string `json:"subjects,omitempty"`
}

// TrainerStatusServer is a listener of the manager. (spec: 50 §4.8)
type TrainerStatusServer struct {
	// Port of the listener, 1 to 65535. Default: 10443.
	// +optional
	Port *int32 `json:"port,omitempty"`

	// QPS and Burst limit the requests that the reports cause.
	// Default: 5 and 10.
	// +optional
	QPS *float32 `json:"qps,omitempty"`
	// +optional
	Burst *int32 `json:"burst,omitempty"`
}
