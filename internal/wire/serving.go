package wire

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/berth-project/berth/internal/admission/certs"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/install/upstream"
	"github.com/berth-project/berth/internal/listen"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/visibility"
)

// prepare refuses to run beside another controller of the same APIs. Then it gets our own certificate unless certificates are provided,
// installs the manifests if configured, and writes the CA bundles.
func prepare(ctx context.Context, cfg *Config) error {
	c, err := client.NewWithWatch(cfg.REST, client.Options{Scheme: install.Scheme()})
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	o := install.Options{WebhookURL: cfg.WebhookURL, Options: cfg.Options, Groups: cfg.Groups, OnlyV1beta2: cfg.OnlyV1beta2}
	if err := cfg.refuse(ctx, c, &o); err != nil {
		return err
	}
	if cfg.keeper, err = certificate(ctx, c, cfg, &o); err != nil {
		return err
	}
	if cfg.keeper != nil {
		o.VisibilityCABundle = cfg.keeper.CA()
		if cfg.ownWebhookCert() {
			o.CABundle = cfg.keeper.CA()
		}
	}
	if cfg.Install {
		return install.Apply(ctx, cfg.REST, o, logWriter{cfg.Log.WithName("install")})
	}
	if cfg.keeper != nil {
		if err := cfg.keeper.Trust(ctx, cfg.keeper.CA()); err != nil { // the other targets have it, and call the webhooks of this manager
			cfg.Log.Error(err, "The serving certificate is not known everywhere; the manager goes on trying")
		}
	}
	return nil
}

// refuse returns an error if another controller of the same APIs runs.
func (cfg *Config) refuse(ctx context.Context, c client.Reader, o *install.Options) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("the name of this machine or pod: %w", err)
	}
	s := upstream.Start{Groups: cfg.Groups, Pod: types.NamespacedName{Namespace: cfg.Options.Namespace, Name: host}, Now: time.Now()}
	switch election := &cfg.Options.LeaderElection; {
	case cfg.Install:
		s.Installs = o
	case election.Enabled:
		s.Waits = types.NamespacedName{Namespace: election.Namespace, Name: election.Name}
	}
	return s.Refuse(ctx, c)
}

// ownWebhookCert reports whether the webhooks are served with our own certificate.
func (cfg *Config) ownWebhookCert() bool {
	return cfg.Groups.Has(install.Webhooks) && cfg.ServingCertDir == "" && cfg.Options.Certs.Internal
}

// certificate returns the keeper of the certificate of the webhooks, the visibility API and the metrics, which the first replica creates;
// nil if certificates are provided.
func certificate(ctx context.Context, c client.WithWatch, cfg *Config, o *install.Options) (*certs.Keeper, error) {
	if !cfg.Options.Certs.Internal || (!cfg.ownWebhookCert() && !install.ServesVisibility(&cfg.Options)) {
		return nil, nil // no certificate of ours is no error
	}
	hosts, err := certificateHosts(cfg)
	if err != nil {
		return nil, err
	}
	objects, err := install.Callers(o)
	if err != nil {
		return nil, err
	}
	if !cfg.ownWebhookCert() {
		objects = slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() != "APIService" })
	}
	if cfg.Install {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cfg.Options.Namespace}}
		if err := c.Create(ctx, ns); client.IgnoreAlreadyExists(err) != nil {
			return nil, fmt.Errorf("creating namespace %s: %w", cfg.Options.Namespace, err)
		}
	}
	keeper := &certs.Keeper{
		Client: c, Hosts: hosts, Targets: certs.Targets(objects), Now: time.Now, Log: cfg.Log.WithName("certificate"),
		Secret: types.NamespacedName{Namespace: cfg.Options.Namespace, Name: cfg.Options.Certs.Secret},
	}
	if err := keeper.Prepare(ctx); err != nil {
		if cfg.ownWebhookCert() {
			return nil, err
		}
		// With a provided certificate of the webhooks, the namespace need not exist.
		cfg.Log.Error(err, "There is no certificate for the visibility API")
		return nil, nil
	}
	return keeper, nil
}

// certificateHosts returns the host names under which the API server and readers of metrics call.
func certificateHosts(cfg *Config) ([]string, error) {
	namespace := cfg.Options.Namespace
	webhooks := cfg.Options.Certs.Service + "." + namespace + ".svc"
	hosts := []string{webhooks, webhooks + ".cluster.local"}
	if cfg.WebhookURL != "" {
		u, err := url.Parse(cfg.WebhookURL)
		if err != nil || u.Hostname() == "" {
			return nil, fmt.Errorf("webhook URL %q has no host; give one like https://host:9443", cfg.WebhookURL)
		}
		hosts = []string{u.Hostname()}
	}
	if cfg.WebhookURL == "" && servesProgress(&cfg.Options, cfg.Groups) {
		hosts = append(hosts, cfg.Options.Trainer.StatusService+"."+namespace+".svc")
	}
	prefix := install.PrefixOf(cfg.Options.Certs.Service)
	if install.ServesVisibility(&cfg.Options) {
		for _, host := range visibility.Hosts(namespace) {
			hosts = append(hosts, install.Prefixed(host, prefix))
		}
	}
	return append(hosts, install.Prefixed(install.MetricsService, prefix)+"."+namespace+".svc"), nil
}

// webhookServer returns the options of the webhook server: our own certificate, or the one in a folder, which is watched for changes.
func webhookServer(cfg *Config) ctrlwebhook.Options {
	o := &cfg.Options.Webhook
	serve := ctrlwebhook.Options{Host: o.Host, Port: o.Port, CertDir: cfg.webhookCertDir(), TLSOpts: []func(*tls.Config){cfg.limitTLS}}
	if cfg.ownWebhookCert() {
		serve.TLSOpts = append(serve.TLSOpts, cfg.useOwnCertificate)
	}
	if o.ClientCAFile != "" {
		serve.TLSOpts = append(serve.TLSOpts, func(c *tls.Config) { c.ClientAuth = tls.RequestClientCert }) // webhookCallers checks it
	}
	return serve
}

// webhookCertDir returns the folder of the webhooks' certificate if it is not our own.
func (cfg *Config) webhookCertDir() string {
	return cmp.Or(cfg.ServingCertDir, cfg.Options.Webhook.CertDir)
}

func newWebhookServer(cfg *Config) ctrlwebhook.Server {
	o := webhookServer(cfg)
	if !cfg.Reserved[net.JoinHostPort(o.Host, strconv.Itoa(o.Port))] {
		return ctrlwebhook.NewServer(o)
	}
	return listen.SharedWebhooks(o, cfg.Log)
}

// webhookCallers returns the check of the clients that send admission reviews; nil if every client may.
func webhookCallers(cfg *Config) (*listen.Callers, error) {
	o := &cfg.Options.Webhook
	if o.ClientCAFile == "" {
		return nil, nil // no check is no error
	}
	c := &listen.Callers{File: o.ClientCAFile, Names: o.ClientNames}
	if err := c.Ready(); err != nil {
		return nil, fmt.Errorf("webhook.clientCAFile: %w", err)
	}
	return c, nil
}

// limitTLS applies the section tls of the configuration to a listener. The list of protocols in the configuration is
// what is offered; without one, HTTP/2 and HTTP/1.1 are. spec: 70 §2.1.3.
func (cfg *Config) limitTLS(c *tls.Config) {
	o := &cfg.Options.TLS
	c.MinVersion = max(o.MinVersion, tls.VersionTLS12)
	c.CipherSuites, c.CurvePreferences = o.CipherSuites, o.Curves
	c.NextProtos = o.NextProtos
	if c.NextProtos == nil {
		c.NextProtos = []string{"h2", "http/1.1"}
	}
}

// useOwnCertificate sets our own certificate, if there is one.
func (cfg *Config) useOwnCertificate(c *tls.Config) {
	if cfg.keeper != nil {
		c.GetCertificate = cfg.keeper.Certificate
	}
}

// servingTLS returns the TLS settings of a listener: with our own certificate, or with the one in dir, which is watched for changes.
func (cfg *Config) servingTLS(mgr ctrl.Manager, own bool, dir string) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	cfg.limitTLS(out)
	if own {
		cfg.useOwnCertificate(out)
		return out, nil
	}
	watcher, err := certwatcher.New(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, err
	}
	out.GetCertificate = watcher.GetCertificate
	return out, mgr.Add(watcher)
}

// metricsCerts returns the folder with the certificate of the metrics, which is watched for changes. If it is empty, the certificate is
// our own or self-signed.
func metricsCerts(cfg *Config) string {
	dir := cmp.Or(cfg.MetricsCertDir, options.MetricsCertDir)
	if _, err := os.Stat(filepath.Join(dir, "tls.crt")); err != nil || cfg.keeper != nil {
		return ""
	}
	return dir
}
