package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Configuration is the whole configuration file. Every field may be left out.
// Without a file all job kinds are enabled, and pods, Deployments and
// StatefulSets are queued only with a queue label; with one,
// integrations.frameworks decides, which enables batch Jobs alone by default.
//
// +kubebuilder:object:root=true
type Configuration struct {
	metav1.TypeMeta `json:",inline"`

	// Namespace is where the manager lives: its Secrets, its lease and the
	// kubeconfigs of its worker clusters are read and kept there.
	// Default: the namespace of the mounted service account, else
	// "berth-system".
	// +optional
	Namespace *string `json:"namespace,omitempty"`

	// Manager holds the settings of the process itself: listeners, probes,
	// leader election and worker counts. Its fields stand at the top level
	// of the file.
	Manager `json:",inline"`

	// ManageJobsWithoutQueueName makes the manager take jobs that name no
	// queue as well, in the namespaces that managedJobsNamespaceSelector
	// matches: they are suspended and get a Workload, which waits because
	// it has no queue. Default: false. (spec: 30 §4.2)
	// +optional
	ManageJobsWithoutQueueName bool `json:"manageJobsWithoutQueueName,omitempty"`

	// ManagedJobsNamespaceSelector selects the namespaces in which jobs are
	// looked at, with or without a queue name. Jobs elsewhere are never
	// touched. It must match neither kube-system nor the manager's own
	// namespace; for that test a namespace is taken to carry only the label
	// kubernetes.io/metadata.name. Default: every namespace but these two
	// and the namespaces of well-known add-ons.
	// +optional
	ManagedJobsNamespaceSelector *metav1.LabelSelector `json:"managedJobsNamespaceSelector,omitempty"`

	// InternalCertManagement selects the issuer of the certificates of the
	// webhooks. Default: the manager does.
	// +optional
	InternalCertManagement *InternalCertManagement `json:"internalCertManagement,omitempty"`

	// WaitForPodsReady evicts a Workload whose pods do not become ready in
	// time. Default: on, with the defaults of its fields; the feature gate
	// DisableWaitForPodsReady is the only way to turn it off.
	// +optional
	WaitForPodsReady *WaitForPodsReady `json:"waitForPodsReady,omitempty"`

	// ClientConnection limits how fast the manager calls the API server.
	// +optional
	ClientConnection *ClientConnection `json:"clientConnection,omitempty"`

	// Integrations lists the job kinds to manage. Default: batch/job alone.
	// +optional
	Integrations *Integrations `json:"integrations,omitempty"`

	// MultiKueue configures the dispatch of jobs to worker clusters.
	// +optional
	MultiKueue *MultiKueue `json:"multiKueue,omitempty"`

	// FairSharing turns on fair sharing of the unused quota of a cohort.
	// Present means on. Default: off.
	// +optional
	FairSharing *FairSharing `json:"fairSharing,omitempty"`

	// AdmissionFairSharing orders the Workloads of a ClusterQueue by the
	// past usage of their LocalQueues. Present means on. Default: off.
	// +optional
	AdmissionFairSharing *AdmissionFairSharing `json:"admissionFairSharing,omitempty"`

	// Resources specifies how the requests of pods become requests for quota.
	// +optional
	Resources *Resources `json:"resources,omitempty"`

	// FeatureGates turns features on or off by name. A gate that
	// --feature-gates names too must have the same value there.
	// +optional
	FeatureGates map[string]bool `json:"featureGates,omitempty"`

	// ObjectRetentionPolicies deletes objects that are no longer needed.
	// Default: everything is kept.
	// +optional
	ObjectRetentionPolicies *ObjectRetentionPolicies `json:"objectRetentionPolicies,omitempty"`

	// LocalQueues says which LocalQueues the manager makes by itself. Not in
	// upstream's file. Default: none.
	// +optional
	LocalQueues *LocalQueues `json:"localQueues,omitempty"`

	// FailureRecovery configures the deletion of pods that hang on unreachable
	// nodes, behind the feature gate FailureRecoveryPolicy. Not in upstream's
	// file.
	// +optional
	FailureRecovery *FailureRecovery `json:"failureRecovery,omitempty"`

	// Preemption configures which Workloads are preempted. Not in upstream's
	// file.
	// +optional
	Preemption *Preemption `json:"preemption,omitempty"`

	// Scheduling configures how Workloads are admitted. Not in upstream's
	// file.
	// +optional
	Scheduling *Scheduling `json:"scheduling,omitempty"`

	// VisibilityServer is the listener of the aggregated visibility API.
	// +optional
	VisibilityServer *VisibilityServer `json:"visibilityServer,omitempty"`

	// JobSet configures the controller of JobSets. Not in upstream's file.
	// +optional
	JobSet *JobSet `json:"jobSet,omitempty"`

	// Trainer configures the controller of TrainJobs. Not in upstream's
	// file.
	// +optional
	Trainer *Trainer `json:"trainer,omitempty"`
}

// Scheduling configures how Workloads are admitted.
type Scheduling struct {
	// Backfill is what the annotation berth.dev/backfill is for one
	// ClusterQueue, for all that do not have it: easy reserves a start for
	// the first blocked Workload of each, conservative for the first 16, and
	// others start before those only if they do not move them.
	// ClusterQueues with admission checks, admission fair sharing or
	// concurrent admission are left out. Default: none.
	// +optional
	Backfill string `json:"backfill,omitempty"`
}

// Preemption configures which Workloads are preempted.
type Preemption struct {
	// MaxMinRunTime is the longest time that a job may ask to run before it
	// is preempted, by the label or annotation berth.dev/min-run-seconds. A
	// job that asks for more gets this. 0 ignores what jobs ask for.
	// Default: 0s.
	// +optional
	MaxMinRunTime *metav1.Duration `json:"maxMinRunTime,omitempty"`
}

// FailureRecovery configures the deletion of pods that hang on unreachable
// nodes. (spec: 20 §4.19)
type FailureRecovery struct {
	// Delay is how long after the end of its grace period such a pod is
	// deleted by force. 0 is at once. Default: 1m.
	// +optional
	Delay *metav1.Duration `json:"delay,omitempty"`
}

// InternalCertManagement specifies whether the manager makes and renews the
// certificates of its webhooks itself. (spec: 70 §2.1.4)
type InternalCertManagement struct {
	// Enable: true makes the manager issue and rotate them; false leaves it
	// to somebody else, such as cert-manager, who puts tls.crt and tls.key
	// into webhook.certDir. Default: true.
	// +optional
	Enable *bool `json:"enable,omitempty"`

	// WebhookServiceName is the Service the certificate is made out for, a
	// DNS-1035 label. Default, when enabled: kueue-webhook-service.
	// +optional
	WebhookServiceName *string `json:"webhookServiceName,omitempty"`

	// WebhookSecretName is the Secret that shares the certificate among
	// replicas, a DNS-1123 subdomain. Default, when enabled:
	// kueue-webhook-server-cert.
	// +optional
	WebhookSecretName *string `json:"webhookSecretName,omitempty"`
}

// ClientConnection is the rate limit of the manager's API client. One bucket
// is shared by all types. (spec: 70 §2.1.3)
type ClientConnection struct {
	// QPS is the number of requests a second that are sustained. Negative
	// means no limit on the client's side; 0 means the default: 300.
	// +optional
	QPS *float32 `json:"qps,omitempty"`

	// Burst is the number of requests that may be made at once after a
	// pause; 0 means the default: 500.
	// +optional
	Burst *int32 `json:"burst,omitempty"`
}

// Integrations lists the job kinds the manager deals with. (spec: 70 §2.1.6)
type Integrations struct {
	// Frameworks are the job kinds to manage, by the names of spec 30 §2.2.
	// A kind whose CRD is absent is taken up when the CRD appears.
	// Default: [batch/job].
	// +optional
	Frameworks []string `json:"frameworks,omitzero"`

	// ExternalFrameworks are kinds that another controller integrates, each
	// as Kind.version.group (for example PipelineRun.v1.tekton.dev). They
	// are known as owners of jobs and are not reconciled here.
	// Default: none. (spec: 30 §4.13)
	// +optional
	ExternalFrameworks []string `json:"externalFrameworks,omitempty"`

	// LabelKeysToCopy are the labels of a job that its Workload gets when it
	// is created. Later changes are not copied. Default: none.
	// +optional
	LabelKeysToCopy []string `json:"labelKeysToCopy,omitempty"`

	// DeclaredKinds are job kinds without a built-in integration, described
	// by CEL expressions: they are queued, started and stopped as the
	// built-in ones are. Default: none. (spec: 30 §4.13)
	// +optional
	DeclaredKinds []DeclaredKind `json:"declaredKinds,omitempty"`

	// VerifyOwners has an object run with the Workload of its controller owner
	// only if the controller of that kind can have made it: kinds, names,
	// counts and requests are compared. Any other object with an owner is a
	// job of its own. false trusts every owner reference, as upstream.
	// Default: true.
	// +optional
	VerifyOwners *bool `json:"verifyOwners,omitempty"`

	// ExternalChildren names the kinds of objects that the controllers of
	// externalFrameworks make. A kind that is not in the list makes objects
	// of any kind. Berth has it beyond upstream.
	// +optional
	ExternalChildren []ExternalChildren `json:"externalChildren,omitempty"`

	// HonourUserSuspend keeps an admitted job stopped that a user suspends:
	// it holds no quota until a user resumes it. Berth has it
	// beyond upstream, where such a job is started again. Default: false.
	// (spec: 30 §6)
	// +optional
	HonourUserSuspend bool `json:"honourUserSuspend,omitempty"`

	// MaxChildren is how many objects may be made for one new job: Jobs of a
	// JobSet, pods of a TrainJob and of any other job in a queue (of a
	// LeaderWorkerSet: replicas times size). A larger one is refused; one that exists may shrink, and
	// not grow. Berth has it beyond upstream. Default: 100000.
	// +optional
	MaxChildren int32 `json:"maxChildren,omitempty"`

	// Spark is about SparkApplications. Berth has it beyond upstream.
	// +optional
	Spark *SparkIntegration `json:"spark,omitempty"`

	// RayService is about RayServices. Berth has it beyond upstream.
	// +optional
	RayService *RayServiceIntegration `json:"rayService,omitempty"`
}

// ExternalChildren are the kinds of objects that the controller of an external kind makes.
type ExternalChildren struct {
	// Name is one of externalFrameworks.
	Name string `json:"name"`

	// Owns are kinds as Kind.version.group, such as Job.v1.batch, or Pod.v1.
	Owns []string `json:"owns"`
}

// RayServiceIntegration is about RayServices.
type RayServiceIntegration struct {
	// UpgradeHold is how the new cluster of an elastic RayService waits for
	// quota beside the one that serves: ChildSuspended holds the cluster,
	// GatedPods lets it be made at once and holds its pods. Default:
	// ChildSuspended. (spec: 30 §4.10.3)
	// +optional
	UpgradeHold RayServiceUpgradeHold `json:"upgradeHold,omitempty"`
}

// RayServiceUpgradeHold is a way to hold a cluster.
type RayServiceUpgradeHold string

// The ways.
const (
	ChildSuspended RayServiceUpgradeHold = "ChildSuspended"
	GatedPods      RayServiceUpgradeHold = "GatedPods"
)

// SparkIntegration is about SparkApplications.
type SparkIntegration struct {
	// ImplicitMemoryOverhead counts the memory that Spark adds to a role
	// without memoryOverhead: a share of its memory, at least 384Mi.
	// Default: false. (spec: 30 §4.9)
	// +optional
	ImplicitMemoryOverhead bool `json:"implicitMemoryOverhead,omitempty"`
}

// ObjectRetentionPolicies specifies how long objects are kept. (spec: 70 §2.1.10)
type ObjectRetentionPolicies struct {
	// Workloads is the policy for Workloads and their jobs.
	// +optional
	Workloads *WorkloadRetentionPolicy `json:"workloads,omitempty"`
}

// WorkloadRetentionPolicy says when finished and deactivated Workloads go.
type WorkloadRetentionPolicy struct {
	// AfterFinished deletes a Workload (its job stays) this long after it
	// finished. 0s deletes at once. Default: kept for ever.
	// +optional
	AfterFinished *metav1.Duration `json:"afterFinished,omitempty"`

	// AfterDeactivatedByKueue deletes the *job* this long after the eviction
	// of a Workload that the manager, not a user, deactivated. 0s deletes at
	// once. Default: kept for ever. Destructive.
	// +optional
	AfterDeactivatedByKueue *metav1.Duration `json:"afterDeactivatedByKueue,omitempty"`
}

// LocalQueues says which LocalQueues the manager makes by itself.
type LocalQueues struct {
	// Generate makes a LocalQueue in every namespace that
	// managedJobsNamespaceSelector and the namespaceSelector of a
	// ClusterQueue match, and removes it when they no longer match: Default names it
	// "default", which jobs without a queue name use, AsClusterQueue
	// as the ClusterQueue. None makes and removes nothing. Default: None.
	// (spec: 70 §4.11)
	// +optional
	Generate LocalQueueGeneration `json:"generate,omitempty"`
}

// LocalQueueGeneration specifies how LocalQueues are called that the manager makes.
type LocalQueueGeneration string

// The ways.
const (
	GenerateNone           LocalQueueGeneration = "None"
	GenerateDefault        LocalQueueGeneration = "Default"
	GenerateAsClusterQueue LocalQueueGeneration = "AsClusterQueue"
)

// VisibilityServer is the listener of the visibility API. (spec: 70 §2.1.10)
type VisibilityServer struct {
	// BindAddress is the IP address to listen on. Default: all addresses.
	// +optional
	BindAddress *string `json:"bindAddress,omitempty"`

	// BindPort is the port to listen on, 1 to 65535. Default: 8082.
	// +optional
	BindPort *int32 `json:"bindPort,omitempty"`
}

// JobSet configures the controller of JobSets. What JobSet's own kind of configuration says, in another document of the
// file, comes here too. (spec: 60 §2.2, §6.1)
type JobSet struct {
	// ClientConnection is the limit of requests about JobSets, apart from
	// all others. Default: 500 a second, bursts of 500.
	// +optional
	ClientConnection *ClientConnection `json:"clientConnection,omitempty"`

	// LeaderElection is about the Lease that the upstream controller of
	// JobSets holds while it works. The manager holds it too, so that never
	// both act on a cluster; leaderElect: false does without.
	// Default: 6d4f6a47.jobset.x-k8s.io in the namespace jobset-system, 15s,
	// 10s, 2s.
	// +optional
	LeaderElection *LeaderElection `json:"leaderElection,omitempty"`

	// CreateChildrenOnAdmission makes no Jobs and no Service for a JobSet
	// that is suspended and never ran, so that a waiting one costs a single
	// object. Its counters of suspended Jobs are 0 meanwhile. Default: false.
	// +optional
	CreateChildrenOnAdmission bool `json:"createChildrenOnAdmission,omitempty"`

	// ActOnFailingJobs applies the failure policy to a Job as soon as it is
	// failing (its condition FailureTarget), not only when all its pods have
	// ended, so that a restart does not wait for their grace period first.
	// Default: false. (spec: 60 §6.2 #979)
	// +optional
	ActOnFailingJobs bool `json:"actOnFailingJobs,omitempty"`
}
