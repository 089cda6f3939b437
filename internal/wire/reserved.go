package wire

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/berth-project/berth/internal/listen"
	"github.com/berth-project/berth/internal/options"
)

// Servers of controller-runtime bind their ports themselves, without a way to share one that is reserved. Those here stand in for
// them where an address is reserved.

// readHeaderTimeout is how long a client may take to send the head of a request.
const readHeaderTimeout = 32 * time.Second

// reservedWebhooks is a webhook server on a reserved port: controller-runtime's, but for its listener.
type reservedWebhooks struct {
	ctrlwebhook.Server
	o   ctrlwebhook.Options
	cfg *Config
}

// newWebhookServer makes the server of the webhooks.
func newWebhookServer(cfg *Config) ctrlwebhook.Server {
	o := webhookServer(cfg)
	if !cfg.Reserved[net.JoinHostPort(o.Host, strconv.Itoa(o.Port))] {
		return ctrlwebhook.NewServer(o)
	}
	o.WebhookMux = http.NewServeMux()
	return &reservedWebhooks{Server: ctrlwebhook.NewServer(o), o: o, cfg: cfg}
}

// Start serves until ctx ends.
func (w *reservedWebhooks) Start(ctx context.Context) error {
	config := &tls.Config{NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	for _, set := range w.o.TLSOpts {
		set(config)
	}
	if config.GetCertificate == nil {
		certificate, err := certwatcher.New(w.o.CertDir+"/tls.crt", w.o.CertDir+"/tls.key")
		if err != nil {
			return fmt.Errorf("the certificate of the webhooks: %w", err)
		}
		config.GetCertificate = certificate.GetCertificate
		go func() {
			if err := certificate.Start(ctx); err != nil {
				w.cfg.Log.Error(err, "The certificate of the webhooks is not watched")
			}
		}()
	}
	return (&listen.Listener{
		What: "the webhooks", Setting: "webhook.port", Address: net.JoinHostPort(w.o.Host, strconv.Itoa(w.o.Port)), Shared: true, TLS: config,
		Server: &http.Server{Handler: w.o.WebhookMux, ReadHeaderTimeout: readHeaderTimeout}, Log: w.cfg.Log.WithName("webhooks"),
	}).Start(ctx)
}

// probes answer the health probes on a reserved port.
type probes struct {
	mu          sync.Mutex
	live, ready map[string]healthz.Checker
}

// addLiveness adds a check that fails when the manager has to be started again.
func (cfg *Config) addLiveness(mgr ctrl.Manager, name string, check healthz.Checker) error {
	cfg.probes.add(&cfg.probes.live, name, check)
	return mgr.AddHealthzCheck(name, check)
}

// addReadiness adds a check that has to pass before the manager counts as ready.
func (cfg *Config) addReadiness(mgr ctrl.Manager, name string, check healthz.Checker) error {
	cfg.probes.add(&cfg.probes.ready, name, check)
	return mgr.AddReadyzCheck(name, check)
}

func (p *probes) add(to *map[string]healthz.Checker, name string, check healthz.Checker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *to == nil {
		*to = map[string]healthz.Checker{}
	}
	(*to)[name] = check
}

func (p *probes) all(of *map[string]healthz.Checker) map[string]healthz.Checker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(*of)
}

// serve has the manager serve the probes, before it waits for its caches.
func (p *probes) serve(mgr ctrl.Manager, o *options.Health) error {
	config := listen.Sharing()
	listener, err := config.Listen(context.Background(), "tcp", o.Address)
	if err != nil {
		return fmt.Errorf("the health probes cannot be served: %w", err)
	}
	mux := http.NewServeMux()
	for path, checks := range map[string]*map[string]healthz.Checker{o.LivenessPath: &p.live, o.ReadinessPath: &p.ready} {
		answer := http.StripPrefix(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			(&healthz.Handler{Checks: p.all(checks)}).ServeHTTP(w, r)
		}))
		mux.Handle(path, answer)
		mux.Handle(path+"/", answer)
	}
	return mgr.Add(&manager.Server{
		Name: "health probe", Server: &http.Server{Handler: mux, ReadHeaderTimeout: readHeaderTimeout}, Listener: listener,
	})
}
