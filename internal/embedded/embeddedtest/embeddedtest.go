// Package embeddedtest provides a real API server for tests: a bare control plane, for one test or shared by all tests of a package. A
// missing binary fails the test instead of skipping it.
package embeddedtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-project/berth/internal/embedded"
)

const (
	startLimit = 2 * time.Minute
	stopLimit  = 30 * time.Second
)

// Option changes what Start starts.
type Option func(*embedded.Config)

// Full starts a whole cluster, with controllers, a scheduler and simulated nodes, instead of a bare API server.
func Full(cfg *embedded.Config) { cfg.Bare = false }

// Topology starts a whole cluster whose simulated nodes are in levels, such as block=2,rack=4,host=8; see simnode.ParseTopology. A test makes
// a node fail with simnode.FailureAnnotation.
func Topology(levels string) Option {
	return func(cfg *embedded.Config) { cfg.Bare, cfg.Topology = false, levels }
}

// Start starts a control plane for this test alone, bare unless an option changes that, and returns the path of its kubeconfig. It is
// stopped when the test ends, and the test fails if it ended before.
func Start(t testing.TB, options ...Option) (kubeconfig string) {
	t.Helper()
	plane, err := start(t.TempDir(), options...)
	if err != nil {
		t.Fatalf("control plane: %v", err)
	}
	t.Cleanup(func() {
		if err := stop(plane); err != nil {
			t.Errorf("control plane: %v", err)
		}
	})
	return plane.Kubeconfig()
}

// shared is the control plane of Config, started on its first use, and the ones of Exclusive and Lease; Main stops them.
var shared struct {
	sync.Mutex
	dir   string // set while Main runs
	plane *embedded.ControlPlane
	err   error

	exclusive []*embedded.ControlPlane // all of them
	idle      []*embedded.ControlPlane

	leases     int // begun; their control planes are among exclusive
	idleLeases []*leased
}

// Main runs the tests of a package that share one control plane, and returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }
//
// Four parallel tests run at once, as they mostly wait, unless -parallel is set or the flags are parsed already.
func Main(m *testing.M) int { return mainOf(m, "4") }

// MainOfClusters is Main for tests that have whole clusters or several control planes each: two of those keep two cores busy, and more only make
// each other late.
func MainOfClusters(m *testing.M) int { return mainOf(m, "2") }

func mainOf(m *testing.M, atOnce string) int {
	if !flag.Parsed() {
		_ = flag.Set("test.parallel", atOnce) // fails for no number
	}
	dir, err := os.MkdirTemp("", "berth-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	shared.dir = dir
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	planes := shared.exclusive
	if shared.plane != nil {
		planes = append(planes, shared.plane)
	}
	for _, plane := range planes {
		if err := stop(plane); err != nil {
			fmt.Fprintf(os.Stderr, "control plane: %v\n", err)
			code = max(code, 1)
		}
	}
	return code
}

// Config returns the configuration of an administrator of a bare API server, without a rate limit. With Main all tests of the package
// share the server: use a unique namespace, whose deletion does not finish. Without Main the test gets its own server.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	kubeconfig := sharedKubeconfig(t)
	if kubeconfig == "" {
		kubeconfig = Start(t)
	}
	return ConfigOf(t, kubeconfig)
}

// ConfigOf returns the configuration of the administrator in a kubeconfig, without a rate limit: client-go's default of 5 requests a
// second would delay most tests.
func ConfigOf(t testing.TB, kubeconfig string) *rest.Config {
	t.Helper()
	config, err := configFrom(kubeconfig)
	if err != nil {
		t.Fatalf("control plane: %v", err)
	}
	return config
}

func configFrom(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}

// Exclusive is Config for parallel tests with a manager of the whole cluster: the test has the server alone until it ends; then the next
// test gets it. There are as many servers as parallel tests. It needs Main.
func Exclusive(t testing.TB) *rest.Config {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.dir == "" {
		t.Fatal("Exclusive needs embeddedtest.Main")
	}
	if len(shared.idle) == 0 {
		plane, err := start(filepath.Join(shared.dir, fmt.Sprintf("exclusive%d", len(shared.exclusive))))
		if err != nil {
			t.Fatalf("control plane: %v", err)
		}
		shared.exclusive, shared.idle = append(shared.exclusive, plane), []*embedded.ControlPlane{plane}
	}
	last := len(shared.idle) - 1
	plane := shared.idle[last]
	shared.idle = shared.idle[:last]
	t.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		if err := plane.Err(); err != nil {
			t.Errorf("control plane: %v", err)
			return
		}
		shared.idle = append(shared.idle, plane)
	})
	return ConfigOf(t, plane.Kubeconfig())
}

// sharedKubeconfig starts the shared control plane unless it runs. It is empty without Main.
func sharedKubeconfig(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.dir == "" {
		return ""
	}
	if shared.plane == nil && shared.err == nil {
		shared.plane, shared.err = start(filepath.Join(shared.dir, "controlplane"))
	}
	if shared.err == nil {
		shared.err = shared.plane.Err()
	}
	if shared.err != nil {
		t.Fatalf("control plane: %v", shared.err)
	}
	return shared.plane.Kubeconfig()
}

func start(dir string, options ...Option) (*embedded.ControlPlane, error) {
	cfg := embedded.Config{Dir: dir, Bare: true}
	for _, option := range options {
		option(&cfg)
	}
	end, err := awaitTurn()
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return embedded.Start(ctx, cfg)
}

// awaitTurn waits until no other control plane is being started on this machine. Some packages and their parallel tests start a dozen at about the
// same time: together they take as long as one after the other, but starve what runs already, and requests to webhooks time out.
func awaitTurn() (end func(), err error) {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("berth-test-starts-%d", os.Getuid())), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	return func() { _ = file.Close() }, err // the lock ends with the file, and with the process
}

func stop(plane *embedded.ControlPlane) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return plane.Stop(ctx)
}
