package local

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/metrics"
	"github.com/berth-project/berth/internal/options"
)

// started runs a bare control plane, with or without a manager, until the test ends it.
type started struct {
	Record
	stop  context.CancelFunc
	ended chan error
}

func start(t *testing.T, change func(*Config)) *started {
	t.Helper()
	groups, err := install.ParseGroups("")
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan Record, 1)
	cfg := Config{
		Plane: embedded.Config{Dir: t.TempDir(), Bare: true}, Build: metrics.Build{Version: "test"}, Options: options.Default(), Groups: groups,
		Log: testr.New(t), OnReady: func(r Record) { ready <- r },
	}
	change(&cfg)
	ctx, cancel := context.WithCancel(context.Background())
	s := &started{stop: cancel, ended: make(chan error, 1)}
	go func() { s.ended <- Run(ctx, cfg) }()
	t.Cleanup(func() {
		cancel()
		<-s.ended
	})
	s.Record = wait.Ready(t, "the cluster", ready, s.ended)
	return s
}

// end waits for Run to return.
func (s *started) end() error {
	err := <-s.ended
	close(s.ended)
	return err
}

func TestRunWithManager(t *testing.T) {
	var dir string
	var writes atomic.Int32
	s := start(t, func(cfg *Config) {
		dir = cfg.Plane.Dir
		cfg.Intercept = func(next http.RoundTripper) http.RoundTripper {
			return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodGet {
					writes.Add(1)
				}
				return next.RoundTrip(r)
			})
		}
	})
	if found, ok, err := Find(dir); !ok || err != nil || found != s.Record || !found.Ready || found.Version != "test" {
		t.Errorf("Find: %+v, %v, %v; want %+v", found, ok, err, s.Record)
	}
	if !strings.HasPrefix(s.Metrics, "127.0.0.1:") || s.WebhookPort == 0 {
		t.Errorf("record %+v", s.Record)
	}
	response, err := http.Get("http://" + s.Health + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("readyz: %s", response.Status)
	}
	if writes.Load() < 15 { // the installation alone writes more
		t.Errorf("saw %d writes of the manager", writes.Load())
	}
	groups, _ := install.ParseGroups("")
	err = Run(context.Background(), Config{Plane: embedded.Config{Dir: dir, Bare: true}, Options: options.Default(), Groups: groups})
	if err == nil || !strings.Contains(err.Error(), "already runs in "+dir) {
		t.Errorf("a second one: %v", err)
	}
	s.stop()
	if err := s.end(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if pid, found, err := alive(dir); found || err != nil {
		t.Errorf("process %d still runs: %v", pid, err)
	}
}

// The manager follows the configuration file, and the addresses that are chosen for it are no change of the file.
func TestManagerConfigFollowsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func() (options.Options, error) { return options.Default(), nil }
	manager, release, err := managerConfig(&Config{Options: options.Default(), Reload: load}, &Record{Kubeconfig: file})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if manager.Reload == nil {
		t.Fatal("the file is not read again")
	}
	again, _ := manager.Reload()
	if changed := options.Changes(&manager.Options, &again); len(changed) > 0 {
		t.Errorf("%v counts as changed", changed)
	}
}

// Addresses that the user chose are kept.
func TestRunKeepsAddresses(t *testing.T) {
	s := start(t, func(cfg *Config) {
		cfg.Options.Health.Address, cfg.Options.Metrics.Address = "0", "0"
	})
	if s.Health != "0" || s.Metrics != "0" {
		t.Errorf("record %+v", s.Record)
	}
}

func TestRunStopsWhenControlPlaneDoes(t *testing.T) {
	for name, tc := range map[string]struct {
		signal  syscall.Signal
		problem string
	}{
		"it is stopped": {syscall.SIGTERM, "the control plane was stopped by somebody else"},
		"it is killed":  {syscall.SIGKILL, "killed"},
	} {
		t.Run(name, func(t *testing.T) {
			var dir string
			s := start(t, func(cfg *Config) { dir, cfg.NoManager = cfg.Plane.Dir, true })
			plane, found, err := embedded.Find(dir)
			if err != nil || !found {
				t.Fatalf("no control plane: %v", err)
			}
			if err := syscall.Kill(plane.PID, tc.signal); err != nil {
				t.Fatal(err)
			}
			if err := s.end(); err == nil || !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("Run: %v, want %q", err, tc.problem)
			}
			if _, found, err := Find(dir); found || err != nil {
				t.Errorf("it still runs: %v", err)
			}
		})
	}
}

// Stop also ends a control plane without an `up`.
func TestStopControlPlaneAlone(t *testing.T) {
	dir := t.TempDir()
	plane, err := embedded.Start(context.Background(), embedded.Config{Dir: dir, Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plane.Stop(context.Background()) }()
	if ran, err := Stop(context.Background(), dir, 30*time.Second, &bytes.Buffer{}); !ran || err != nil {
		t.Errorf("Stop: %v, %v", ran, err)
	}
	<-plane.Done()
}

func TestRunIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	dir := t.TempDir()
	if err := Run(ctx, Config{Plane: embedded.Config{Dir: dir, Bare: true}, NoManager: true}); err != nil {
		t.Errorf("Run: %v", err)
	}
	if pid, found, err := alive(dir); found || err != nil {
		t.Errorf("process %d still runs: %v", pid, err)
	}
}
