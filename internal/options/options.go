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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	configtrainer "github.com/berth-project/berth/api/config/trainer/v1alpha1"
	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options/declare"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/options/training"
	"github.com/berth-project/berth/internal/options/transform"
)

// Options is the resolved configuration of a manager: with defaults, checked, and with parsed values. A command line may replace fields
// before the manager is built; they do not change later.
type Options struct {
	// Namespace is the manager's own.
	Namespace string
	// ManageJobsWithoutQueueName manages jobs without a queue name, too.
	ManageJobsWithoutQueueName bool
	// ManagedNamespaces matches the labels of managed namespaces.
	ManagedNamespaces labels.Selector
	// ManagedNamespaceSelector is the same for webhook configurations.
	ManagedNamespaceSelector metav1.LabelSelector

	// Frameworks are the names of the enabled job kinds: as configured, or all without a configuration file.
	Frameworks []string
	// LabelledOnly leaves pods, Deployments and StatefulSets without a queue name out of the webhooks: without a configuration file, pods of
	// Kubernetes itself must not depend on the manager.
	LabelledOnly bool
	// ExternalFrameworks are kinds that other controllers integrate.
	ExternalFrameworks []schema.GroupVersionKind
	// DeclaredKinds are kinds that the configuration describes in CEL.
	DeclaredKinds []*declare.Kind
	// VerifyOwners ignores owners that cannot have created the object. ExternalOwns are the kinds that external kinds create; any kind
	// without an entry.
	VerifyOwners bool
	ExternalOwns map[schema.GroupVersionKind][]schema.GroupVersionKind
	// HonourUserSuspend keeps an admitted job suspended that a user suspends.
	HonourUserSuspend bool
	// MaxChildren bounds the objects that are created for one new job.
	MaxChildren int32
	// LabelKeysToCopy are copied from a job to its Workload.
	LabelKeysToCopy []string
	// GenerateLocalQueues is which LocalQueues the manager generates.
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
	// Dashboard is set by the command line only.
	Dashboard Dashboard
	// CacheSyncTimeout is how long controllers wait for their caches.
	CacheSyncTimeout time.Duration
	// GroupKindConcurrency is read by Concurrency.
	GroupKindConcurrency map[string]int

	// MaxMinRunTime is the longest time that a job may ask to run before it is preempted; 0 ignores what jobs ask for.
	MaxMinRunTime time.Duration

	// Backfill is a value of the annotation BackfillKey, for ClusterQueues without it; "" for none.
	Backfill string

	// RecoveryDelay is how long after the end of its grace period a pod that hangs on an unreachable node is deleted by force.
	RecoveryDelay time.Duration

	Retention            Retention
	PodsReady            PodsReady
	FairSharing          FairSharing
	AdmissionFairSharing UsageSharing
	Resources            Resources
	MultiKueue           MultiKueue
	JobSet               JobSet
	Trainer              training.Options
	Gates                feature.Gates

	// Effective is the configuration with its defaults, read-only.
	Effective *configv1beta2.Configuration
	// Warnings are logged once at the start.
	Warnings []string

	// training is the configuration as a file of the Trainer, if it was read from one: some of its fields have no other name.
	training *configtrainer.Configuration

	inertGates []string
}

// Client is the rate limit towards the API server.
type Client struct {
	// QPS is in requests a second, negative is no limit. Burst is the size of the bucket.
	QPS   float32
	Burst int
}

// Webhook is the HTTPS listener for the API server.
type Webhook struct {
	Port          int
	Host, CertDir string
	// ClientCAFile has the authorities of client certificates; if empty, none is required. ClientNames are the allowed names, nil all.
	ClientCAFile string
	ClientNames  []string
}

// Certs are the options of the webhooks' certificates.
type Certs struct {
	// Internal is true if the manager creates them, and shares them in the Secret.
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

// Metrics are the options of the series.
type Metrics struct {
	// Address is host:port; "0" is off.
	Address string
	// Plain is without TLS, Open without authentication. Only a file of the Trainer can set them.
	Plain, Open bool
	// ClusterQueueResources enables series for each flavor and resource.
	ClusterQueueResources bool
	// LocalQueues matches the LocalQueues with series of their own; none if they are off.
	LocalQueues  labels.Selector
	CustomLabels []configv1beta2.CustomMetricLabel
}

// WorkloadLabels returns the keys of the labels and annotations of Workloads that custom labels are read from.
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

// SourceKey returns the key of the label or annotation that a custom label is read from. spec: 70 §2.1.2.
func SourceKey(l *configv1beta2.CustomMetricLabel) (key string, annotation bool) {
	if l.SourceAnnotationKey != "" {
		return l.SourceAnnotationKey, true
	}
	return cmp.Or(l.SourceLabelKey, l.Name), false
}

// Retention is how long objects stay; nil is for ever, 0 is not at all.
type Retention struct {
	Finished, Deactivated *time.Duration
}

// NoLimit is a BackoffLimit without a limit.
const NoLimit = -1

// PodsReady is the resolved section waitForPodsReady.
type PodsReady struct {
	Enabled bool
	// Timeout is until all pods are ready, Recovery until they are ready again; 0 is no limit.
	Timeout, Recovery time.Duration
	BlockAdmission    bool
	RequeueBy         configv1beta2.RequeuingTimestamp
	BackoffBase       time.Duration
	BackoffMax        time.Duration
	// BackoffLimit is how often a Workload is requeued, or NoLimit.
	BackoffLimit int
}

// FairSharing is on when it has strategies.
type FairSharing struct {
	Enabled    bool
	Strategies []configv1beta2.PreemptionStrategy
}

// UsageSharing is the resolved section admissionFairSharing: ordering by past usage.
type UsageSharing struct {
	Enabled                    bool
	HalfLife, SamplingInterval time.Duration
	// Weights are by resource; the default is 1.
	Weights map[corev1.ResourceName]float64
}

// Resources is how pod requests become quota requests.
type Resources struct {
	// IgnoreUndeclared ignores requests for resources without quota.
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

// Concurrency returns the number of concurrent reconciles of a kind, given as Kind.group or as Kind in the core group. At least 1.
func (o *Options) Concurrency(groupKind string) int {
	return max(o.GroupKindConcurrency[groupKind], 1)
}

// InertGates returns the feature gates that are set by name without an effect in this version, sorted.
func (o *Options) InertGates() []string { return slices.Clone(o.inertGates) }

// YAML returns the effective configuration as a file with the same options, of the kind that they were read from.
func (o *Options) YAML() (string, error) {
	out, err := yaml.Marshal(o.document())
	return string(out), err
}

// document returns the effective configuration, of the kind that it was read from.
func (o *Options) document() any {
	if o.training != nil {
		return o.training
	}
	return o.Effective
}

// resolve returns the options of a valid configuration with defaults.
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

func resolveScheduling(o *Options, c *configv1beta2.Configuration, gates feature.Gates) {
	if p := c.ObjectRetentionPolicies; p != nil && p.Workloads != nil {
		o.Retention = Retention{Finished: durationOf(p.Workloads.AfterFinished), Deactivated: durationOf(p.Workloads.AfterDeactivatedByKueue)}
	}
	if w := c.WaitForPodsReady; !gates.On(feature.DisableWaitForPodsReady) {
		r := w.RequeuingStrategy
		o.PodsReady = PodsReady{
			Enabled: true, Timeout: w.Timeout.Duration, Recovery: w.RecoveryTimeout.Duration, BlockAdmission: *w.BlockAdmission,
			RequeueBy: *r.Timestamp, BackoffLimit: int(ptr.Deref(r.BackoffLimitCount, NoLimit)),
			BackoffBase: time.Duration(*r.BackoffBaseSeconds) * time.Second,
			BackoffMax:  time.Duration(*r.BackoffMaxSeconds) * time.Second,
		}
	}
	o.RecoveryDelay = c.FailureRecovery.Delay.Duration
	if c.Scheduling != nil {
		o.Backfill = c.Scheduling.Backfill
	}
	o.MaxMinRunTime = c.Preemption.MaxMinRunTime.Duration
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
	out.AllowHTTP = ptr.Deref(m.AllowHTTP, out.AllowHTTP)
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

func selectorOf(s *metav1.LabelSelector) labels.Selector {
	selector, errs := parseSelector(s, field.NewPath("selector"))
	if len(errs) > 0 {
		return labels.Nothing()
	}
	return selector
}

func visibilityAddress(v *configv1beta2.VisibilityServer) string {
	return net.JoinHostPort(ptr.Deref(v.BindAddress, ""), strconv.Itoa(int(*v.BindPort)))
}

// rooted returns the path of a probe with a leading slash (spec: 70 §6 #4).
func rooted(path string) string { return "/" + strings.TrimLeft(path, "/") }

func durationOf(d *metav1.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	return &d.Duration
}
