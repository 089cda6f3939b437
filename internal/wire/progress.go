package wire

import (
	"fmt"
	"net"
	"net/url"
	"strconv"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/listen"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/training/progress"
)

func servesProgress(o *options.Options, groups install.Groups) bool {
	return groups.Has(install.Training) && o.Gates.On(feature.TrainJobStatus)
}

// locateProgress sets the URL for reports of progress if the manager is not reached by its Service.
func locateProgress(cfg *Config) error {
	if cfg.WebhookURL == "" || !servesProgress(&cfg.Options, cfg.Groups) {
		return nil
	}
	u, err := url.Parse(cfg.WebhookURL)
	if err != nil {
		return fmt.Errorf("webhook URL %q: %w", cfg.WebhookURL, err)
	}
	cfg.Options.Trainer.StatusURL = "https://" + net.JoinHostPort(u.Hostname(), strconv.Itoa(cfg.Options.Trainer.StatusPort))
	return nil
}

// addProgress adds the server for reports of progress on every replica. It has the certificate of the webhooks, and its own client, so that
// reports cannot delay other requests (spec: 50 §4.8).
func addProgress(mgr ctrl.Manager, cfg *Config) error {
	o := &cfg.Options.Trainer
	account := rest.CopyConfig(mgr.GetConfig())
	account.QPS, account.Burst, account.RateLimiter = o.StatusQPS, o.StatusBurst, nil
	if o.StatusQPS == 0 {
		account.QPS = -1
	}
	c, err := client.New(account, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return err
	}
	tokens, err := progress.NewTokens(account, mgr.GetHTTPClient(), c, mgr.GetCache())
	if err != nil {
		return err
	}
	config, err := cfg.servingTLS(mgr, cfg.ownWebhookCert(), cfg.webhookCertDir())
	if err != nil {
		return fmt.Errorf("the certificate for reports of progress: %w", err)
	}
	log := cfg.Log.WithName("progress")
	server := &progress.Server{Client: c, Verify: tokens, Answered: cfg.meter.ProgressReported, Log: log}
	at := &listen.Listener{
		What: "the server for reports of progress", Setting: "trainer.statusServer.port", Address: o.StatusAddress, Shared: cfg.Reserved[o.StatusAddress],
		TLS: config, Server: server.HTTP(), Log: log,
	}
	if err := cfg.probes.AddLiveness(mgr, "status-server-healthz", at.Check); err != nil {
		return err
	}
	if err := cfg.probes.AddReadiness(mgr, "status-server-readyz", at.Check); err != nil {
		return err
	}
	return mgr.Add(at)
}
