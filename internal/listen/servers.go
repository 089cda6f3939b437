package listen

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

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/berth-project/berth/internal/options"
)

// Servers of controller-runtime bind their ports themselves and cannot share a reserved one. The servers here replace them on reserved
// addresses.

// readHeaderTimeout is how long a client may take to send the head of a request.
const readHeaderTimeout = 32 * time.Second

// sharedWebhooks is controller-runtime's webhook server with another listener: on a reserved port.
type sharedWebhooks struct {
	ctrlwebhook.Server
	o   ctrlwebhook.Options
	log logr.Logger
}

// SharedWebhooks makes a webhook server on a reserved port.
func SharedWebhooks(o ctrlwebhook.Options, log logr.Logger) ctrlwebhook.Server {
	o.WebhookMux = http.NewServeMux()
	return &sharedWebhooks{Server: ctrlwebhook.NewServer(o), o: o, log: log}
}

// Start serves until ctx ends.
func (w *sharedWebhooks) Start(ctx context.Context) error {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
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
				w.log.Error(err, "The certificate of the webhooks is not watched")
			}
		}()
	}
	return (&Listener{
		What: "the webhooks", Setting: "webhook.port", Address: net.JoinHostPort(w.o.Host, strconv.Itoa(w.o.Port)), Shared: true, TLS: config,
		Server: &http.Server{Handler: w.o.WebhookMux, ReadHeaderTimeout: readHeaderTimeout}, Log: w.log.WithName("webhooks"),
	}).Start(ctx)
}

// Probes are the checks of the health probes. Serve answers them on a reserved port.
type Probes struct {
	mu          sync.Mutex
	live, ready map[string]healthz.Checker
}

// AddLiveness adds a check that fails when the manager has to be restarted.
func (p *Probes) AddLiveness(mgr ctrl.Manager, name string, check healthz.Checker) error {
	p.add(&p.live, name, check)
	return mgr.AddHealthzCheck(name, check)
}

// AddReadiness adds a check that must pass before the manager counts as ready.
func (p *Probes) AddReadiness(mgr ctrl.Manager, name string, check healthz.Checker) error {
	p.add(&p.ready, name, check)
	return mgr.AddReadyzCheck(name, check)
}

func (p *Probes) add(to *map[string]healthz.Checker, name string, check healthz.Checker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *to == nil {
		*to = map[string]healthz.Checker{}
	}
	(*to)[name] = check
}

func (p *Probes) all(of *map[string]healthz.Checker) map[string]healthz.Checker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(*of)
}

// Serve makes the manager serve the probes before it waits for its caches.
func (p *Probes) Serve(mgr ctrl.Manager, o *options.Health) error {
	config := Sharing()
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
