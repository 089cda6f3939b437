package options

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/options/training"
)

// Defaults of spec 70 §2.1. Durations carry their units in the type.
const (
	DefaultNamespace        = "berth-system"
	defaultWebhookPort      = 9443
	defaultCertDir          = "/tmp/k8s-webhook-server/serving-certs"
	defaultWebhookService   = "kueue-webhook-service"
	defaultWebhookSecret    = "kueue-webhook-server-cert"
	defaultLeaseName        = "c1f6bfd2.kueue.x-k8s.io"
	defaultLeaseDuration    = 15 * time.Second
	defaultRenewDeadline    = 10 * time.Second
	defaultRetryPeriod      = 2 * time.Second
	defaultMetricsAddress   = ":8443"
	defaultHealthAddress    = ":8081"
	defaultReadinessPath    = "/readyz"
	defaultLivenessPath     = "/healthz"
	defaultCacheSync        = 2 * time.Minute
	defaultQPS              = 300
	defaultMaxChildren      = 100_000
	defaultBurst            = 500
	defaultPodsReadyTimeout = 30 * time.Minute
	defaultBackoffBase      = 60
	defaultBackoffMax       = 3600
	defaultGCInterval       = time.Minute
	defaultOrigin           = "multikueue"
	defaultWorkerLost       = 15 * time.Minute
	defaultStepSize         = 3
	defaultRoundTimeout     = 5 * time.Minute
	defaultUsageSampling    = 5 * time.Minute
	defaultUsageHalfLife    = time.Hour
	defaultVisibilityPort   = 8082
	defaultRecoveryDelay    = time.Minute
	leaseLock               = "leases"

	defaultPreemptionTimeout = 5 * time.Minute // of one worker
	systemNamespace          = "kube-system"
	kueueNamespace           = "kueue-system"
	namespaceNameLabel       = "kubernetes.io/metadata.name"
	serviceAccountNamespace  = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// enableAll enables every job kind whose gate is on, for a manager without a configuration file: its queue labels must not be ignored
// because no file lists the kind.
func enableAll(c *configv1beta2.Configuration, gates feature.Gates) {
	c.Integrations = orNew(c.Integrations)
	for _, f := range Frameworks() {
		if f.allowed(gates) {
			c.Integrations.Frameworks = append(c.Integrations.Frameworks, f.Name)
		}
	}
}

// setDefaults sets omitted fields. podNamespace is the namespace of the service account, or empty.
func setDefaults(c *configv1beta2.Configuration, podNamespace string, gates feature.Gates) {
	c.APIVersion, c.Kind = configv1beta2.GroupVersion.String(), configv1beta2.Kind
	if podNamespace == "" {
		podNamespace = DefaultNamespace
	}
	setIfEmpty(&c.Namespace, podNamespace)
	if c.ManagedJobsNamespaceSelector == nil {
		c.ManagedJobsNamespaceSelector = defaultNamespaceSelector(*c.Namespace)
	}
	setManagerDefaults(&c.Manager)
	setClientDefaults(c)
	setSchedulingDefaults(c, gates)
	c.MultiKueue = orNew(c.MultiKueue)
	setMultiKueueDefaults(c.MultiKueue)
	c.VisibilityServer = orNew(c.VisibilityServer)
	setIfNil(&c.VisibilityServer.BindPort, defaultVisibilityPort)
	c.JobSet = orNew(c.JobSet)
	setJobSetDefaults(c.JobSet)
	c.Trainer = orNew(c.Trainer)
	training.SetDefaults(c.Trainer, *c.Namespace)
}

// addOnNamespaces are the namespaces of common add-ons. They contain no jobs, and their pods (network, certificates, storage, policies)
// must start while the manager is down. Label selectors have no patterns, so they are listed. The chart has the same list
// (berth.managedNamespaces).
var addOnNamespaces = []string{
	systemNamespace, "kube-node-lease", "kube-public",
	"calico-apiserver", "calico-system", "cert-manager", "cilium-system", "gatekeeper-system", "gke-managed-system", "gmp-system",
	"gpu-operator", "ingress-nginx", "istio-system", "jobset-system", "kube-flannel", kueueNamespace, "kyverno", "local-path-storage",
	"longhorn-system", "lws-system", "metallb-system", "network-operator", "node-feature-discovery", "rook-ceph", "tigera-operator",
	"volcano-system",
}

// defaultNamespaceSelector matches every namespace except the system's, add-ons' and the manager's own.
func defaultNamespaceSelector(own string) *metav1.LabelSelector {
	excluded := slices.Clone(addOnNamespaces)
	if !slices.Contains(excluded, own) {
		excluded = append(excluded, own)
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: namespaceNameLabel, Operator: metav1.LabelSelectorOpNotIn, Values: excluded,
	}}}
}

// takeOver has a selector that excludes Kueue's namespace, as Kueue's rule for its own demands, exclude the manager's too. It returns a warning
// if that changes the selector.
func takeOver(c *configv1beta2.Configuration) (warnings []string) {
	selector, _ := parseSelector(c.ManagedJobsNamespaceSelector, nil)
	if selector == nil || !selector.Matches(labels.Set{namespaceNameLabel: *c.Namespace}) {
		return nil
	}
	for i := range c.ManagedJobsNamespaceSelector.MatchExpressions {
		e := &c.ManagedJobsNamespaceSelector.MatchExpressions[i]
		if e.Key == namespaceNameLabel && e.Operator == metav1.LabelSelectorOpNotIn && slices.Contains(e.Values, kueueNamespace) {
			e.Values = append(e.Values, *c.Namespace)
			return []string{fmt.Sprintf("managedJobsNamespaceSelector excludes %s, as a file of Kueue has to, and so %s as well, where the manager is; add it to the values",
				kueueNamespace, *c.Namespace)}
		}
	}
	return nil
}

func setManagerDefaults(m *configv1beta2.Manager) {
	if m.Webhook.Port == nil || *m.Webhook.Port == 0 {
		m.Webhook.Port = new(int32(defaultWebhookPort))
	}
	setZero(&m.Webhook.CertDir, defaultCertDir)

	m.LeaderElection = orNew(m.LeaderElection)
	setElectionDefaults(m.LeaderElection)
	setZero(&m.LeaderElection.ResourceName, defaultLeaseName)

	setZero(&m.Metrics.BindAddress, defaultMetricsAddress)
	if m.Metrics.LocalQueueMetrics == nil {
		m.Metrics.LocalQueueMetrics = &configv1beta2.LocalQueueMetrics{Enable: true}
	}
	for i := range m.Metrics.CustomLabels {
		setZero(&m.Metrics.CustomLabels[i].SourceKind, configv1beta2.MetricSourceClusterQueue)
	}

	setZero(&m.Health.HealthProbeBindAddress, defaultHealthAddress)
	setZero(&m.Health.ReadinessEndpointName, defaultReadinessPath)
	setZero(&m.Health.LivenessEndpointName, defaultLivenessPath)

	m.Controller = orNew(m.Controller)
	setIfNil(&m.Controller.CacheSyncTimeout, configv1beta2.Nanoseconds{Duration: defaultCacheSync})
	counts := shippedConcurrency()
	maps.Copy(counts, m.Controller.GroupKindConcurrency)
	m.Controller.GroupKindConcurrency = counts
}

func setClientDefaults(c *configv1beta2.Configuration) {
	c.InternalCertManagement = orNew(c.InternalCertManagement)
	certs := c.InternalCertManagement
	setIfNil(&certs.Enable, true)
	if *certs.Enable {
		setIfEmpty(&certs.WebhookServiceName, defaultWebhookService)
		setIfEmpty(&certs.WebhookSecretName, defaultWebhookSecret)
	}

	c.ClientConnection = orNew(c.ClientConnection)
	if c.ClientConnection.QPS == nil || *c.ClientConnection.QPS == 0 {
		c.ClientConnection.QPS = new(float32(defaultQPS))
	}
	if c.ClientConnection.Burst == nil || *c.ClientConnection.Burst == 0 {
		c.ClientConnection.Burst = new(int32(defaultBurst))
	}

	c.Integrations = orNew(c.Integrations)
	if c.Integrations.Frameworks == nil { // an empty list is intended
		c.Integrations.Frameworks = []string{Frameworks()[0].Name}
	}
	setZero(&c.Integrations.MaxChildren, defaultMaxChildren)
}

func setSchedulingDefaults(c *configv1beta2.Configuration, gates feature.Gates) {
	if !gates.On(feature.DisableWaitForPodsReady) {
		c.WaitForPodsReady = orNew(c.WaitForPodsReady)
		setPodsReadyDefaults(c.WaitForPodsReady)
	}
	if c.AdmissionFairSharing != nil {
		setIfNil(&c.AdmissionFairSharing.UsageHalfLifeTime, metav1.Duration{Duration: defaultUsageHalfLife})
		setIfNil(&c.AdmissionFairSharing.UsageSamplingInterval, metav1.Duration{Duration: defaultUsageSampling})
	}
	c.FailureRecovery = orNew(c.FailureRecovery)
	setIfNil(&c.FailureRecovery.Delay, metav1.Duration{Duration: defaultRecoveryDelay})
	c.Preemption = orNew(c.Preemption)
	setIfNil(&c.Preemption.MaxMinRunTime, metav1.Duration{})
	c.Resources = orNew(c.Resources)
	setIfNil(&c.Resources.QuotaCheckStrategy, configv1beta2.BlockUndeclared)
	for i := range c.Resources.Transformations {
		setIfNil(&c.Resources.Transformations[i].Strategy, configv1beta2.RetainInput)
	}
}

func setPodsReadyDefaults(w *configv1beta2.WaitForPodsReady) {
	if w.Timeout == nil || w.Timeout.Duration == 0 { // spec: 70 §3.3
		w.Timeout = &metav1.Duration{Duration: defaultPodsReadyTimeout}
	}
	setIfNil(&w.RecoveryTimeout, metav1.Duration{Duration: max(w.Timeout.Duration, 0)})
	setIfNil(&w.BlockAdmission, false)
	w.RequeuingStrategy = orNew(w.RequeuingStrategy)
	setIfNil(&w.RequeuingStrategy.Timestamp, configv1beta2.EvictionTimestamp)
	setIfNil(&w.RequeuingStrategy.BackoffBaseSeconds, defaultBackoffBase)
	setIfNil(&w.RequeuingStrategy.BackoffMaxSeconds, defaultBackoffMax)
}

func setMultiKueueDefaults(m *configv1beta2.MultiKueue) {
	setIfNil(&m.GCInterval, metav1.Duration{Duration: defaultGCInterval})
	setIfEmpty(&m.Origin, defaultOrigin)
	setIfNil(&m.WorkerLostTimeout, metav1.Duration{Duration: defaultWorkerLost})
	setIfEmpty(&m.DispatcherName, configv1beta2.DispatcherAllAtOnce)
	if *m.DispatcherName == configv1beta2.DispatcherIncremental {
		m.IncrementalDispatcherConfig = orNew(m.IncrementalDispatcherConfig)
		setIfNil(&m.IncrementalDispatcherConfig.StepSize, defaultStepSize)
	}
}

func setZero[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setIfNil[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func setIfEmpty(field **string, value string) {
	if *field == nil || **field == "" {
		*field = &value
	}
}

// orNew returns p, or a pointer to a zero value if p is nil.
func orNew[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}
