package training

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"

	configtrainer "github.com/berth-project/berth/api/config/trainer/v1alpha1"
	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
)

// Defaults of a configuration file of the Trainer (spec: 50 §4.11).
const (
	documentSecret = "kubeflow-trainer-webhook-cert"
	documentLease  = "trainer.kubeflow.org"
	documentQPS    = 50
	documentBurst  = 100
)

// Upgrade converts a file of the Trainer to a configuration of the manager, with the Trainer's defaults where they differ.
func Upgrade(doc *configtrainer.Configuration) *configv1beta2.Configuration {
	c := &configv1beta2.Configuration{
		Manager: configv1beta2.Manager{
			Webhook: configv1beta2.Webhook{Port: doc.Webhook.Port, Host: doc.Webhook.Host},
			Metrics: configv1beta2.Metrics{BindAddress: doc.Metrics.BindAddress}, Health: doc.Health,
			LeaderElection: doc.LeaderElection,
		},
		InternalCertManagement: doc.CertManagement, ClientConnection: doc.ClientConnection, FeatureGates: doc.FeatureGates,
		Trainer: &configv1beta2.Trainer{StatusServer: doc.StatusServer},
	}
	if c.LeaderElection == nil {
		c.LeaderElection = &configv1beta2.LeaderElection{LeaderElect: new(false)}
	}
	if c.LeaderElection.ResourceName == "" {
		c.LeaderElection.ResourceName = documentLease
	}
	if doc.Controller != nil {
		c.Controller = &configv1beta2.Controller{GroupKindConcurrency: doc.Controller.GroupKindConcurrency}
	}
	setIfNil(&c.InternalCertManagement, configv1beta2.InternalCertManagement{})
	if certs := c.InternalCertManagement; certs.Enable == nil || *certs.Enable {
		setIfNil(&certs.WebhookServiceName, statusService)
		setIfNil(&certs.WebhookSecretName, documentSecret)
	}
	setIfNil(&c.ClientConnection, configv1beta2.ClientConnection{})
	setIfNil(&c.ClientConnection.QPS, documentQPS)
	setIfNil(&c.ClientConnection.Burst, documentBurst)
	return c
}

// Complete returns a document of the Trainer with every default, from the configuration that it was upgraded to.
func Complete(doc *configtrainer.Configuration, c *configv1beta2.Configuration) *configtrainer.Configuration {
	out := doc.DeepCopy()
	out.APIVersion, out.Kind = configtrainer.GroupVersion.String(), configtrainer.Kind
	out.Webhook = configtrainer.Webhook{Port: c.Webhook.Port, Host: c.Webhook.Host}
	out.Metrics.BindAddress = c.Metrics.BindAddress
	setIfNil(&out.Metrics.SecureServing, true)
	setIfNil(&out.Metrics.Auth, configtrainer.MetricsAuth{})
	setIfNil(&out.Metrics.Auth.Enabled, false)
	out.Health, out.LeaderElection = c.Health, c.LeaderElection
	out.Controller = &configtrainer.Controller{GroupKindConcurrency: c.Controller.GroupKindConcurrency}
	out.CertManagement, out.ClientConnection = c.InternalCertManagement, c.ClientConnection
	out.StatusServer, out.FeatureGates = c.Trainer.StatusServer, c.FeatureGates
	return out
}

// paths are the fields whose names differ between a file of the Trainer and the manager's configuration.
var paths = map[string]string{"internalCertManagement": "certManagement", "trainer.statusServer": "statusServer"}

// Path returns the path of a field of the manager's configuration in a file of the Trainer.
func Path(field string) string {
	for ours, theirs := range paths { //berth:unordered no path begins like the other
		if rest, ok := strings.CutPrefix(field, ours); ok {
			return theirs + rest
		}
	}
	return field
}

var ofProcess = []string{"webhook", "metrics", "health", "leaderElection", "certManagement", "clientConnection", "tls"}

// Join adds the settings for TrainJobs of a document of the Trainer to a configuration of the manager in the same file. It returns a warning
// for each ignored setting. isSet reports whether the document has a field.
func Join(c *configv1beta2.Configuration, doc *configtrainer.Configuration, isSet func(field string) bool) (warnings []string) {
	own := configv1beta2.GroupVersion.String()
	for _, field := range ofProcess {
		if isSet(field) {
			warnings = append(warnings, fmt.Sprintf("%s: %s is about the whole process, for which the document of %s decides; remove it", configtrainer.GroupVersion, field, own))
		}
	}
	setIfNil(&c.Trainer, configv1beta2.Trainer{})
	switch {
	case c.Trainer.StatusServer == nil:
		c.Trainer.StatusServer = doc.StatusServer
	case doc.StatusServer != nil:
		warnings = append(warnings, fmt.Sprintf("%s: statusServer has no effect beside trainer.statusServer of %s; remove one", configtrainer.GroupVersion, own))
	}
	if doc.Controller != nil {
		setIfNil(&c.Controller, configv1beta2.Controller{})
		c.Controller.GroupKindConcurrency = joined(c.Controller.GroupKindConcurrency, doc.Controller.GroupKindConcurrency)
	}
	c.FeatureGates = joined(c.FeatureGates, doc.FeatureGates)
	return warnings
}

// joined merges two maps. The first has precedence.
func joined[V any](first, second map[string]V) map[string]V {
	out := make(map[string]V, len(first)+len(second))
	maps.Copy(out, second)
	maps.Copy(out, first)
	return out
}

// Protocols are what the listeners may negotiate.
type Protocols struct {
	MinVersion   uint16 // 0: the library's
	CipherSuites []uint16
	NextProtos   []string
}

var versions = map[string]uint16{
	"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11, "VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
}

// ResolveTLS parses names of versions and cipher suites. Unknown names are dropped and insecure suites accepted, with a warning (spec: 50
// §4.11).
func ResolveTLS(c *configtrainer.TLS) (p Protocols, warnings []string) {
	if c == nil {
		return p, nil
	}
	p.NextProtos = c.NextProtos
	if c.MinVersion != "" {
		version, known := versions[c.MinVersion]
		switch {
		case !known:
			warnings = append(warnings, fmt.Sprintf("tls.minVersion: %q is not known, and left out; the default applies", c.MinVersion))
		case version < tls.VersionTLS12:
			warnings = append(warnings, fmt.Sprintf("tls.minVersion: %s is not safe; VersionTLS12 applies", c.MinVersion))
		default:
			p.MinVersion = version
		}
	}
	for i, name := range c.CipherSuites {
		named := func(s *tls.CipherSuite) bool { return s.Name == name }
		if j := slices.IndexFunc(tls.CipherSuites(), named); j >= 0 {
			p.CipherSuites = append(p.CipherSuites, tls.CipherSuites()[j].ID)
			continue
		}
		j := slices.IndexFunc(tls.InsecureCipherSuites(), named)
		if j < 0 {
			warnings = append(warnings, fmt.Sprintf("tls.cipherSuites[%d]: %q is not known, and left out", i, name))
			continue
		}
		p.CipherSuites = append(p.CipherSuites, tls.InsecureCipherSuites()[j].ID)
		warnings = append(warnings, fmt.Sprintf("tls.cipherSuites[%d]: %s is not safe", i, name))
	}
	return p, warnings
}
