package cli

import (
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/metrics"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/wire"
)

const managerHelp = `Runs the manager: webhooks, queues, scheduler and the integrations of job kinds. It runs in a cluster or outside of one.

  berth manager --kubeconfig ~/.kube/config --install

An API server on this machine (127.0.0.1, as of "berth up --no-manager") reaches the webhooks at https://127.0.0.1:PORT, another
one through the Service in the manager's namespace. --webhook-url names another way. The visibility API is reached on the same machine.

It fails where another controller of these APIs runs, and says which: berth preflight --plan prints how to take its place.
Leave out what another controller does already, or pause all admission while everything else keeps working:

  berth manager --controllers=-jobset
  berth manager --controllers=-scheduler

Show queues and workloads in a browser, at http://127.0.0.1:8080, to those who show a token, and no more than its owner may read:

  berth manager --dashboard-bind-address=127.0.0.1:8080`

// manager is the command line of `berth manager`.
type manager struct {
	kubeconfig  string
	install     bool
	versions    string // to serve, if it installs
	webhookURL  string
	webhookPort int
	certDir     string
	leaderElect bool
	jobSets     options.Client // of the JobSet controller
	log         logging
	settings    settings
	addresses   addresses
	dashboard   dashboard
}

func newManager(build metrics.Build) *cobra.Command {
	m := &manager{}
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "run the manager on a cluster",
		Long:  managerHelp,
		RunE:  func(cmd *cobra.Command, _ []string) error { return m.run(cmd, build) },
	}
	m.addFlags(cmd.Flags())
	return cmd
}

func (m *manager) addFlags(flags *pflag.FlagSet) {
	kubeconfigFlag(flags, &m.kubeconfig)
	m.settings.add(flags)
	m.addresses.add(flags, ":8443", ":8081", ":8082")
	m.dashboard.add(flags)
	flags.IntVar(&m.webhookPort, "webhook-port", 0, "port of the webhooks (default 9443)")
	flags.StringVar(&m.certDir, "webhook-cert-dir", "",
		"folder with tls.crt and tls.key to serve the webhooks with; their configuration is then somebody else's (default: one is made and shared in a Secret)")
	flags.StringVar(&m.webhookURL, "webhook-url", "", "URL under which the API server reaches the webhooks (default as said above)")
	flags.Float32Var(&m.jobSets.QPS, "kube-api-qps", 0, "requests about JobSets in a second, negative for no limit (default as in the configuration, 500)")
	flags.IntVar(&m.jobSets.Burst, "kube-api-burst", 0, "requests about JobSets at once (default as in the configuration, 500)")
	flags.BoolVar(&m.leaderElect, "leader-elect", true, "let one of several managers decide")
	flags.BoolVar(&m.install, "install", false, "first install the CRDs, access rules and webhook configurations")
	apiVersionsFlag(flags, &m.versions, "with --install: ")
	m.log.add(flags)
}

func (m *manager) run(cmd *cobra.Command, build metrics.Build) error {
	cfg, err := m.config(cmd)
	if err != nil {
		return err
	}
	if cfg.REST, err = connect(cmd.Context(), m.kubeconfig, build); err != nil {
		return err
	}
	if cfg.WebhookURL == "" && onLoopback(cfg.REST) {
		cfg.Options.Webhook.Host = "127.0.0.1"
		cfg.WebhookURL = "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(cfg.Options.Webhook.Port))
		if host, port, err := net.SplitHostPort(cfg.Options.VisibilityAddress); err == nil && host == "" {
			cfg.Options.VisibilityAddress = net.JoinHostPort("127.0.0.1", port)
		}
	}
	cfg.Log.Info("Starting Berth", "version", build.Version, "commit", build.Commit, "date", build.Date, "server", cfg.REST.Host)
	limitMemory(cfg.Log, memoryLimits)
	if err := tellConfiguration(cfg.Log, &cfg.Options); err != nil {
		return err
	}
	cfg.Build, cfg.OnReady = build, func() { cfg.Log.Info("Ready") }
	if err := wire.Run(cmd.Context(), cfg); err != nil && !interrupted(cmd.Context()) {
		return err
	}
	return nil
}

// tellConfiguration logs the effective configuration, with its defaults and before the flags. spec: 70 §3.1.
func tellConfiguration(log logr.Logger, o *options.Options) error {
	text, err := o.YAML()
	if err != nil {
		return err
	}
	log.Info("The configuration, with its defaults", "yaml", text)
	return nil
}

// config checks the command line.
func (m *manager) config(cmd *cobra.Command) (wire.Config, error) {
	o, groups, err := m.settings.load()
	if err != nil {
		return wire.Config{}, err
	}
	if err := m.addresses.apply(&o); err != nil {
		return wire.Config{}, err
	}
	if err := m.dashboard.apply(&o, "", os.Getenv); err != nil {
		return wire.Config{}, err
	}
	flags := cmd.Flags()
	if flags.Changed("webhook-port") {
		if m.webhookPort < 1 || m.webhookPort > maxPort {
			return wire.Config{}, cluster.Usage("--webhook-port %d: must be from 1 to %d", m.webhookPort, maxPort)
		}
		o.Webhook.Port = m.webhookPort
	}
	if flags.Changed("leader-elect") {
		o.LeaderElection.Enabled = m.leaderElect
	}
	if err := m.limitJobSets(flags, &o); err != nil {
		return wire.Config{}, err
	}
	if err := checkWebhookURL(m.webhookURL); err != nil {
		return wire.Config{}, err
	}
	if err := m.checkCertDir(); err != nil {
		return wire.Config{}, err
	}
	only, err := m.onlyV1beta2()
	if err != nil {
		return wire.Config{}, err
	}
	log, err := m.log.open(cmd.ErrOrStderr())
	if err != nil {
		return wire.Config{}, err
	}
	return wire.Config{
		Reload:  m.settings.reload(),
		Options: o, Groups: groups, ServingCertDir: m.certDir, WebhookURL: m.webhookURL, Install: m.install, OnlyV1beta2: only, Log: log,
	}, nil
}

func (m *manager) checkCertDir() error {
	if m.certDir == "" {
		return nil
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		if _, err := os.Stat(filepath.Join(m.certDir, name)); err != nil {
			return cluster.Usage("--webhook-cert-dir: %w: put tls.crt and tls.key there", err)
		}
	}
	return nil
}

// onlyV1beta2 reads --api-versions.
func (m *manager) onlyV1beta2() (bool, error) {
	if m.versions != "" && !m.install {
		return false, cluster.Usage("--api-versions is about what --install installs: give both, or neither")
	}
	return onlyV1beta2(m.versions)
}

// limitJobSets overrides the configuration with the flags of JobSet's own manager. spec: 70 §5.5.
func (m *manager) limitJobSets(flags *pflag.FlagSet, o *options.Options) error {
	if flags.Changed("kube-api-qps") {
		o.JobSet.Client.QPS = m.jobSets.QPS
	}
	if flags.Changed("kube-api-burst") {
		o.JobSet.Client.Burst = m.jobSets.Burst
	}
	switch {
	case flags.Changed("kube-api-qps") && m.jobSets.QPS == 0:
		return cluster.Usage("--kube-api-qps 0: must be more than 0, or negative for no limit")
	case flags.Changed("kube-api-burst") && o.JobSet.Client.QPS > 0 && o.JobSet.Client.Burst < 1:
		return cluster.Usage("--kube-api-burst %d: must be at least 1", o.JobSet.Client.Burst)
	}
	return nil
}
