package v1alpha1

// Values of spec.managedBy (spec: 50 §2.1).
const (
	// DefaultManager is the local controller, the default.
	DefaultManager = "trainer.kubeflow.org/trainjob-controller"
	// MultiKueueManager leaves the TrainJob to a MultiKueue worker cluster.
	MultiKueueManager = "kueue.x-k8s.io/multikueue"
)

// Managers of runtime patches (spec: 50 §5.3).
const (
	// QueuePatchManager is the manager of the queue's entry.
	QueuePatchManager = "kueue.x-k8s.io/manager"
	// SDKPatchManager is the manager of the Kubeflow SDK's entry.
	SDKPatchManager = "trainer.kubeflow.org/kubeflow-sdk"
)

// AncestorStepLabel on a Job template of a runtime says which part of a TrainJob configures it (spec: 50 §4.4).
const AncestorStepLabel = "trainer.kubeflow.org/trainjob-ancestor-step"

// Values of AncestorStepLabel. The initializers' containers bear the same names.
const (
	AncestorTrainer            = "trainer"
	AncestorDatasetInitializer = "dataset-initializer"
	AncestorModelInitializer   = "model-initializer"
)

// ContainerNode is the container that spec.trainer configures.
const ContainerNode = "node"

// Names of replicated jobs that MPI runtimes must have.
const (
	JobNode     = "node"
	JobLauncher = "launcher"
)

// InitializerVolume is the volume that the initializers and the trainer share.
const InitializerVolume = "initializer"

// Labels of runtimes (spec: 50 §5.3).
const (
	// FrameworkLabel names the framework, by which the SDK finds runtimes.
	FrameworkLabel = "trainer.kubeflow.org/framework"
	// SupportLabel with the value SupportDeprecated makes TrainJobs that use the runtime get a warning.
	SupportLabel      = "trainer.kubeflow.org/support"
	SupportDeprecated = "deprecated"
	// WebhookValidationLabel with the value WebhookValidationDisabled exempts the runtime from the validating webhook.
	WebhookValidationLabel    = "trainer.kubeflow.org/webhook-validation"
	WebhookValidationDisabled = "disabled"
	// ManagedByLabel with the value ManagedByInstaller marks runtimes that the installer may remove.
	ManagedByLabel     = "trainer.kubeflow.org/managed-by"
	ManagedByInstaller = "runtimes-installer"
)

// ResourceInUseFinalizer was once set on runtimes and is removed on sight.
const ResourceInUseFinalizer = "trainer.kubeflow.org/resource-in-use"

// Suffixes of the names of a TrainJob's children; the TrainJob's name comes first. The JobSet has no suffix (spec: 50 §5.3).
const (
	SuffixRuntimeSnapshot = "-runtime-snapshot"
	SuffixMPISSHAuth      = "-mpi-ssh-auth"
	SuffixMPIHostfile     = "-mpi-hostfile"
	SuffixFluxEntrypoint  = "-flux-entrypoint"
	SuffixFluxCurve       = "-flux-curve"
	SuffixTLSConfig       = "-tls-config"
)

// Field managers of server-side apply (spec: 50 §5.3).
const (
	// FieldManager owns the objects made for a TrainJob.
	FieldManager = "trainer"
	// StatusFieldManager owns status.trainerStatus.
	StatusFieldManager = "trainer-status"
)
