package options

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	configtrainer "github.com/berth-project/berth/api/config/trainer/v1alpha1"
	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options/declare"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/options/training"
	"github.com/berth-project/berth/internal/options/transform"
)

// Options is the configuration of a manager, resolved: every default is filled
// in, every rule was checked, every text that stands for something else was
// parsed. A command line may replace fields before the manager is built;
// nothing changes them later.
type Options struct {
	// Namespace is where the manager lives.
	Namespace string
	// ManageJobsWithoutQueueName: take jobs that name no queue as well.
	ManageJobsWithoutQueueName bool
	// ManagedNamespaces matches the labels of the namespaces that may be
	// touched at all.
	ManagedNamespaces labels.Selector
	// ManagedNamespaceSelector is the same for webhook configurations.
	ManagedNamespaceSelector metav1.LabelSelector

	// Frameworks are the names of the enabled job kinds, as configured.
	// Without a configuration file they are all that this build has.
	Frameworks []string
	// LabelledOnly leaves pods, Deployments and StatefulSets that name no queue
	// out of the webhooks: there is no configuration file, and Kubernetes itself
	// makes these all the time.
	LabelledOnly bool
	// ExternalFrameworks are kinds that other controllers integrate.
	ExternalFrameworks []schema.GroupVersionKind
	// DeclaredKinds are described in the file itself.
	DeclaredKinds []*declare.Kind
	// VerifyOwners: an object follows its owner only if that can have made it. ExternalOwns are the kinds that external kinds own; any without an entry.
	VerifyOwners bool
	ExternalOwns map[schema.GroupVersionKind][]schema.GroupVersionKind
	// HonourUserSuspend: a user who suspends an admitted job is obeyed.
	HonourUserSuspend bool
	// MaxChildren is how many objects may be made for one new job.
	MaxChildren int32
	// LabelKeysToCopy go from a job to its Workload.
	LabelKeysToCopy []string
	// GenerateLocalQueues says which LocalQueues the manager makes by itself.
	GenerateLocalQueues configv1beta2.LocalQueueGeneration

	Client         Client
	Webhook        Webhook
	Certs          Certs
	LeaderElection LeaderElection
	Health         Health
	Metrics        Metrics
	TLS            TLS
	// PprofAddress is host:port; empty is off.
	PprofAddress string
	// VisibilityAddress is the host:port of the visibility API.
	VisibilityAddress string
	// Dashboard is set by the command line alone.
	Dashboard Dashboard
	// CacheSyncTimeout is how long controllers wait for their caches.
	CacheSyncTimeout time.Duration
	// GroupKindConcurrency is read by Concurrency.
	GroupKindConcurrency map[string]int

	Retention            Retention
	PodsReady            PodsReady
	FairSharing          FairSharing
	AdmissionFairSharing UsageSharing
	Resources            Resources
	MultiKueue           MultiKueue
	JobSet               JobSet
	Trainer              training.Options
	Gates                feature.Gates

	// Effective is the configuration with its defaults, for what is not
	// resolved above and for the log. It must not be changed.
	Effective *configv1beta2.Configuration
	// Warnings are sentences to log once at the start.
	Warnings []string

	// training is the same configuration as a file of the Trainer, if it came from one: some of its fields have no other name.
	training *configtrainer.Configuration

	notYet     []string
	inertGates []string
}

// Client is the rate limit towards the API server.
type Client struct {
	// QPS sustained; negative is no limit. Burst is the size of the bucket.
	QPS   float32
	Burst int
}

// Webhook is the HTTPS listener for the API server.
type Webhook struct {
	Port          int
	Host, CertDir string
	// ClientCAFile has the authorities of client certificates, "" asks for none; ClientNames are those that are allowed, nil all.
	ClientCAFile string
	ClientNames  []string
}

// Certs says who makes the certificates of the webhook.
type Certs struct {
	// Internal: the manager does, and shares them in the Secret.
	Internal        bool
	Service, Secret string // set when Internal
}

// LeaderElection is the lease that one of several replicas holds.
type LeaderElection struct {
	Enabled                                   bool
	Name, Namespace                           string
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// Health is the listener of the probes. The paths begin with a slash.
type Health struct {
	// Address is host:port; "0" is off.
	Address                     string
	ReadinessPath, LivenessPath string
}

// Metrics says what is exported.
type Metrics struct {
	// Address is host:port; "0" is off.
	Address string
	// Plain is without TLS, and Open without asking who reads. Only a file of
	// the Trainer can say so.
	Plain, Open bool
	// ClusterQueueResources: series for each flavor and resource.
	ClusterQueueResources bool
	// LocalQueues matches the LocalQueues with series of their own; it
	// matches none when they are off.
	LocalQueues  labels.Selector
	CustomLabels []configv1beta2.CustomMetricLabel
}

// WorkloadLabels are the keys of the labels and of the annotations that custom labels of the
// series of Workloads are read from.
func (m *Metrics) WorkloadLabels() (labelKeys, annotationKeys []string) {
	for i := range m.CustomLabels {
		l := &m.CustomLabels[i]
		if l.SourceKind != configv1beta2.MetricSourceWorkload {
			continue
		}
		if key, annotation := SourceKey(l); annotation {
			annotationKeys = append(annotationKeys, key)
		} else {
			labelKeys = append(labelKeys, key)
		}
	}
	return labelKeys, annotationKeys
}

// SourceKey is the key of the label, or of the annotation, that a custom label is read from.
// spec: 70 §2.1.2.
func SourceKey(l *configv1beta2.CustomMetricLabel) (key string, annotation bool) {
	if l.SourceAnnotationKey != "" {
		return l.SourceAnnotationKey, true
	}
	return cmp.Or(l.SourceLabelKey, l.Name), false
}

// Retention says how long objects stay; nil is for ever, 0 is not at all.
type Retention struct {
	Finished, Deactivated *time.Duration
}

// NoLimit is the BackoffLimit of Workloads that come back without end.
const NoLimit = -1

// PodsReady is what waitForPodsReady comes to.
type PodsReady struct {
	Enabled bool
	// Timeout until pods are ready; Recovery until they are so again, 0 for
	// no such limit.
	Timeout, Recovery time.Duration
	BlockAdmission    bool
	RequeueBy         configv1beta2.RequeuingTimestamp
	BackoffBase       time.Duration
	BackoffMax        time.Duration
	// BackoffLimit is how often a Workload comes back, or NoLimit.
	BackoffLimit int
}

// FairSharing is on when it has strategies.
type FairSharing struct {
	Enabled    bool
	Strategies []configv1beta2.PreemptionStrategy
}

// UsageSharing is what admissionFairSharing comes to: order by past usage.
type UsageSharing struct {
	Enabled                    bool
	HalfLife, SamplingInterval time.Duration
	// Weights of resources; one that is missing weighs 1.
	Weights map[corev1.ResourceName]float64
}

// Resources says how pod requests become quota requests.
type Resources struct {
	// IgnoreUndeclared: requests without quota do not block.
	IgnoreUndeclared    bool
	ExcludePrefixes     []string
	Transformations     []configv1beta2.ResourceTransformation
	DeviceClassMappings []configv1beta2.DeviceClassMapping
}

// MultiKueue is the section multiKueue.
type MultiKueue struct {
	GCInterval        time.Duration // 0 is off
	Origin            string
	WorkerLostTimeout time.Duration
	Dispatcher        string
	StepSize          int // of the incremental dispatcher
	// RoundTimeout is the length of its rounds.
	RoundTimeout time.Duration
	// ExternalFrameworks are kinds for the generic adapter.
	ExternalFrameworks []*transform.Framework
	// PreviousOrigins are former values of Origin.
	PreviousOrigins []string
	// Retention is how long a finished job stays on its worker cluster.
	Retention time.Duration
	// PreemptionTimeout is how long only one worker cluster may preempt.
	PreemptionTimeout time.Duration
	// AccessProviders are the plugins of either spelling.
	AccessProviders []configv1beta2.ClusterProfileProvider
	// AllowHTTP permits worker clusters and proxies without TLS.
	AllowHTTP bool
}

// Concurrency is how many objects of a kind, given as Kind.group or as Kind
// alone in the core group, are reconciled at once. At least 1.
func (o *Options) Concurrency(groupKind string) int {
	return max(o.GroupKindConcurrency[groupKind], 1)
}

// NotYet lists, by path and in the order of the file, the fields that the file
// sets and that this build does not act upon.
func (o *Options) NotYet() []string { return slices.Clone(o.notYet) }

// InertGates lists the feature gates that are set by name and change nothing
// in this build, sorted.
func (o *Options) InertGates() []string { return slices.Clone(o.inertGates) }

// YAML is the effective configuration as a file that would give the same
// options, of the kind that they were read from.
func (o *Options) YAML() (string, error) {
	out, err := yaml.Marshal(o.document())
	return string(out), err
}

// document is the configuration as it would stand in a file.
func (o *Options) document() any {
	if o.training != nil {
		return o.training
	}
	return o.Effective
}

// resolve turns a configuration that passed validate into values.
func resolve(c *configv1beta2.Configuration, gates feature.Gates) Options {
	tlsValues, _ := resolveTLS(c.TLS, nil)
	o := Options{
		Namespace:                  *c.Namespace,
		ManageJobsWithoutQueueName: c.ManageJobsWithoutQueueName,
		ManagedNamespaceSelector:   *c.ManagedJobsNamespaceSelector.DeepCopy(),
		ManagedNamespaces:          selectorOf(c.ManagedJobsNamespaceSelector),
		Frameworks:                 slices.Clone(c.Integrations.Frameworks),
		LabelKeysToCopy:            slices.Clone(c.Integrations.LabelKeysToCopy),
		HonourUserSuspend:          c.Integrations.HonourUserSuspend,
		MaxChildren:                c.Integrations.MaxChildren,
		VerifyOwners:               c.Integrations.VerifyOwners == nil || *c.Integrations.VerifyOwners,
		Client:                     Client{QPS: *c.ClientConnection.QPS, Burst: int(*c.ClientConnection.Burst)},
		Webhook: Webhook{
			Port: int(*c.Webhook.Port), Host: c.Webhook.Host, CertDir: c.Webhook.CertDir,
			ClientCAFile: c.Webhook.ClientCAFile, ClientNames: slices.Clone(c.Webhook.ClientNames),
		},
		Health: Health{
			Address:       c.Health.HealthProbeBindAddress,
			ReadinessPath: rooted(c.Health.ReadinessEndpointName),
			LivenessPath:  rooted(c.Health.LivenessEndpointName),
		},
		TLS:                  tlsValues,
		PprofAddress:         c.PprofBindAddress,
		VisibilityAddress:    visibilityAddress(c.VisibilityServer),
		Dashboard:            DefaultDashboard(),
		CacheSyncTimeout:     c.Controller.CacheSyncTimeout.Duration,
		GroupKindConcurrency: maps.Clone(c.Controller.GroupKindConcurrency),
		Resources: Resources{
			IgnoreUndeclared:    gates.On(feature.QuotaCheckStrategy) && *c.Resources.QuotaCheckStrategy == configv1beta2.IgnoreUndeclared,
			ExcludePrefixes:     slices.Clone(c.Resources.ExcludeResourcePrefixes),
			Transformations:     c.Resources.Transformations,
			DeviceClassMappings: c.Resources.DeviceClassMappings,
		},
		Gates:     gates,
		Effective: c,
	}
	for _, name := range c.Integrations.ExternalFrameworks {
		kind, _ := declare.ParseName(name)
		o.ExternalFrameworks = append(o.ExternalFrameworks, kind)
	}
	for _, d := range c.Integrations.ExternalChildren {
		if o.ExternalOwns == nil {
			o.ExternalOwns = map[schema.GroupVersionKind][]schema.GroupVersionKind{}
		}
		kind, _ := declare.ParseName(d.Name)
		o.ExternalOwns[kind], _ = declare.ParseOwned(d.Owns, nil)
	}
	o.DeclaredKinds, _ = declare.Compile(c.Integrations.DeclaredKinds, nil, nil)
	o.GenerateLocalQueues = configv1beta2.GenerateNone
	if l := c.LocalQueues; l != nil && l.Generate != "" {
		o.GenerateLocalQueues = l.Generate
	}
	if certs := c.InternalCertManagement; *certs.Enable {
		o.Certs = Certs{Internal: true, Service: *certs.WebhookServiceName, Secret: *certs.WebhookSecretName}
	}
	o.LeaderElection = resolveLeaderElection(c.LeaderElection, o.Namespace)
	o.Metrics = resolveMetrics(&c.Metrics, gates)
	resolveScheduling(&o, c, gates)
	o.MultiKueue = resolveMultiKueue(c.MultiKueue, gates)
	o.JobSet = resolveJobSet(c.JobSet)
	o.Trainer = training.Resolve(c.Trainer)
	return o
}

func resolveLeaderElection(l *configv1beta2.LeaderElection, namespace string) LeaderElection {
	if l.ResourceNamespace != "" {
		namespace = l.ResourceNamespace
	}
	return LeaderElection{
		Enabled: *l.LeaderElect, Name: l.ResourceName, Namespace: namespace,
		LeaseDuration: l.LeaseDuration.Duration, RenewDeadline: l.RenewDeadline.Duration, RetryPeriod: l.RetryPeriod.Duration,
	}
}

func resolveMetrics(m *configv1beta2.Metrics, gates feature.Gates) Metrics {
	out := Metrics{
		Address: m.BindAddress, ClusterQueueResources: m.EnableClusterQueueResources,
		LocalQueues: labels.Nothing(),
	}
	if gates.On(feature.LocalQueueMetrics) && m.LocalQueueMetrics.Enable {
		out.LocalQueues = labels.Everything()
		if s := m.LocalQueueMetrics.LocalQueueSelector; s != nil {
			out.LocalQueues = selectorOf(s)
		}
	}
	if gates.On(feature.CustomMetricLabels) {
		out.CustomLabels = m.CustomLabels
	}
	return out
}

// resolveScheduling fills in what decides about Workloads over time.
func resolveScheduling(o *Options, c *configv1beta2.Configuration, gates feature.Gates) {
	if p := c.ObjectRetentionPolicies; p != nil && p.Workloads != nil {
		o.Retention = Retention{Finished: durationOf(p.Workloads.AfterFinished), Deactivated: durationOf(p.Workloads.AfterDeactivatedByKueue)}
	}
	if w := c.WaitForPodsReady; !gates.On(feature.DisableWaitForPodsReady) {
		r := w.RequeuingStrategy
		o.PodsReady = PodsReady{
			Enabled: true, Timeout: w.Timeout.Duration, Recovery: w.RecoveryTimeout.Duration, BlockAdmission: *w.BlockAdmission,
			RequeueBy: *r.Timestamp, BackoffLimit: NoLimit,
			BackoffBase: time.Duration(*r.BackoffBaseSeconds) * time.Second,
			BackoffMax:  time.Duration(*r.BackoffMaxSeconds) * time.Second,
		}
		if r.BackoffLimitCount != nil {
			o.PodsReady.BackoffLimit = int(*r.BackoffLimitCount)
		}
	}
	if c.FairSharing != nil {
		o.FairSharing = FairSharing{Enabled: true, Strategies: slices.Clone(c.FairSharing.PreemptionStrategies)}
	}
	if afs := c.AdmissionFairSharing; afs != nil && gates.On(feature.AdmissionFairSharing) {
		o.AdmissionFairSharing = UsageSharing{
			Enabled: true, HalfLife: afs.UsageHalfLifeTime.Duration, SamplingInterval: afs.UsageSamplingInterval.Duration,
			Weights: maps.Clone(afs.ResourceWeights),
		}
	}
}

func resolveMultiKueue(m *configv1beta2.MultiKueue, gates feature.Gates) MultiKueue {
	out := MultiKueue{
		GCInterval: m.GCInterval.Duration, Origin: *m.Origin, WorkerLostTimeout: m.WorkerLostTimeout.Duration,
		Dispatcher: *m.DispatcherName, StepSize: defaultStepSize, RoundTimeout: defaultRoundTimeout,
		PreviousOrigins: m.PreviousOrigins, PreemptionTimeout: defaultPreemptionTimeout,
	}
	if steps := m.IncrementalDispatcherConfig; steps != nil && gates.On(feature.MultiKueueIncrementalDispatcherConfig) {
		out.StepSize = int(*steps.StepSize)
		if steps.RoundTimeout != nil {
			out.RoundTimeout = steps.RoundTimeout.Duration
		}
	}
	if m.AllowHTTP != nil {
		out.AllowHTTP = *m.AllowHTTP
	}
	if m.RemoteRetentionAfterFinish != nil {
		out.Retention = m.RemoteRetentionAfterFinish.Duration
	}
	if m.SingleClusterPreemptionTimeout != nil {
		out.PreemptionTimeout = m.SingleClusterPreemptionTimeout.Duration
	}
	if gates.On(feature.MultiKueueAdaptersForCustomJobs) {
		out.ExternalFrameworks, _ = transform.Compile(m.ExternalFrameworks, gates.On(feature.MultiKueueExternalTransforms), nil)
	}
	if p := m.ClusterProfile; p != nil {
		out.AccessProviders = slices.Concat(p.AccessProviders, p.CredentialsProviders)
	}
	return out
}

// selectorOf parses a selector that was checked before.
func selectorOf(s *metav1.LabelSelector) labels.Selector {
	selector, errs := parseSelector(s, field.NewPath("selector"))
	if len(errs) > 0 {
		return labels.Nothing()
	}
	return selector
}

func visibilityAddress(v *configv1beta2.VisibilityServer) string {
	host := ""
	if v.BindAddress != nil {
		host = *v.BindAddress
	}
	return net.JoinHostPort(host, strconv.Itoa(int(*v.BindPort)))
}

// rooted accepts the path of a probe with and without its leading slash
// (spec: 70 §6 #4).
func rooted(path string) string { return "/" + strings.TrimLeft(path, "/") }

func durationOf(d *metav1.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	return &d.Duration
}
