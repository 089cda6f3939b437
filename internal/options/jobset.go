package options

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	jobsetconfig "github.com/berth-project/berth/api/jobsetconfig/v1alpha1"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/options/strict"
)

// JobSetLease is the default name of the Lease of an upstream controller of JobSets (spec: 60 §2.2).
const JobSetLease = "6d4f6a47.jobset.x-k8s.io"

// Defaults of JobSet's own configuration (spec: 60 §2.2).
const (
	jobSetQPS            = 500
	jobSetNamespace      = "jobset-system"
	jobSetWebhookService = "jobset-webhook-service"
	jobSetWebhookSecret  = "jobset-webhook-server-cert"

	jobSetMetricsCerts = "/tmp/k8s-metrics-server/serving-certs"

	// MetricsCertDir is the mounted folder of a provided certificate of the metrics. spec: 70 §4.4.
	MetricsCertDir = "/etc/kueue/metrics/certs"
)

// JobSet is the resolved section jobSet.
type JobSet struct {
	// LazyChildren creates the children of a JobSet once it is admitted.
	LazyChildren bool
	// FailEarly handles the failure of a Job before its pods have ended.
	FailEarly bool
	// Client limits the requests for JobSets.
	Client Client
	// Lease is the lease of an upstream controller of JobSets.
	Lease LeaderElection
}

func setJobSetDefaults(js *configv1beta2.JobSet) {
	js.ClientConnection = orNew(js.ClientConnection)
	if c := js.ClientConnection; c.QPS == nil || *c.QPS == 0 {
		c.QPS = new(float32(jobSetQPS))
	}
	if c := js.ClientConnection; c.Burst == nil || *c.Burst == 0 {
		c.Burst = new(int32(jobSetQPS))
	}
	js.LeaderElection = orNew(js.LeaderElection)
	setZero(&js.LeaderElection.ResourceName, JobSetLease)
	setZero(&js.LeaderElection.ResourceNamespace, jobSetNamespace)
	setElectionDefaults(js.LeaderElection)
}

func resolveJobSet(js *configv1beta2.JobSet) JobSet {
	return JobSet{
		LazyChildren: js.CreateChildrenOnAdmission,
		FailEarly:    js.ActOnFailingJobs,
		Client:       Client{QPS: *js.ClientConnection.QPS, Burst: int(*js.ClientConnection.Burst)},
		Lease:        resolveLeaderElection(js.LeaderElection, jobSetNamespace),
	}
}

// jobSetFile is a document of JobSet's own kind in the manager's file (spec: 70 §3.1).
type jobSetFile struct {
	strict.Decoder
	set jobsetconfig.Configuration
}

// jobSetSections are the fields of the document that are also sections of jobSet.
var jobSetSections = []string{"clientConnection", "leaderElection"}

var jobSetGates = []feature.Gate{feature.ElasticJobSet, feature.InPlaceRestart, feature.RestartJob, feature.TLSOptions}

func readJobSetFile(source string, root *yaml.Node) *jobSetFile {
	f := &jobSetFile{Decoder: strict.Decoder{Source: source}}
	f.Decode(root, &f.set)
	return f
}

func (f *jobSetFile) fault(path, format string, args ...any) {
	f.Problems = append(f.Problems, Problem{Source: f.Source, Line: f.Line(path), Field: path, Detail: fmt.Sprintf(format, args...)})
}

// join copies the settings of the document to the manager's configuration.
func (f *jobSetFile) join(c *configv1beta2.Configuration) {
	c.JobSet = orNew(c.JobSet)
	if own := f.set.ClientConnection; own != nil {
		if c.JobSet.ClientConnection != nil {
			f.fault("clientConnection", "is here and in jobSet of %s; keep one of them", configv1beta2.GroupVersion)
		}
		c.JobSet.ClientConnection = own
	}
	if own := f.set.LeaderElection; own != nil {
		if c.JobSet.LeaderElection != nil {
			f.fault("leaderElection", "is here and in jobSet of %s; keep one of them", configv1beta2.GroupVersion)
		}
		c.JobSet.LeaderElection = own
	}
	f.joinGates(c)
}

// joinGates adds the feature gates. AllAlpha and AllBeta are limited to JobSet's gates, none of which is beta.
func (f *jobSetFile) joinGates(c *configv1beta2.Configuration) {
	var known []string
	for _, gate := range jobSetGates {
		known = append(known, gate.String())
	}
	gates := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(f.set.FeatureGates)) {
		on := f.set.FeatureGates[name]
		path := "featureGates[" + name + "]"
		other, both := c.FeatureGates[name]
		switch {
		case name == "AllAlpha":
			for _, gate := range jobSetGates {
				if _, named := f.set.FeatureGates[gate.String()]; !named && gate.Stage() == feature.Alpha {
					gates[gate.String()] = on
				}
			}
		case name == "AllBeta":
		case !slices.Contains(known, name):
			f.fault(path, "is no feature gate of JobSet; %s", strict.DidYouMean(name, known))
		case both && other != on:
			f.fault(path, "is %t here and %t in %s; keep one of them", on, other, configv1beta2.GroupVersion)
		default:
			gates[name] = on
		}
	}
	if len(gates) > 0 {
		maps.Copy(gates, c.FeatureGates)
		c.FeatureGates = gates
	}
}

// owns reports whether this document sets a field of the configuration, and by which of its fields.
func (f *jobSetFile) owns(path string) (own string, yes bool) {
	if f == nil {
		return "", false
	}
	for _, section := range jobSetSections {
		if _, written := f.Lines[section]; written && covers("jobSet."+section, path) {
			return strings.TrimPrefix(path, "jobSet."), true
		}
	}
	if strings.HasPrefix(path, "featureGates[") {
		_, yes = f.Lines[path]
	}
	return path, yes
}

// listener is a setting that applies to the whole process.
type listener struct {
	path, written, byDefault, effective string
}

// checkListeners refuses settings of the document about listeners and certificates that differ from the manager's, which apply to all its
// components. JobSet's defaults, which many files spell out, are ignored with a warning (spec: 70 §3.1). c has its defaults.
func (f *jobSetFile) checkListeners(c *configv1beta2.Configuration) (warnings []string) {
	var ignored []string
	for _, l := range f.listeners(c) {
		_, isSet := f.Lines[l.path]
		switch {
		case !isSet, l.written == l.effective:
		case l.written == l.byDefault:
			ignored = append(ignored, l.path)
		default:
			f.fault(l.path, "is %q, but JobSets are served with everything else, where it is %q; remove it, or set it in the document of %s", l.written, l.effective, configv1beta2.GroupVersion)
		}
	}
	if len(ignored) > 0 {
		warnings = append(warnings, fmt.Sprintf("these fields of the document of %s have no effect, as JobSets are served with everything else: %s",
			jobsetconfig.GroupVersion, strings.Join(ignored, ", ")))
	}
	return warnings
}

func (f *jobSetFile) listeners(c *configv1beta2.Configuration) []listener {
	s := &f.set
	number := func(n *int32, zero int) string {
		if n == nil || *n == 0 {
			return strconv.Itoa(zero)
		}
		return strconv.Itoa(int(*n))
	}
	out := []listener{
		{"webhook.port", number(s.Webhook.Port, defaultWebhookPort), strconv.Itoa(defaultWebhookPort), number(c.Webhook.Port, 0)},
		{"webhook.host", s.Webhook.Host, "", c.Webhook.Host},
		{"webhook.certDir", s.Webhook.CertDir, defaultCertDir, c.Webhook.CertDir},
		{"metrics.bindAddress", s.Metrics.BindAddress, defaultMetricsAddress, c.Metrics.BindAddress},
		{"metrics.certDir", s.Metrics.CertDir, jobSetMetricsCerts, MetricsCertDir},
		{"health.healthProbeBindAddress", s.Health.HealthProbeBindAddress, defaultHealthAddress, c.Health.HealthProbeBindAddress},
		{"health.readinessEndpointName", rooted(s.Health.ReadinessEndpointName), defaultReadinessPath, rooted(c.Health.ReadinessEndpointName)},
		{"health.livenessEndpointName", rooted(s.Health.LivenessEndpointName), defaultLivenessPath, rooted(c.Health.LivenessEndpointName)},
	}
	certs, have := orNew(s.InternalCertManagement), c.InternalCertManagement
	out = append(out, listener{"internalCertManagement.enable", strconv.FormatBool(certs.Enable == nil || *certs.Enable), "", strconv.FormatBool(*have.Enable)},
		listener{"internalCertManagement.webhookServiceName", ptr.Deref(certs.WebhookServiceName, ""), jobSetWebhookService, ptr.Deref(have.WebhookServiceName, "")},
		listener{"internalCertManagement.webhookSecretName", ptr.Deref(certs.WebhookSecretName, ""), jobSetWebhookSecret, ptr.Deref(have.WebhookSecretName, "")})
	if s.TLS != nil {
		have := orNew(c.TLS)
		out = append(out, listener{"tls.minVersion", s.TLS.MinVersion, "", cmp.Or(have.MinVersion, "VersionTLS12")},
			listener{"tls.cipherSuites", strings.Join(s.TLS.CipherSuites, ","), "", strings.Join(have.CipherSuites, ",")})
	}
	return out
}

func validateJobSet(js *configv1beta2.JobSet, path *field.Path) field.ErrorList {
	errs := validateClient(js.ClientConnection, path.Child("clientConnection"))
	return append(errs, validateLeaderElection(js.LeaderElection, path.Child("leaderElection"))...)
}

func setElectionDefaults(le *configv1beta2.LeaderElection) {
	setIfNil(&le.LeaderElect, true)
	setZero(&le.LeaseDuration.Duration, defaultLeaseDuration)
	setZero(&le.RenewDeadline.Duration, defaultRenewDeadline)
	setZero(&le.RetryPeriod.Duration, defaultRetryPeriod)
	setZero(&le.ResourceLock, leaseLock)
}
