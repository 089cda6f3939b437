// Package takeover installs Berth over a cluster as another system of the same API leaves it: objects of that system's field managers and
// releases, in every state of a life. Nothing is restarted, suspended, evicted or admitted twice, life goes on, and the other system could
// take the cluster back.
package takeover

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/wire"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.MainOfClusters(m)) }

const configuration = `kind: Configuration
integrations:
  frameworks: [batch/job, jobset.x-k8s.io/jobset, trainer.kubeflow.org/trainjob, pod, ray.io/raycluster, ray.io/rayjob, statefulset,
    leaderworkerset.x-k8s.io/leaderworkerset, kubeflow.org/pytorchjob,
    kubeflow.org/tfjob, kubeflow.org/xgboostjob, kubeflow.org/paddlejob, kubeflow.org/jaxjob, kubeflow.org/mpijob]
multiKueue: {gcInterval: 2s}
`

// berth is Berth on a world: the settings with which its managers start.
type berth struct {
	*world
	options options.Options
	url     string
	writes  counter
}

// newBerth loads the configuration, in a version of it: in that of an old release waitForPodsReady is off. Nothing is installed yet.
func newBerth(w *world, version string) *berth {
	w.Helper()
	path := filepath.Join(w.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: config.kueue.x-k8s.io/"+version+"\n"+configuration), 0o600); err != nil {
		w.Fatal(err)
	}
	o, err := options.Load(path)
	if err != nil {
		w.Fatal(err)
	}
	o.LeaderElection.Enabled, o.JobSet.Lease.Enabled = false, false // a busy machine must not end them
	o.Metrics.Address, o.Health.Address, o.VisibilityAddress = "0", "0", "0"
	o.Webhook.Host, o.Webhook.Port, o.Client.QPS = "127.0.0.1", embeddedtest.FreePort(w.T), -1
	return &berth{world: w, options: o, url: "https://127.0.0.1:" + strconv.Itoa(o.Webhook.Port), writes: counter{of: map[string][]string{}}}
}

// manager is a running manager.
type manager struct {
	ready chan struct{}
	ended chan error
	log   *lines
	stop  func()
}

// run starts a manager, which dies at one of its writes if the Mortal is given. It ends with the test.
func (b *berth) run(installs bool, mortal *embeddedtest.Mortal) *manager {
	b.Helper()
	groups, err := install.ParseGroups("")
	if err != nil {
		b.Fatal(err)
	}
	cfg := rest.CopyConfig(b.admin)
	cfg.Wrap(b.writes.wrap)
	if mortal != nil {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			dying := mortal.Wrap(next)
			return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
				if isReview(r) || (!installs && !isOfWorld(r)) {
					return next.RoundTrip(r)
				}
				return dying.RoundTrip(r)
			})
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &manager{ready: make(chan struct{}), ended: make(chan error, 1), log: &lines{}}
	log := funcr.New(m.log.add, funcr.Options{})
	go func() {
		m.ended <- wire.Run(ctx, wire.Config{
			REST: cfg, Options: b.options, Groups: groups, WebhookURL: b.url, Install: installs, OnReady: func() { close(m.ready) }, Log: log,
		})
	}()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-m.ended; err != nil && mortal == nil {
			b.Errorf("the manager ended: %v", err)
		}
	})
	b.Cleanup(func() {
		m.stop()
		if b.Failed() {
			b.Logf("log of a manager:\n%s", m.log.tail())
		}
	})
	return m
}

// takeOver starts a manager that stays, and waits until it has nothing more to write.
func (b *berth) takeOver() *manager {
	b.Helper()
	m := b.run(true, nil)
	wait.Ready(b.T, "the manager", m.ready, m.ended)
	b.waitForWrites()
	return m
}

// takeOverKilled starts managers that are killed, one after another: while they install, and then each at a write to an object of the world,
// the first at its first one, and each next one a write later, until one has fewer to write. These are at least
// the given number. A last one stays, and is returned.
func (b *berth) takeOverKilled(least int) *manager {
	b.Helper()
	random := embeddedtest.Random(b.T)
	for _, most := range []int{10, 100, 170} { // of some 180 objects
		mortal := &embeddedtest.Mortal{Dies: 1 + random.IntN(most)}
		if !b.diesAtWrite(b.run(true, mortal), mortal) {
			b.Fatalf("installing needs less than %d writes", mortal.Dies)
		}
	}
	groups, err := install.ParseGroups("")
	if err != nil {
		b.Fatal(err)
	}
	all := install.Options{WebhookURL: b.url, Options: b.options, Groups: groups}
	if err := install.Apply(b.Context(), b.admin, all, io.Discard); err != nil {
		b.Fatal(err)
	}
	b.stored.Version = "v1beta2"
	kills := 0
	for {
		mortal := &embeddedtest.Mortal{Dies: 1 + kills}
		if !b.diesAtWrite(b.run(false, mortal), mortal) {
			break
		}
		kills++
	}
	b.Logf("%d managers were killed at a write to the world", kills)
	if kills < least {
		b.Errorf("only %d managers were killed", kills)
	}
	return b.takeOver()
}

// diesAtWrite waits until a manager dies, or writes nothing for some time, and stops it. It reports whether the manager died.
func (b *berth) diesAtWrite(m *manager, mortal *embeddedtest.Mortal) (died bool) {
	b.Helper()
	count, since := -1, time.Now()
	wait.Until(b.T, "the manager dies or rests", func() error {
		mortal.Revive(func() { died = true })
		if died {
			return nil
		}
		select {
		case <-m.ready:
		default:
			return errors.New("it is not ready")
		}
		if n := b.writes.sum(); n != count {
			count, since = n, time.Now()
		}
		if time.Since(since) < resting {
			return errors.New("it was ready a moment ago")
		}
		return nil
	})
	m.stop()
	return died
}

// resting is how long a manager that has nothing to do writes nothing.
const resting = 3 * time.Second

// waitForWrites waits for the end of the writes. The world is read in the version of Berth from now on.
func (b *berth) waitForWrites() {
	b.Helper()
	b.stored.Version = "v1beta2"
	wait.Quiet(b.T, resting, b.writes.sum)
}

// isReview reports whether a request asks who or what is allowed, which is made like a write.
func isReview(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "reviews") }

// isOfWorld reports whether a request is about an object that the other system has left, and not about certificates and installed objects.
func isOfWorld(r *http.Request) bool {
	return strings.Contains(r.URL.Path, "/namespaces/"+team+"/") || strings.HasPrefix(r.URL.Path, "/apis/kueue.x-k8s.io/")
}

// counter records successful writes by object, as resource and name. Events are not counted.
type counter struct {
	mu sync.Mutex
	of map[string][]string
}

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper {
	return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
		body := contentOf(r)
		response, err := next.RoundTrip(r)
		kind := embeddedtest.KindOfWrite(r)
		if r.Method != http.MethodGet && err == nil && response.StatusCode < http.StatusMultipleChoices && !strings.Contains(kind, " events") && !isReview(r) {
			resource, _, _ := strings.Cut(strings.TrimPrefix(kind, r.Method+" "), "/")
			object := resource + " " + filepath.Base(strings.TrimSuffix(r.URL.Path, "/status"))
			c.mu.Lock()
			defer c.mu.Unlock()
			c.of[object] = append(c.of[object], kind+" "+body)
		}
		return response, err
	})
}

// contentOf is the body of a write.
func contentOf(r *http.Request) string {
	if r.GetBody == nil {
		return ""
	}
	body, err := r.GetBody()
	if err != nil {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(body, 4096))
	return string(text)
}

// sum is the number of all writes.
func (c *counter) sum() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, writes := range c.of {
		n += len(writes)
	}
	return n
}

// to returns the writes to each object of a resource.
func (c *counter) to(resource string) map[string][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string][]string{}
	for object, writes := range c.of {
		if strings.HasPrefix(object, resource+" ") {
			out[object] = slices.Clone(writes)
		}
	}
	return out
}

// lines keeps the log of a manager.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) add(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, time.Now().Format("05.000 ")+prefix+" "+args)
}

func (l *lines) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.text[max(0, len(l.text)-60):], "\n")
}
