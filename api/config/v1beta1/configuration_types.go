package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
)

// GroupVersion is what an old configuration file names in its apiVersion.
var GroupVersion = schema.GroupVersion{Group: configv1beta2.GroupVersion.Group, Version: "v1beta1"}

// Configuration is the whole configuration file. Fields without a comment are the same as in v1beta2.
//
// +kubebuilder:object:root=true
type Configuration struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	Namespace *string `json:"namespace,omitempty"`
	// +optional
	Webhook configv1beta2.Webhook `json:"webhook,omitempty,omitzero"`
	// +optional
	LeaderElection *configv1beta2.LeaderElection `json:"leaderElection,omitempty"`

	// Metrics configures the Prometheus endpoint and its series. Custom labels come from ClusterQueues only.
	// +optional
	Metrics Metrics `json:"metrics,omitempty,omitzero"`

	// +optional
	Health configv1beta2.Health `json:"health,omitempty,omitzero"`
	// +optional
	PprofBindAddress string `json:"pprofBindAddress,omitempty"`
	// +optional
	Controller *configv1beta2.Controller `json:"controller,omitempty"`
	// +optional
	TLS *configv1beta2.TLS `json:"tls,omitempty"`
	// +optional
	ManageJobsWithoutQueueName bool `json:"manageJobsWithoutQueueName,omitempty"`
	// +optional
	ManagedJobsNamespaceSelector *metav1.LabelSelector `json:"managedJobsNamespaceSelector,omitempty"`
	// +optional
	InternalCertManagement *configv1beta2.InternalCertManagement `json:"internalCertManagement,omitempty"`

	// WaitForPodsReady evicts a Workload whose pods do not become ready in time. Default: off.
	// +optional
	WaitForPodsReady *WaitForPodsReady `json:"waitForPodsReady,omitempty"`

	// +optional
	ClientConnection *configv1beta2.ClientConnection `json:"clientConnection,omitempty"`

	// Integrations lists the job kinds to manage.
	// +optional
	Integrations *Integrations `json:"integrations,omitempty"`

	// QueueVisibility has no effect: the visibility API lists pending Workloads.
	// +optional
	QueueVisibility *QueueVisibility `json:"queueVisibility,omitempty"`

	// MultiKueue configures the dispatch of jobs to worker clusters.
	// +optional
	MultiKueue *MultiKueue `json:"multiKueue,omitempty"`

	// FairSharing configures fair sharing of the unused quota of a cohort. Default: off.
	// +optional
	FairSharing *FairSharing `json:"fairSharing,omitempty"`

	// +optional
	AdmissionFairSharing *configv1beta2.AdmissionFairSharing `json:"admissionFairSharing,omitempty"`

	// Resources specifies how the requests of pods become requests for quota.
	// +optional
	Resources *Resources `json:"resources,omitempty"`

	// +optional
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
	// +optional
	ObjectRetentionPolicies *configv1beta2.ObjectRetentionPolicies `json:"objectRetentionPolicies,omitempty"`
}

// Metrics specifies what is exported and where.
type Metrics struct {
	// +optional
	BindAddress string `json:"bindAddress,omitempty"`
	// +optional
	EnableClusterQueueResources bool `json:"enableClusterQueueResources,omitempty"`
	// +optional
	LocalQueueMetrics *configv1beta2.LocalQueueMetrics `json:"localQueueMetrics,omitempty"`

	// CustomLabels adds labels of ClusterQueues to their series.
	// +optional
	CustomLabels []CustomMetricLabel `json:"customLabels,omitempty"`
}

// CustomMetricLabel adds the label custom_<name> to the series of ClusterQueues.
type CustomMetricLabel struct {
	Name string `json:"name"`
	// +optional
	SourceLabelKey string `json:"sourceLabelKey,omitempty"`
	// +optional
	SourceAnnotationKey string `json:"sourceAnnotationKey,omitempty"`
}

// WaitForPodsReady evicts Workloads whose pods do not come up.
type WaitForPodsReady struct {
	// Enable turns it on. Default: false.
	// +optional
	Enable bool `json:"enable,omitempty"`

	// Timeout from admission until all pods are ready. 0s means the default: 5m.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// +optional
	RecoveryTimeout *metav1.Duration `json:"recoveryTimeout,omitempty"`

	// BlockAdmission admits one Workload at a time, the next when the pods of all admitted ones are ready. Default: true.
	// +optional
	BlockAdmission *bool `json:"blockAdmission,omitempty"`

	// +optional
	RequeuingStrategy *configv1beta2.RequeuingStrategy `json:"requeuingStrategy,omitempty"`
}

// Integrations lists the job kinds the manager deals with.
type Integrations struct {
	// +optional
	Frameworks []string `json:"frameworks,omitzero"`
	// +optional
	ExternalFrameworks []string `json:"externalFrameworks,omitempty"`

	// PodOptions have no effect: managedJobsNamespaceSelector says which namespaces are managed.
	// +optional
	PodOptions *PodIntegrationOptions `json:"podOptions,omitempty"`

	// +optional
	LabelKeysToCopy []string `json:"labelKeysToCopy,omitempty"`
}

// PodIntegrationOptions said which pods to manage.
type PodIntegrationOptions struct {
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
}

// QueueVisibility said how much of the pending Workloads a ClusterQueue shows.
type QueueVisibility struct {
	// +optional
	ClusterQueues *ClusterQueueVisibility `json:"clusterQueues,omitempty"`

	// UpdateIntervalSeconds was the time between two updates, in seconds.
	// +optional
	UpdateIntervalSeconds int32 `json:"updateIntervalSeconds,omitempty"`
}

// ClusterQueueVisibility said how many Workloads a ClusterQueue shows.
type ClusterQueueVisibility struct {
	// +optional
	MaxCount int32 `json:"maxCount,omitempty"`
}

// MultiKueue configures the dispatch of jobs to worker clusters.
type MultiKueue struct {
	// +optional
	GCInterval *metav1.Duration `json:"gcInterval,omitempty"`
	// +optional
	Origin *string `json:"origin,omitempty"`
	// +optional
	WorkerLostTimeout *metav1.Duration `json:"workerLostTimeout,omitempty"`
	// +optional
	DispatcherName *string `json:"dispatcherName,omitempty"`
	// +optional
	ExternalFrameworks []MultiKueueExternalFramework `json:"externalFrameworks,omitempty"`
}

// MultiKueueExternalFramework is a job kind for the generic adapter. What else there is to say of one takes v1beta2.
type MultiKueueExternalFramework struct {
	Name string `json:"name"`
}

// FairSharing configures fair sharing.
type FairSharing struct {
	// Enable turns it on. Default: false.
	// +optional
	Enable bool `json:"enable,omitempty"`

	// PreemptionStrategies are the tests, in the order they are tried. Default: both.
	// +optional
	PreemptionStrategies []configv1beta2.PreemptionStrategy `json:"preemptionStrategies,omitempty"`
}

// Resources specifies how the requests of pods become requests for quota.
type Resources struct {
	// +optional
	ExcludeResourcePrefixes []string `json:"excludeResourcePrefixes,omitempty"`
	// +optional
	Transformations []configv1beta2.ResourceTransformation `json:"transformations,omitempty"`

	// DeviceClassMappings give the quota names of the devices that resource claims ask for. Devices are counted.
	// +optional
	DeviceClassMappings []DeviceClassMapping `json:"deviceClassMappings,omitempty"`
}

// DeviceClassMapping makes devices of some DeviceClasses one quota resource.
type DeviceClassMapping struct {
	Name             corev1.ResourceName   `json:"name"`
	DeviceClassNames []corev1.ResourceName `json:"deviceClassNames"`
}
