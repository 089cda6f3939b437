package restartagent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

func TestFromEnv(t *testing.T) {
	base := Config{Namespace: "lab", JobSet: "ring", Pod: "ring-oar-0-0", Shell: "bash", ProbePath: "/barrier-is-down", ProbePort: 8081, RestartCode: 1}
	cases := map[string]struct {
		env  string
		want func(*Config)
		errs []string
	}{
		"the least":     {env: "JOBSET_NAME=ring POD_NAME=ring-oar-0-0"},
		"nothing":       {errs: []string{"JOBSET_NAME is not set", "POD_NAME is not set"}},
		"a worker":      {env: "JOBSET_NAME=ring POD_NAME=ring-oar-0-0 WORKER_COMMAND=train SHELL=/bin/sh", want: func(c *Config) { c.Worker, c.Shell = "train", "/bin/sh" }},
		"the exit code": {env: "JOBSET_NAME=ring POD_NAME=ring-oar-0-0 IN_PLACE_RESTART_EXIT_CODE=42", want: func(c *Config) { c.RestartCode = 42 }},
		"a probe":       {env: "JOBSET_NAME=ring POD_NAME=ring-oar-0-0 STARTUP_PROBE_PATH=up STARTUP_PROBE_PORT=9", want: func(c *Config) { c.ProbePath, c.ProbePort = "/up", 9 }},
		"a worker and a probe": {
			env:  "JOBSET_NAME=ring POD_NAME=ring-oar-0-0 WORKER_COMMAND=train STARTUP_PROBE_PATH=/up STARTUP_PROBE_PORT=9",
			errs: []string{"STARTUP_PROBE_PATH and WORKER_COMMAND are both set", "STARTUP_PROBE_PORT and WORKER_COMMAND are both set"},
		},
		"no numbers": {
			env:  "JOBSET_NAME=ring POD_NAME=ring-oar-0-0 STARTUP_PROBE_PORT=0 IN_PLACE_RESTART_EXIT_CODE=one",
			errs: []string{`STARTUP_PROBE_PORT is "0", want a number from 1 to 65535`, `IN_PLACE_RESTART_EXIT_CODE is "one"`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{}
			for pair := range strings.FieldsSeq(tc.env) {
				name, value, _ := strings.Cut(pair, "=")
				env[name] = value
			}
			got, err := FromEnv("lab", func(name string) (string, bool) { value, ok := env[name]; return value, ok })
			for _, want := range tc.errs {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %s", err, want)
				}
			}
			if len(tc.errs) > 0 {
				return
			}
			want := base
			if tc.want != nil {
				tc.want(&want)
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// The worker's exit code is handed on, and a signal reaches all its processes.
func TestWorker(t *testing.T) {
	for command, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -9 $$": 128 + 9} {
		w, err := start("sh", command)
		if err != nil {
			t.Fatal(err)
		}
		if got := <-w.ended(); got != want {
			t.Errorf("%s: %d, want %d", command, got, want)
		}
	}
	if _, err := start(filepath.Join(t.TempDir(), "none"), "exit 0"); err == nil {
		t.Error("a shell that does not exist is no error")
	}
	file := filepath.Join(t.TempDir(), "told")
	w, err := start("sh", `trap 'echo told > `+file+`; exit 5' TERM; echo > `+file+`; while :; do sleep 0.01; done`)
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the worker has its trap", func() error { _, err := os.Stat(file); return err })
	a := &agent{worker: w}
	got, ok := errors.AsType[*Exit](a.interrupted(syscall.SIGTERM))
	if !ok || got.ExitCode() != 128+15 {
		t.Errorf("the agent ends with %v", got)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "told\n" {
		t.Errorf("the worker was not told: %q, %v", text, err)
	}
}

// A port that is taken ends the agent at once: no worker may wait for an answer that never comes. An agent that has ended left its port to
// the next one, which follows within the same process here.
func TestProbePort(t *testing.T) {
	port := embeddedtest.FreePort(t)
	one := func() *agent {
		return &agent{Config: Config{ProbePath: "/up", ProbePort: port}, lifted: make(chan struct{})}
	}
	for range 100 {
		failed := make(chan error, 2)
		free, err := one().serve(t.Context(), failed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := one().serve(t.Context(), failed); err == nil {
			t.Fatal("two agents listen on a port")
		}
		free()
		select {
		case err := <-failed:
			t.Fatal(err)
		default:
		}
	}
}

// TestWriting: while the attempt cannot be written, the agent waits with the next state, and still hears signals and failures.
func TestWriting(t *testing.T) {
	gone, refused := errors.New("the watch ended"), errors.New("pods may not be patched")
	told := &Exit{128 + 15, "told to stop: terminated"}
	for name, tc := range map[string]struct {
		hangs   bool // the API server
		written bool // at last
		does    func(signals chan<- os.Signal, failed chan<- error)
		want    error
	}{
		"a signal":            {does: func(signals chan<- os.Signal, _ chan<- error) { signals <- syscall.SIGTERM }, want: told},
		"a signal, no answer": {hangs: true, does: func(signals chan<- os.Signal, _ chan<- error) { signals <- syscall.SIGTERM }, want: told},
		"a failure":           {does: func(_ chan<- os.Signal, failed chan<- error) { failed <- gone }, want: gone},
		"it is written":       {written: true, does: func(signals chan<- os.Signal, _ chan<- error) { signals <- syscall.SIGTERM }, want: told},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var accepts atomic.Bool // the API server
				a := &agent{Config: Config{Namespace: "lab", Pod: "p"}, say: func(string, ...any) {}, lifted: make(chan struct{})}
				a.client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
					Patch: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
						if tc.hangs {
							<-ctx.Done()
							return ctx.Err()
						}
						if accepts.Load() {
							return nil
						}
						return refused
					},
				})
				seen, signals, failed, ended := make(chan *jobsetv1alpha2.JobSet, 1), make(chan os.Signal, 1), make(chan error, 1), make(chan error, 1)
				go func() { ended <- a.run(t.Context(), seen, signals, failed) }()
				js := &jobsetv1alpha2.JobSet{Spec: jobsetv1alpha2.JobSetSpec{FailurePolicy: &jobsetv1alpha2.FailurePolicy{RestartStrategy: jobsetv1alpha2.RestartInPlace}}}
				seen <- js
				synctest.Wait()
				next := js.DeepCopy()
				next.Status.CurrentInPlaceRestartAttempt = new(int32(0))
				seen <- next
				synctest.Wait()
				if len(seen) != 1 {
					t.Error("the next state is acted upon before the attempt is written")
				}
				if tc.written {
					accepts.Store(true)
					time.Sleep(2 * retry)
					synctest.Wait()
				}
				tc.does(signals, failed)
				err := <-ended
				if exit, ok := errors.AsType[*Exit](err); !errors.Is(err, tc.want) && (!ok || *exit != *told) {
					t.Errorf("it ends with %v, want %v", err, tc.want)
				}
				select {
				case <-a.lifted:
					if !tc.written {
						t.Error("the barrier is lifted")
					}
				default:
					if tc.written {
						t.Error("the barrier is not lifted")
					}
				}
			})
		})
	}
}
