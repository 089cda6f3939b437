package options

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1beta1 "github.com/berth-project/berth/api/config/v1beta1"
	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
)

const oldPodsReadyTimeout = 5 * time.Minute

// decodeV1beta1 decodes a document of the old version and converts it. Paths are the same in both, so later problems have the right
// position. podsReadyOff is true if waitForPodsReady is off, which in v1beta2 needs a feature gate. moving lists the effects of changing
// only apiVersion.
func (d *decoder) decodeV1beta1(root *yaml.Node) (c *configv1beta2.Configuration, podsReadyOff bool, moving []string) {
	old := &configv1beta1.Configuration{}
	d.Decode(root, old)
	c = upgrade(old)
	switch w := old.WaitForPodsReady; {
	case w == nil || !w.Enable:
		podsReadyOff = true
		moving = append(moving, "waitForPodsReady is on unless featureGates.DisableWaitForPodsReady is true; it is off here")
		if w != nil {
			moving = append(moving, "waitForPodsReady.enable is gone")
		}
	default:
		moving = append(moving, "waitForPodsReady.enable is gone")
		if w.Timeout == nil || w.Timeout.Duration == 0 {
			moving = append(moving, "waitForPodsReady.timeout is 30m unless it is written; it is 5m here")
		}
		if w.BlockAdmission == nil {
			moving = append(moving, "waitForPodsReady.blockAdmission is false unless it is written; it is true here")
		}
	}
	if f := old.FairSharing; f != nil {
		switch {
		case !f.Enable:
			moving = append(moving, "fairSharing is on when it is present; it is off here")
		case len(f.PreemptionStrategies) == 0:
			moving = append(moving, "fairSharing.enable is gone, and preemptionStrategies has to be written; both strategies are used here")
		default:
			moving = append(moving, "fairSharing.enable is gone")
		}
	}
	for _, field := range []string{"queueVisibility", "integrations.podOptions"} {
		if d.Lines[field] > 0 {
			moving = append(moving, field+" is gone; it has no effect here")
		}
	}
	return c, podsReadyOff, moving
}

// oldVersionWarning returns the warning about a file of the old version (spec: 70 §3.2).
func oldVersionWarning(moving []string) string {
	return configv1beta1.GroupVersion.String() + " is deprecated. Before you write " + configv1beta2.GroupVersion.String() +
		" instead, note what is different there: " + strings.Join(moving, "; ")
}

// upgrade converts v1beta1 to v1beta2, with the defaults of v1beta1 where they differ (spec: 70 §3.2).
func upgrade(old *configv1beta1.Configuration) *configv1beta2.Configuration {
	c := &configv1beta2.Configuration{
		TypeMeta: old.TypeMeta, Namespace: old.Namespace,
		Manager: configv1beta2.Manager{
			Webhook: old.Webhook, LeaderElection: old.LeaderElection, Metrics: upgradeMetrics(&old.Metrics), Health: old.Health,
			PprofBindAddress: old.PprofBindAddress, Controller: old.Controller, TLS: old.TLS,
		},
		ManageJobsWithoutQueueName: old.ManageJobsWithoutQueueName, ManagedJobsNamespaceSelector: old.ManagedJobsNamespaceSelector,
		InternalCertManagement: old.InternalCertManagement, ClientConnection: old.ClientConnection,
		AdmissionFairSharing: old.AdmissionFairSharing, FeatureGates: old.FeatureGates, ObjectRetentionPolicies: old.ObjectRetentionPolicies,
	}
	if i := old.Integrations; i != nil {
		c.Integrations = &configv1beta2.Integrations{Frameworks: i.Frameworks, ExternalFrameworks: i.ExternalFrameworks, LabelKeysToCopy: i.LabelKeysToCopy}
	}
	if m := old.MultiKueue; m != nil {
		c.MultiKueue = &configv1beta2.MultiKueue{
			GCInterval: m.GCInterval, Origin: m.Origin, WorkerLostTimeout: m.WorkerLostTimeout,
			DispatcherName: m.DispatcherName,
		}
		for _, f := range m.ExternalFrameworks {
			c.MultiKueue.ExternalFrameworks = append(c.MultiKueue.ExternalFrameworks, configv1beta2.MultiKueueExternalFramework{Name: f.Name})
		}
	}
	if r := old.Resources; r != nil {
		c.Resources = &configv1beta2.Resources{ExcludeResourcePrefixes: r.ExcludeResourcePrefixes, Transformations: r.Transformations}
		for _, m := range r.DeviceClassMappings {
			c.Resources.DeviceClassMappings = append(c.Resources.DeviceClassMappings, configv1beta2.DeviceClassMapping{Name: m.Name, DeviceClassNames: m.DeviceClassNames})
		}
	}
	if w := old.WaitForPodsReady; w != nil && w.Enable {
		c.WaitForPodsReady = &configv1beta2.WaitForPodsReady{
			Timeout: w.Timeout, RecoveryTimeout: w.RecoveryTimeout, BlockAdmission: w.BlockAdmission, RequeuingStrategy: w.RequeuingStrategy,
		}
		if w.Timeout == nil || w.Timeout.Duration == 0 {
			c.WaitForPodsReady.Timeout = &metav1.Duration{Duration: oldPodsReadyTimeout}
		}
		setIfNil(&c.WaitForPodsReady.BlockAdmission, true)
	}
	if f := old.FairSharing; f != nil && f.Enable {
		c.FairSharing = &configv1beta2.FairSharing{PreemptionStrategies: f.PreemptionStrategies}
		if len(f.PreemptionStrategies) == 0 {
			c.FairSharing.PreemptionStrategies = []configv1beta2.PreemptionStrategy{
				configv1beta2.LessThanOrEqualToFinalShare, configv1beta2.LessThanInitialShare,
			}
		}
	}
	return c
}

func upgradeMetrics(old *configv1beta1.Metrics) configv1beta2.Metrics {
	m := configv1beta2.Metrics{
		BindAddress: old.BindAddress, EnableClusterQueueResources: old.EnableClusterQueueResources, LocalQueueMetrics: old.LocalQueueMetrics,
	}
	for _, l := range old.CustomLabels {
		m.CustomLabels = append(m.CustomLabels, configv1beta2.CustomMetricLabel{
			Name: l.Name, SourceLabelKey: l.SourceLabelKey, SourceAnnotationKey: l.SourceAnnotationKey,
		})
	}
	return m
}
