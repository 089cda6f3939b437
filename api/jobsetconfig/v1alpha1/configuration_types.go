// Package v1alpha1 holds the configuration file of JobSet's own controller: group config.jobset.x-k8s.io, kind Configuration
// (spec: 60 §2.2, 70 §2.2). It is read as a document of the manager's file, so that existing files stay valid. The API
// server never serves it.
//
// +kubebuilder:skip
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
)

// Kind is the only kind of this group.
const Kind = "Configuration"

// GroupVersion is what a document names in its apiVersion.
var GroupVersion = schema.GroupVersion{Group: "config.jobset.x-k8s.io", Version: "v1alpha1"}

// Configuration of the controller of JobSets. It uses the manager's listeners and certificates, which the document of
// config.kueue.x-k8s.io describes; values here may only repeat them.
type Configuration struct {
	metav1.TypeMeta `json:",inline"`

	// Webhook is the listener that the API server calls. Default: port 9443, all addresses,
	// /tmp/k8s-webhook-server/serving-certs.
	// +optional
	Webhook configv1beta2.Webhook `json:"webhook,omitempty,omitzero"`

	// Metrics is the Prometheus endpoint.
	// +optional
	Metrics Metrics `json:"metrics,omitempty,omitzero"`

	// Health is the listener of the probes. Default: :8081, readyz, healthz.
	// +optional
	Health configv1beta2.Health `json:"health,omitempty,omitzero"`

	// LeaderElection is about the Lease that the upstream controller holds while it works. The manager holds it too, so that
	// never both act. Default: on, 6d4f6a47.jobset.x-k8s.io in the namespace jobset-system, 15s, 10s, 2s.
	// +optional
	LeaderElection *configv1beta2.LeaderElection `json:"leaderElection,omitempty"`

	// InternalCertManagement selects the issuer of the certificates. Default: the manager; jobset-webhook-service,
	// jobset-webhook-server-cert.
	// +optional
	InternalCertManagement *configv1beta2.InternalCertManagement `json:"internalCertManagement,omitempty"`

	// ClientConnection is the limit of requests about JobSets, apart from all others. Default: 500 a second, bursts of 500.
	// +optional
	ClientConnection *configv1beta2.ClientConnection `json:"clientConnection,omitempty"`

	// TLS restricts the listeners. Default: TLS 1.2 and the Go library's suites.
	// +optional
	TLS *TLS `json:"tls,omitempty"`

	// FeatureGates turn features of JobSets on and off: InPlaceRestart, RestartJob, ElasticJobSet.
	// +optional
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
}

// Metrics is the Prometheus endpoint.
type Metrics struct {
	// BindAddress is the host:port of the HTTPS endpoint. Default: ":8443".
	// +optional
	BindAddress string `json:"bindAddress,omitempty"`

	// CertDir is the folder with its certificate. Default: /tmp/k8s-metrics-server/serving-certs.
	// +optional
	CertDir string `json:"certDir,omitempty"`
}

// TLS restricts what the listeners negotiate.
type TLS struct {
	// MinVersion is the oldest version spoken: VersionTLS12 or VersionTLS13. Default: VersionTLS12.
	// +optional
	MinVersion string `json:"minVersion,omitempty"`

	// CipherSuites are the suites offered, by their Go names. Not with VersionTLS13. Default: the Go library's.
	// +optional
	CipherSuites []string `json:"cipherSuites,omitempty"`
}
