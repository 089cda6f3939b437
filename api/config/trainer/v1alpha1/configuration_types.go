package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
)

// Kind is the only kind of this group.
const Kind = "Configuration"

// GroupVersion is what a configuration file names in its apiVersion.
var GroupVersion = schema.GroupVersion{Group: "config.trainer.kubeflow.org", Version: "v1alpha1"}

// Configuration of the manager of TrainJobs.
type Configuration struct {
	metav1.TypeMeta `json:",inline"`

	// Webhook is the listener that the API server calls.
	// +optional
	Webhook Webhook `json:"webhook,omitempty,omitzero"`

	// Metrics is the Prometheus endpoint.
	// +optional
	Metrics Metrics `json:"metrics,omitempty,omitzero"`

	// Health is the listener of the probes.
	// +optional
	Health configv1beta2.Health `json:"health,omitempty,omitzero"`

	// LeaderElection picks the one replica that acts. Default: off.
	// +optional
	LeaderElection *configv1beta2.LeaderElection `json:"leaderElection,omitempty"`

	// Controller tunes the reconcilers.
	// +optional
	Controller *Controller `json:"controller,omitempty"`

	// CertManagement selects the issuer of the certificates. Defaults:
	// kubeflow-trainer-controller-manager and kubeflow-trainer-webhook-cert.
	// +optional
	CertManagement *configv1beta2.InternalCertManagement `json:"certManagement,omitempty"`

	// ClientConnection limits requests to the API server. Default: 50 a
	// second, and 100 at once.
	// +optional
	ClientConnection *configv1beta2.ClientConnection `json:"clientConnection,omitempty"`

	// StatusServer takes the progress that training code reports.
	// +optional
	StatusServer *configv1beta2.TrainerStatusServer `json:"statusServer,omitempty"`

	// TLS restricts what the listeners negotiate.
	// +optional
	TLS *TLS `json:"tls,omitempty"`

	// FeatureGates turn features on and off.
	// +optional
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
}

// Webhook is the HTTPS listener of the webhooks.
type Webhook struct {
	// Port to listen on, 1 to 65535. Default: 9443.
	// +optional
	Port *int32 `json:"port,omitempty"`

	// Host to listen on. Default: all addresses.
	// +optional
	Host string `json:"host,omitempty"`
}

// Metrics configures the metrics endpoint and access to it.
type Metrics struct {
	// BindAddress is the host:port; "0" turns it off. Default: ":8443".
	// +optional
	BindAddress string `json:"bindAddress,omitempty"`

	// SecureServing is HTTPS. Default: true.
	// +optional
	SecureServing *bool `json:"secureServing,omitempty"`

	// Auth restricts metrics to clients that RBAC permits to read them.
	// +optional
	Auth *MetricsAuth `json:"auth,omitempty"`
}

// MetricsAuth is access control for metrics.
type MetricsAuth struct {
	// Enabled: a bearer token is asked for that may get /metrics.
	// Default: false.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// Controller tunes the reconcilers.
type Controller struct {
	// GroupKindConcurrency is how many objects of a kind are reconciled at
	// once, by Kind.group. At least 1.
	// +optional
	GroupKindConcurrency map[string]int `json:"groupKindConcurrency,omitempty"`
}

// TLS restricts what the listeners negotiate. Unknown names are
// dropped, with a warning.
type TLS struct {
	// MinVersion is the oldest version spoken, such as VersionTLS12.
	// Default: the Go library's.
	// +optional
	MinVersion string `json:"minVersion,omitempty"`

	// CipherSuites are the suites offered, by their Go names.
	// Default: the Go library's.
	// +optional
	CipherSuites []string `json:"cipherSuites,omitempty"`

	// NextProtos are the application protocols offered. Default: h2 and http/1.1.
	// +optional
	NextProtos []string `json:"nextProtos,omitempty"`
}
