package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The dispatchers that are built in. Any other name belongs to a controller
// outside the manager.
const (
	DispatcherAllAtOnce   = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
	DispatcherIncremental = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
)

// MultiKueue configures the dispatch of jobs to worker clusters.
// (spec: 70 §2.1.7, 40 §2.5)
type MultiKueue struct {
	// GCInterval is the time between two searches for objects on the workers
	// that have no owner any more. 0s means never. Default: 1m.
	// +optional
	GCInterval *metav1.Duration `json:"gcInterval,omitempty"`

	// Origin is the value of the label kueue.x-k8s.io/multikueue-origin on
	// everything made on a worker. Default, also when empty: multikueue.
	// +optional
	Origin *string `json:"origin,omitempty"`

	// WorkerLostTimeout is how long a Workload stays with a worker that
	// cannot be reached. Default: 15m.
	// +optional
	WorkerLostTimeout *metav1.Duration `json:"workerLostTimeout,omitempty"`

	// DispatcherName selects the dispatcher that picks the workers: one of the built-in ones,
	// or the name of an outside controller in the form domain/name, at most
	// 63 characters. Default: kueue.x-k8s.io/multikueue-dispatcher-all-at-once.
	// +optional
	DispatcherName *string `json:"dispatcherName,omitempty"`

	// IncrementalDispatcherConfig tunes the incremental dispatcher; only
	// with that dispatcher.
	// +optional
	IncrementalDispatcherConfig *IncrementalDispatcherConfig `json:"incrementalDispatcherConfig,omitempty"`

	// ExternalFrameworks are job kinds without a built-in integration that
	// are copied to workers by the generic adapter. Needs the feature gate
	// MultiKueueAdaptersForCustomJobs. Default: none. (spec: 40 §4.12)
	// +optional
	ExternalFrameworks []MultiKueueExternalFramework `json:"externalFrameworks,omitempty"`

	// PreviousOrigins are values that origin had before. What bears them on
	// the workers, and is this manager's, is still ours. Default: none.
	// +optional
	PreviousOrigins []string `json:"previousOrigins,omitempty"`

	// RemoteRetentionAfterFinish keeps a job that has finished on its worker
	// for a while, with its pods and their logs. Its Workload there holds no
	// quota. Default: 0s.
	// +optional
	RemoteRetentionAfterFinish *metav1.Duration `json:"remoteRetentionAfterFinish,omitempty"`

	// SingleClusterPreemptionTimeout is how long one worker may preempt
	// before another may. Needs the feature gate
	// MultiKueueOrchestratedPreemption. Default: 5m.
	// +optional
	SingleClusterPreemptionTimeout *metav1.Duration `json:"singleClusterPreemptionTimeout,omitempty"`

	// AllowHTTP accepts kubeconfigs and access providers of workers whose
	// server or proxy is not reached by TLS. Who reads the connection then
	// has the credentials. Default: false.
	// +optional
	AllowHTTP *bool `json:"allowHTTP,omitempty"`

	// ClusterProfile specifies how workers known by a ClusterProfile are reached.
	// +optional
	ClusterProfile *ClusterProfile `json:"clusterProfile,omitempty"`
}

// IncrementalDispatcherConfig tunes the incremental dispatcher.
type IncrementalDispatcherConfig struct {
	// StepSize is how many workers are added in each round, at least 1.
	// Default: 3.
	// +optional
	StepSize *int32 `json:"stepSize,omitempty"`

	// RoundTimeout is how long a round is, above 0. Default: 5m.
	// +optional
	RoundTimeout *metav1.Duration `json:"roundTimeout,omitempty"`
}

// ClusterProfile lists the credential plugins for ClusterProfiles.
type ClusterProfile struct {
	// AccessProviders are the plugins, found by the name that a
	// ClusterProfile gives. Default: none.
	// +optional
	AccessProviders []ClusterProfileProvider `json:"accessProviders,omitempty"`

	// CredentialsProviders is the old name of accessProviders. Not together
	// with it.
	//
	// Deprecated: use accessProviders.
	// +optional
	CredentialsProviders []ClusterProfileProvider `json:"credentialsProviders,omitempty"`
}

// ClusterProfileProvider is one credential plugin.
type ClusterProfileProvider struct {
	// Name by which ClusterProfiles refer to it.
	Name string `json:"name"`

	// ExecConfig specifies how the plugin is called.
	ExecConfig ExecConfig `json:"execConfig"`
}

// ExecInteractiveMode specifies whether a plugin gets standard input.
type ExecInteractiveMode string

// The modes of standard input of a plugin.
const (
	NeverInteractive       ExecInteractiveMode = "Never"
	IfAvailableInteractive ExecInteractiveMode = "IfAvailable"
	AlwaysInteractive      ExecInteractiveMode = "Always"
)

// ExecConfig specifies how a credential plugin is called. It has the fields of the
// exec section of a kubeconfig user.
type ExecConfig struct {
	// Command to run.
	Command string `json:"command"`

	// Args of the command. Default: none.
	// +optional
	Args []string `json:"args,omitempty"`

	// Env is added to the environment of the command. Default: none.
	// +optional
	Env []ExecEnvVar `json:"env,omitempty"`

	// APIVersion of the ExecCredential that the plugin prints.
	APIVersion string `json:"apiVersion"`

	// InstallHint is shown when the command is not found.
	// +optional
	InstallHint string `json:"installHint,omitempty"`

	// ProvideClusterInfo passes what is known of the cluster to the plugin.
	// Default: false.
	// +optional
	ProvideClusterInfo bool `json:"provideClusterInfo,omitempty"`

	// InteractiveMode: Never, IfAvailable or Always. Required.
	InteractiveMode ExecInteractiveMode `json:"interactiveMode"`
}

// ExecEnvVar is one environment variable of a plugin.
type ExecEnvVar struct {
	// Name of the variable; not empty.
	Name string `json:"name"`
	// Value of the variable.
	Value string `json:"value"`
}
