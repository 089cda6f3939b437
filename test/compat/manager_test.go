// Package compat holds the manager against the specification, clause by clause, on a real API server: what a client of
// the queueing API can see of a Workload's life, and what remains true when writes fail, managers die and API servers
// restart. Tests carry the clause that they prove in their name, such as "10 §7.47".
package compat

import (
	"context"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/wire"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "32") // scenes wait more than they work
	os.Exit(embeddedtest.Main(m))
}

// pick is short, or many in a long run.
func pick(short, many int) int {
	if embeddedtest.Long() {
		return many
	}
	return short
}

// site is an API server with everything installed.
type site struct {
	admin *rest.Config // its administrator
	port  int          // where its webhooks are to be served
	url   string
}

// shared is the site that the tests of the package share.
var shared struct {
	sync.Once
	*site
}

// configured reads the text of a configuration file, with the listeners that tests need.
func configured(t *testing.T, text string) options.Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	head := "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
	if err := os.WriteFile(path, []byte(head+text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := options.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	o.LeaderElection.Enabled, o.JobSet.Lease.Enabled = false, false // a busy machine must not end them
	o.Metrics.Address, o.Health.Address, o.VisibilityAddress = "0", "0", "0"
	o.Webhook.Host = "127.0.0.1"
	return o
}

// cluster is the site that the tests of the package share.
func cluster(t *testing.T) *site {
	t.Helper()
	admin := embeddedtest.Config(t)
	shared.Do(func() { shared.site = setUp(t, admin) })
	if shared.site == nil {
		t.Fatal("the installation failed in another test")
	}
	return shared.site
}

func setUp(t *testing.T, admin *rest.Config) *site {
	t.Helper()
	s := &site{admin: admin, port: embeddedtest.FreePort(t)}
	s.url = "https://127.0.0.1:" + strconv.Itoa(s.port)
	s.apply(t, "")
	return s
}

func (s *site) apply(t *testing.T, config string) {
	t.Helper()
	o := install.Options{WebhookURL: s.url, Options: configured(t, config), Groups: groups(t, "")}
	if err := install.Apply(context.Background(), s.admin, o, io.Discard); err != nil {
		t.Fatal(err)
	}
}

// install gives the managers of a test the rights and the webhooks of another configuration.
func (s *site) install(t *testing.T, config string) {
	t.Helper()
	s.apply(t, config)
	t.Cleanup(func() { s.apply(t, "") })
}

// groups selects the groups of controllers that a manager runs.
func groups(t *testing.T, list string) install.Groups {
	t.Helper()
	g, err := install.ParseGroups(list)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// manager runs in this process, with the access rules that are installed.
type manager struct {
	t     *testing.T
	stop  context.CancelFunc
	ended chan error
	once  sync.Once
	log   *lines
}

// setting changes how a manager runs.
type setting func(*wire.Config)

// through routes every request of the manager through a transport.
func through(wrap func(http.RoundTripper) http.RoundTripper) setting {
	return func(c *wire.Config) { c.REST.Wrap(wrap) }
}

// only makes the manager run some groups of controllers.
func only(t *testing.T, list string) setting {
	return func(c *wire.Config) { c.Groups = groups(t, list) }
}

// running starts a manager with a configuration, and waits until it decides. It ends with the test.
func running(t *testing.T, config string, settings ...setting) *manager {
	t.Helper()
	m := launch(t, cluster(t), configured(t, config), settings...)
	m.ready()
	return m
}

// ready is called when the manager can be used.
func (m *manager) ready() {
	m.t.Helper()
	select {
	case <-m.log.ready:
	case err := <-m.ended:
		m.ended <- err
		m.t.Fatalf("the manager ended: %v\n%s", err, m.log.tail())
	case <-time.After(wait.Patience):
		m.t.Fatalf("the manager is not ready:\n%s", m.log.tail())
	}
}

// launch starts a manager, which may not be ready yet. It ends with the test, if the test does not end it before.
func launch(t *testing.T, at *site, o options.Options, settings ...setting) *manager {
	t.Helper()
	account := rest.CopyConfig(at.admin)
	account.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + o.Namespace + ":kueue-controller-manager",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	o.Webhook.Port, o.Client.QPS = at.port, -1
	ctx, cancel := context.WithCancel(context.Background())
	m := &manager{t: t, stop: cancel, ended: make(chan error, 1), log: &lines{ready: make(chan struct{})}}
	cfg := wire.Config{
		REST: account, Options: o, Groups: groups(t, ""), WebhookURL: at.url,
		OnReady: func() { close(m.log.ready) }, Log: m.log.logger(),
	}
	for _, set := range settings {
		set(&cfg)
	}
	go func() { m.ended <- wire.Run(ctx, cfg) }()
	t.Cleanup(func() {
		if err := m.end(); err != nil {
			t.Errorf("the manager ended: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the manager:\n%s", m.log.tail())
		}
	})
	return m
}

// end stops the manager and waits for that.
func (m *manager) end() (err error) {
	m.once.Do(func() {
		m.stop()
		err = <-m.ended
	})
	return err
}

// lines keeps the end of a log.
type lines struct {
	ready chan struct{}
	mu    sync.Mutex
	text  []byte
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text = append(l.text, time.Now().Format("05.000 ")+prefix+" "+args+"\n"...)
		if len(l.text) > 1<<17 {
			l.text = append([]byte(nil), l.text[1<<16:]...)
		}
	}, funcr.Options{Verbosity: 0})
}

func (l *lines) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text[max(0, len(l.text)-1<<14):])
}

// connect makes a client without a rate limit.
func connect(t *testing.T, admin *rest.Config) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(admin, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
