package options

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options/declare"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/options/strict"
	"github.com/berth-project/berth/internal/options/training"
)

// validate checks the rules of spec 70 §3.3 on a configuration with defaults, and returns all violations.
func validate(c *configv1beta2.Configuration, gates feature.Gates) field.ErrorList {
	errs := invalidIf(validation.IsDNS1123Label(*c.Namespace), *c.Namespace, field.NewPath("namespace"))
	errs = append(errs, validateWebhook(&c.Webhook, field.NewPath("webhook"))...)
	errs = append(errs, validateLeaderElection(c.LeaderElection, field.NewPath("leaderElection"))...)
	errs = append(errs, validateMetrics(&c.Metrics, field.NewPath("metrics"))...)
	errs = append(errs, validateAddress(c.Health.HealthProbeBindAddress, field.NewPath("health", "healthProbeBindAddress"))...)
	errs = append(errs, validateProbes(&c.Health, field.NewPath("health"))...)
	errs = append(errs, validateAddress(c.PprofBindAddress, field.NewPath("pprofBindAddress"))...)
	errs = append(errs, validateController(c.Controller, field.NewPath("controller"))...)
	_, tlsErrs := resolveTLS(c.TLS, field.NewPath("tls"))
	errs = append(errs, tlsErrs...)
	errs = append(errs, validateNamespaceSelector(c, field.NewPath("managedJobsNamespaceSelector"))...)
	errs = append(errs, validateCerts(c.InternalCertManagement, field.NewPath("internalCertManagement"))...)
	errs = append(errs, validateClient(c.ClientConnection, field.NewPath("clientConnection"))...)
	errs = append(errs, validateIntegrations(c.Integrations, gates, field.NewPath("integrations"))...)
	if !gates.On(feature.DisableWaitForPodsReady) {
		errs = append(errs, validatePodsReady(c.WaitForPodsReady, field.NewPath("waitForPodsReady"))...)
	}
	errs = append(errs, validateMultiKueue(c, gates, field.NewPath("multiKueue"))...)
	errs = append(errs, validateFairSharing(c, field.NewPath("fairSharing"), field.NewPath("admissionFairSharing"))...)
	errs = append(errs, validateResources(c.Resources, gates, field.NewPath("resources"))...)
	errs = append(errs, validateRetention(c.ObjectRetentionPolicies, field.NewPath("objectRetentionPolicies", "workloads"))...)
	errs = append(errs, notNegative(c.FailureRecovery.Delay, field.NewPath("failureRecovery", "delay"))...)
	errs = append(errs, notNegative(c.Preemption.MaxMinRunTime, field.NewPath("preemption", "maxMinRunTime"))...)
	if s := c.Scheduling; s != nil && s.Backfill != "" && !slices.Contains(berthv1alpha1.Backfills, s.Backfill) {
		errs = append(errs, field.NotSupported(field.NewPath("scheduling", "backfill"), s.Backfill, berthv1alpha1.Backfills))
	}
	errs = append(errs, validateLocalQueues(c.LocalQueues, field.NewPath("localQueues"))...)
	errs = append(errs, validateVisibility(c.VisibilityServer, field.NewPath("visibilityServer"))...)
	errs = append(errs, validateJobSet(c.JobSet, field.NewPath("jobSet"))...)
	errs = append(errs, training.Validate(c.Trainer, field.NewPath("trainer"))...)
	return errs
}

// probePath is a path that a server of probes can answer besides another one.
var probePath = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+$`)

func validateProbes(h *configv1beta2.Health, path *field.Path) (errs field.ErrorList) {
	ready, live := rooted(h.ReadinessEndpointName), rooted(h.LivenessEndpointName)
	for _, probe := range [][2]string{{"readinessEndpointName", ready}, {"livenessEndpointName", live}} {
		if !probePath.MatchString(probe[1]) {
			errs = append(errs, field.Invalid(path.Child(probe[0]), probe[1], "must be a path of letters, digits, '-', '.', '_', '~' and single slashes"))
		}
	}
	if ready == live {
		errs = append(errs, field.Invalid(path.Child("livenessEndpointName"), live, "must differ from readinessEndpointName"))
	}
	return errs
}

func validateWebhook(w *configv1beta2.Webhook, path *field.Path) field.ErrorList {
	errs := validatePort(*w.Port, path.Child("port"))
	if len(w.ClientNames) > 0 && w.ClientCAFile == "" {
		errs = append(errs, field.Required(path.Child("clientCAFile"), "clientNames are names in certificates: say who signs these"))
	}
	return errs
}

// validateLeaderElection checks the requirements of the election library, which would otherwise panic.
func validateLeaderElection(l *configv1beta2.LeaderElection, path *field.Path) field.ErrorList {
	if !*l.LeaderElect {
		return nil
	}
	errs := field.ErrorList{}
	if l.ResourceLock != leaseLock {
		errs = append(errs, field.NotSupported(path.Child("resourceLock"), l.ResourceLock, []string{leaseLock}))
	}
	errs = append(errs, invalidIf(validation.IsDNS1123Subdomain(l.ResourceName), l.ResourceName, path.Child("resourceName"))...)
	if l.ResourceNamespace != "" {
		errs = append(errs, invalidIf(validation.IsDNS1123Label(l.ResourceNamespace), l.ResourceNamespace, path.Child("resourceNamespace"))...)
	}
	lease, renew, retry := l.LeaseDuration.Duration, l.RenewDeadline.Duration, l.RetryPeriod.Duration
	if lease <= renew {
		errs = append(errs, field.Invalid(path.Child("leaseDuration"), lease.String(), fmt.Sprintf("must be longer than renewDeadline (%s)", renew)))
	}
	if retry <= 0 {
		errs = append(errs, field.Invalid(path.Child("retryPeriod"), retry.String(), "must be above 0"))
	} else if float64(renew) <= 1.2*float64(retry) { // the election jitters by this factor
		errs = append(errs, field.Invalid(path.Child("renewDeadline"), renew.String(), fmt.Sprintf("must be longer than 1.2 times retryPeriod (%s)", retry)))
	}
	return errs
}

func validateController(c *configv1beta2.Controller, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	for _, kind := range sets.List(sets.KeySet(c.GroupKindConcurrency)) {
		if n := c.GroupKindConcurrency[kind]; n < 1 {
			errs = append(errs, field.Invalid(path.Child("groupKindConcurrency").Key(kind), n, "must be at least 1"))
		}
	}
	return append(errs, positive(c.CacheSyncTimeout.Duration, path.Child("cacheSyncTimeout"))...)
}

// validateNamespaceSelector refuses a selector that matches the system's namespace or the manager's own (spec: 30 §2.1).
func validateNamespaceSelector(c *configv1beta2.Configuration, path *field.Path) field.ErrorList {
	selector, errs := parseSelector(c.ManagedJobsNamespaceSelector, path)
	if selector == nil {
		return errs
	}
	for _, name := range slices.Compact([]string{systemNamespace, *c.Namespace}) {
		if selector.Matches(labels.Set{namespaceNameLabel: name}) {
			errs = append(errs, field.Invalid(path, metav1.FormatLabelSelector(c.ManagedJobsNamespaceSelector), fmt.Sprintf(
				"must not match namespace %s; add {key: %s, operator: NotIn, values: [%s]} to matchExpressions", name, namespaceNameLabel, name)))
		}
	}
	return errs
}

func parseSelector(s *metav1.LabelSelector, path *field.Path) (labels.Selector, field.ErrorList) {
	if errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path); len(errs) > 0 {
		return nil, errs
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(s), err.Error())}
	}
	return selector, nil
}

func validateCerts(m *configv1beta2.InternalCertManagement, path *field.Path) field.ErrorList {
	if !*m.Enable {
		return nil
	}
	return append(
		invalidIf(validation.IsDNS1035Label(*m.WebhookServiceName), *m.WebhookServiceName, path.Child("webhookServiceName")),
		invalidIf(validation.IsDNS1123Subdomain(*m.WebhookSecretName), *m.WebhookSecretName, path.Child("webhookSecretName"))...)
}

func validateClient(c *configv1beta2.ClientConnection, path *field.Path) field.ErrorList {
	if *c.QPS > 0 && *c.Burst < 0 {
		return field.ErrorList{field.Invalid(path.Child("burst"), *c.Burst, "must be at least 0 while qps is a limit; make qps negative for no limit")}
	}
	return nil
}

// validateIntegrations checks the lists of job kinds. No kind may appear twice, also not under different names (spec: 70 §3.3, 30 §2.1).
func validateIntegrations(in *configv1beta2.Integrations, gates feature.Gates, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	if in.MaxChildren < 1 {
		errs = append(errs, field.Invalid(path.Child("maxChildren"), in.MaxChildren, "must be at least 1"))
	}
	seen := map[schema.GroupVersionKind]bool{}
	for i, name := range in.Frameworks {
		at := path.Child("frameworks").Index(i)
		framework, known := FindFramework(name)
		if !known {
			errs = append(errs, notSupported(at, name, frameworkNames()))
			continue
		}
		if !framework.allowed(gates) {
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("%s needs featureGates.%s: true", name, framework.Gate)))
		}
		if seen[framework.GVK] {
			errs = append(errs, field.Duplicate(at, name))
		}
		seen[framework.GVK] = true
	}
	for _, f := range Frameworks() {
		seen[f.GVK] = true // also if it is not enabled
	}
	for i, name := range in.ExternalFrameworks {
		at := path.Child("externalFrameworks").Index(i)
		kind, ok := declare.ParseName(name)
		switch {
		case !ok:
			errs = append(errs, field.Invalid(at, name, declare.WantedName))
		case seen[kind]:
			errs = append(errs, field.Duplicate(at, name))
		}
		seen[kind] = true
	}
	errs = append(errs, validateExternalChildren(in, path.Child("externalChildren"))...)
	if service := in.RayService; service != nil {
		known := []string{"", string(configv1beta2.ChildSuspended), string(configv1beta2.GatedPods)}
		if hold := string(service.UpgradeHold); !slices.Contains(known, hold) {
			errs = append(errs, notSupported(path.Child("rayService", "upgradeHold"), hold, known[1:]))
		}
	}
	_, invalid := declare.Compile(in.DeclaredKinds, slices.Collect(maps.Keys(seen)), path.Child("declaredKinds"))
	return append(errs, invalid...)
}

func validateExternalChildren(in *configv1beta2.Integrations, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	for i, e := range in.ExternalChildren {
		at := path.Index(i)
		if !slices.Contains(in.ExternalFrameworks, e.Name) {
			errs = append(errs, field.NotFound(at.Child("name"), e.Name))
		}
		if slices.ContainsFunc(in.ExternalChildren[:i], func(o configv1beta2.ExternalChildren) bool { return o.Name == e.Name }) {
			errs = append(errs, field.Duplicate(at.Child("name"), e.Name))
		}
		_, invalid := declare.ParseOwned(e.Owns, at.Child("owns"))
		errs = append(errs, invalid...)
	}
	return errs
}

func validatePodsReady(w *configv1beta2.WaitForPodsReady, path *field.Path) field.ErrorList {
	errs := positive(w.Timeout.Duration, path.Child("timeout"))
	errs = append(errs, notNegative(w.RecoveryTimeout, path.Child("recoveryTimeout"))...)
	requeue, at := w.RequeuingStrategy, path.Child("requeuingStrategy")
	timestamps := []configv1beta2.RequeuingTimestamp{configv1beta2.EvictionTimestamp, configv1beta2.CreationTimestamp}
	if !slices.Contains(timestamps, *requeue.Timestamp) {
		errs = append(errs, field.NotSupported(at.Child("timestamp"), *requeue.Timestamp, timestamps))
	}
	for _, count := range []struct {
		name  string
		value *int32
	}{
		{"backoffLimitCount", requeue.BackoffLimitCount},
		{"backoffBaseSeconds", requeue.BackoffBaseSeconds},
		{"backoffMaxSeconds", requeue.BackoffMaxSeconds},
	} {
		if count.value != nil && *count.value < 0 {
			errs = append(errs, field.Invalid(at.Child(count.name), *count.value, "must be at least 0"))
		}
	}
	return errs
}

func validateFairSharing(c *configv1beta2.Configuration, fair, admission *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	show := func(list []configv1beta2.PreemptionStrategy) string {
		names := make([]string, len(list))
		for i, name := range list {
			names[i] = string(name)
		}
		return "[" + strings.Join(names, ", ") + "]"
	}
	if c.FairSharing != nil && !slices.ContainsFunc(strategyLists, func(list []configv1beta2.PreemptionStrategy) bool {
		return slices.Equal(list, c.FairSharing.PreemptionStrategies)
	}) {
		allowed := make([]string, len(strategyLists))
		for i, list := range strategyLists {
			allowed[i] = show(list)
		}
		errs = append(errs, field.NotSupported(fair.Child("preemptionStrategies"), show(c.FairSharing.PreemptionStrategies), allowed))
	}
	if afs := c.AdmissionFairSharing; afs != nil {
		errs = append(errs, notNegative(afs.UsageHalfLifeTime, admission.Child("usageHalfLifeTime"))...)
		errs = append(errs, positive(afs.UsageSamplingInterval.Duration, admission.Child("usageSamplingInterval"))...)
		for _, name := range sets.List(sets.KeySet(afs.ResourceWeights)) {
			if w := afs.ResourceWeights[name]; w < 0 {
				errs = append(errs, field.Invalid(admission.Child("resourceWeights").Key(string(name)), w, "must be at least 0"))
			}
		}
	}
	return errs
}

// strategyLists are the allowed lists of preemption strategies (spec: 70 §2.1.8).
var strategyLists = [][]configv1beta2.PreemptionStrategy{
	{configv1beta2.LessThanOrEqualToFinalShare},
	{configv1beta2.LessThanInitialShare},
	{configv1beta2.LessThanOrEqualToFinalShare, configv1beta2.LessThanInitialShare},
}

func validateRetention(p *configv1beta2.ObjectRetentionPolicies, path *field.Path) field.ErrorList {
	if p == nil || p.Workloads == nil {
		return nil
	}
	return append(
		notNegative(p.Workloads.AfterFinished, path.Child("afterFinished")),
		notNegative(p.Workloads.AfterDeactivatedByKueue, path.Child("afterDeactivatedByKueue"))...)
}

func validateLocalQueues(l *configv1beta2.LocalQueues, path *field.Path) field.ErrorList {
	known := []string{string(configv1beta2.GenerateNone), string(configv1beta2.GenerateDefault), string(configv1beta2.GenerateAsClusterQueue)}
	if l == nil || l.Generate == "" || slices.Contains(known, string(l.Generate)) {
		return nil
	}
	return field.ErrorList{notSupported(path.Child("generate"), string(l.Generate), known)}
}

func validateVisibility(v *configv1beta2.VisibilityServer, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	if v.BindAddress != nil && *v.BindAddress != "" && net.ParseIP(*v.BindAddress) == nil {
		errs = append(errs, field.Invalid(path.Child("bindAddress"), *v.BindAddress, "must be an IP address"))
	}
	return append(errs, validatePort(*v.BindPort, path.Child("bindPort"))...)
}

func validatePort(port int32, path *field.Path) field.ErrorList {
	if port < 1 || port > 65535 {
		return field.ErrorList{field.Invalid(path, port, "must be a port, 1 to 65535")}
	}
	return nil
}

// invalidIf returns an error with messages, none without messages.
func invalidIf(messages []string, value string, path *field.Path) field.ErrorList {
	if len(messages) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, strings.Join(messages, "; "))}
}

// validateAddress checks a host:port; empty and "0" turn a listener off.
func validateAddress(address string, path *field.Path) field.ErrorList {
	if address == "" || address == "0" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return field.ErrorList{field.Invalid(path, address, `must be host:port or :port, or "0" for off`)}
	}
	if n, err := strconv.Atoi(port); err == nil && (n < 0 || n > 65535) {
		return field.ErrorList{field.Invalid(path, address, "the port must be 0 to 65535")}
	}
	return nil
}

func positive(d time.Duration, path *field.Path) field.ErrorList {
	if d <= 0 {
		return field.ErrorList{field.Invalid(path, d.String(), "must be above 0")}
	}
	return nil
}

func notNegative(d *metav1.Duration, path *field.Path) field.ErrorList {
	if d != nil && d.Duration < time.Duration(0) {
		return field.ErrorList{field.Invalid(path, d.Duration.String(), "must be at least 0")}
	}
	return nil
}

// notSupported is field.NotSupported with the nearest name first.
func notSupported(path *field.Path, value string, known []string) *field.Error {
	err := field.NotSupported(path, value, known)
	if near := strict.Nearest(value, known); near != "" {
		err.Detail = "did you mean " + near + "? " + err.Detail
	}
	return err
}
