package v1beta2

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Manager holds the settings of the manager process. (spec: 70 §2.1.1-2.1.3)
type Manager struct {
	// Webhook is the listener that the API server calls.
	// +optional
	Webhook Webhook `json:"webhook,omitempty,omitzero"`

	// LeaderElection picks the one replica that schedules.
	// +optional
	LeaderElection *LeaderElection `json:"leaderElection,omitempty"`

	// Metrics configures the Prometheus endpoint and its series.
	// +optional
	Metrics Metrics `json:"metrics,omitempty,omitzero"`

	// Health is the listener of the probes.
	// +optional
	Health Health `json:"health,omitempty,omitzero"`

	// PprofBindAddress serves Go profiles over plain HTTP at this host:port.
	// Default: off.
	// +optional
	PprofBindAddress string `json:"pprofBindAddress,omitempty"`

	// Controller tunes the reconcilers.
	// +optional
	Controller *Controller `json:"controller,omitempty"`

	// TLS restricts the webhook, metrics and visibility listeners.
	// +optional
	TLS *TLS `json:"tls,omitempty"`
}

// Webhook is the HTTPS listener of the admission and conversion webhooks.
type Webhook struct {
	// Port to listen on, 1 to 65535; 0 means the default: 9443.
	// +optional
	Port *int32 `json:"port,omitempty"`

	// Host to listen on. Default: all addresses.
	// +optional
	Host string `json:"host,omitempty"`

	// CertDir is the folder with tls.crt and tls.key.
	// Default: /tmp/k8s-webhook-server/serving-certs.
	// +optional
	CertDir string `json:"certDir,omitempty"`

	// ClientCAFile has the authorities, in PEM, of which an admission review has to come with a client certificate. The API
	// server presents one only if its AdmissionConfiguration says so. Berth's own field. Default: reviews of anybody are answered.
	// +optional
	ClientCAFile string `json:"clientCAFile,omitempty"`

	// ClientNames are the names of which a client certificate has to have one, as its common name or a DNS name. Berth's own
	// field. Default: all that the authorities signed.
	// +optional
	// +listType=atomic
	ClientNames []string `json:"clientNames,omitempty"`
}

// LeaderElection has the fields of the leader election settings that
// Kubernetes' own components share.
type LeaderElection struct {
	// LeaderElect: false runs without a lease, for a single replica only.
	// Default: true.
	// +optional
	LeaderElect *bool `json:"leaderElect,omitempty"`

	// LeaseDuration is how long the others wait before they take over a
	// lease that is no longer renewed. Default: 15s.
	// +optional
	LeaseDuration metav1.Duration `json:"leaseDuration,omitempty,omitzero"`

	// RenewDeadline is how long the leader tries to renew before it gives
	// up; less than leaseDuration. Default: 10s.
	// +optional
	RenewDeadline metav1.Duration `json:"renewDeadline,omitempty,omitzero"`

	// RetryPeriod is the pause between tries; less than renewDeadline by a
	// factor of at least 1.2. Default: 2s.
	// +optional
	RetryPeriod metav1.Duration `json:"retryPeriod,omitempty,omitzero"`

	// ResourceLock is the kind of lock: only "leases". Default: leases.
	// +optional
	ResourceLock string `json:"resourceLock,omitempty"`

	// ResourceName is the name of the lease. The default is the name that
	// the upstream manager takes too, so that never both act on a cluster:
	// c1f6bfd2.kueue.x-k8s.io.
	// +optional
	ResourceName string `json:"resourceName,omitempty"`

	// ResourceNamespace is where the lease lives. Default: namespace.
	// +optional
	ResourceNamespace string `json:"resourceNamespace,omitempty"`
}

// Metrics specifies what is exported and where. (spec: 70 §2.1.2)
type Metrics struct {
	// BindAddress is the host:port of the HTTPS endpoint; "0" turns it off.
	// Callers need a bearer token that may get /metrics. Default: ":8443".
	// +optional
	BindAddress string `json:"bindAddress,omitempty"`

	// EnableClusterQueueResources exports a series for each ClusterQueue,
	// flavor and resource. Default: false.
	// +optional
	EnableClusterQueueResources bool `json:"enableClusterQueueResources,omitempty"`

	// LocalQueueMetrics exports series for each LocalQueue. Default: on for
	// all of them, but a struct that is present without enable means off.
	// +optional
	LocalQueueMetrics *LocalQueueMetrics `json:"localQueueMetrics,omitempty"`

	// CustomLabels adds labels of objects to their series. Needs the feature
	// gate CustomMetricLabels. At most 20, 6 for a source kind, 2 for
	// Workload. Default: none.
	// +optional
	CustomLabels []CustomMetricLabel `json:"customLabels,omitempty"`
}

// LocalQueueMetrics says which LocalQueues have series of their own.
type LocalQueueMetrics struct {
	// Enable turns the series on. Default within this struct: false.
	// +optional
	Enable bool `json:"enable,omitempty"`

	// LocalQueueSelector limits the series to the LocalQueues it matches.
	// Default: all.
	// +optional
	LocalQueueSelector *metav1.LabelSelector `json:"localQueueSelector,omitempty"`
}

// MetricSourceKind is the kind of object a custom metric label is read from.
type MetricSourceKind string

// The kinds that custom metric labels can come from.
const (
	MetricSourceClusterQueue MetricSourceKind = "ClusterQueue"
	MetricSourceLocalQueue   MetricSourceKind = "LocalQueue"
	MetricSourceCohort       MetricSourceKind = "Cohort"
	MetricSourceWorkload     MetricSourceKind = "Workload"
)

// CustomMetricLabel adds the label custom_<name> to the series of one kind.
type CustomMetricLabel struct {
	// Name of the metric label without its prefix: a letter, then letters,
	// digits and underscores. Unique.
	Name string `json:"name"`

	// SourceLabelKey is the label to read the value from. Not together with
	// sourceAnnotationKey. Default, when neither is given: name.
	// +optional
	SourceLabelKey string `json:"sourceLabelKey,omitempty"`

	// SourceAnnotationKey is the annotation to read the value from.
	// +optional
	SourceAnnotationKey string `json:"sourceAnnotationKey,omitempty"`

	// SourceKind is the kind of object that carries it.
	// Default: ClusterQueue.
	// +optional
	SourceKind MetricSourceKind `json:"sourceKind,omitempty"`

	// TrackedValues is the closed set of values that are exported as they
	// are; any other becomes kueue.x-k8s.io/_UNTRACKED_VALUE_. 1 to 12 for
	// Workload, at most 16 for the others. Default: every value.
	// +optional
	TrackedValues []string `json:"trackedValues,omitempty"`
}

// Health is the plain HTTP listener of the probes.
type Health struct {
	// HealthProbeBindAddress is the host:port; "0" turns the probes off.
	// Default: ":8081".
	// +optional
	HealthProbeBindAddress string `json:"healthProbeBindAddress,omitempty"`

	// ReadinessEndpointName is the path of the readiness probe, with or
	// without the leading slash. Default: /readyz.
	// +optional
	ReadinessEndpointName string `json:"readinessEndpointName,omitempty"`

	// LivenessEndpointName is the path of the liveness probe, with or
	// without the leading slash. Default: /healthz.
	// +optional
	LivenessEndpointName string `json:"livenessEndpointName,omitempty"`
}

// Controller tunes the reconcilers.
type Controller struct {
	// GroupKindConcurrency is how many objects of a kind are reconciled at
	// once, by Kind.group (Job.batch; Pod, as its group is empty). At least
	// 1. Default: Job.batch, Pod, LocalQueue and ClusterQueue 5, Workload
	// and JobSet 10, TrainJob 5, any other kind 1.
	// +optional
	GroupKindConcurrency map[string]int `json:"groupKindConcurrency,omitempty"`

	// CacheSyncTimeout is how long a controller waits for its caches to fill
	// before the process gives up. Default: 2m.
	// +optional
	CacheSyncTimeout *Nanoseconds `json:"cacheSyncTimeout,omitempty"`
}

// TLS restricts what the listeners negotiate.
type TLS struct {
	// MinVersion is the oldest version spoken: VersionTLS12 or VersionTLS13.
	// Default: VersionTLS12.
	// +optional
	MinVersion string `json:"minVersion,omitempty"`

	// CipherSuites are the suites offered, by their Go names. Not with
	// VersionTLS13, whose suites cannot be chosen. Default: the Go library's.
	// +optional
	CipherSuites []string `json:"cipherSuites,omitempty"`

	// CurvePreferences are the key exchanges offered, by their IANA numbers
	// (29 is X25519). Default: the Go library's.
	// +optional
	CurvePreferences []int32 `json:"curvePreferences,omitempty"`
}

// Nanoseconds is a duration that old files write as a bare number of
// nanoseconds. It reads that and "2m" alike, and is written as text.
type Nanoseconds struct {
	time.Duration `json:"-"`
}

// UnmarshalJSON reads a whole number of nanoseconds or a duration text.
func (n *Nanoseconds) UnmarshalJSON(b []byte) error {
	var count int64
	if err := json.Unmarshal(b, &count); err == nil {
		n.Duration = time.Duration(count)
		return nil
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("want a duration such as \"2m\" or a whole number of nanoseconds, got %s", b)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("want a duration such as \"2m\" or a whole number of nanoseconds, got %q", text)
	}
	n.Duration = d
	return nil
}

// MarshalJSON writes the duration as text.
func (n Nanoseconds) MarshalJSON() ([]byte, error) { return json.Marshal(n.String()) }
