package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// parentEnv makes this test binary start a control plane in the named directory, print its address, and wait to be killed.
const parentEnv = "BERTH_EMBEDDED_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentEnv); dir != "" {
		plane, err := Start(context.Background(), Config{Dir: dir, Bare: true})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(plane.PID())
		<-plane.Done()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func startBare(t *testing.T, cfg Config) *ControlPlane {
	t.Helper()
	cfg.Bare = true
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	defer cancel()
	plane, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plane.Stop(context.Background()) })
	return plane
}

func TestStartAndStop(t *testing.T) {
	dir := t.TempDir()
	var progress bytes.Buffer
	plane := startBare(t, Config{Dir: dir, Stderr: &progress})

	if plane.Kubeconfig() != filepath.Join(dir, "kubeconfig") || !strings.HasPrefix(plane.Server(), "https://127.0.0.1:") {
		t.Errorf("kubeconfig %q, server %q", plane.Kubeconfig(), plane.Server())
	}
	if data, err := os.ReadFile(plane.Kubeconfig()); err != nil || !strings.Contains(string(data), plane.Server()) {
		t.Errorf("the kubeconfig does not lead to %s (error %v)", plane.Server(), err)
	}
	if plane.Err() != nil {
		t.Errorf("Err is %v while it runs", plane.Err())
	}
	running, found, err := Find(dir)
	if want := (Running{PID: plane.PID(), Server: plane.Server()}); err != nil || !found || running != want {
		t.Errorf("Find: %+v, %v, %v; want %+v", running, found, err, want)
	}
	_, err = Start(context.Background(), Config{Dir: dir, Bare: true})
	if err == nil || !strings.Contains(err.Error(), "already runs in "+dir+" (pid "+strconv.Itoa(plane.PID())) || strings.Contains(err.Error(), "\n") {
		t.Errorf("second start: %v", err)
	}

	for range 2 {
		if err := plane.Stop(context.Background()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}
	<-plane.Done()
	if plane.Err() != nil {
		t.Errorf("Err is %v after a clean stop", plane.Err())
	}
	if _, found, err := Find(dir); found || err != nil {
		t.Errorf("Find after the stop: %v, %v", found, err)
	}
	if !strings.Contains(progress.String(), "starting kube-apiserver\n") {
		t.Errorf("no progress: %q", progress.String())
	}
}

func TestProgramDies(t *testing.T) {
	plane := startBare(t, Config{Dir: t.TempDir()})
	if err := syscall.Kill(etcdOf(t, plane.PID()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-plane.Done()
	if err := plane.Err(); err == nil || !strings.HasPrefix(err.Error(), "etcd died (signal: killed); everything was stopped. The end of ") {
		t.Errorf("Err is %v", err)
	}
}

// etcdOf is the pid of the etcd of a control plane.
func etcdOf(t *testing.T, supervisor int) int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", supervisor))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for child := range strings.FieldsSeq(string(children)) {
			if line, err := os.ReadFile("/proc/" + child + "/cmdline"); err == nil && strings.HasPrefix(string(line), "etcd\x00") {
				pid, err := strconv.Atoi(child)
				if err != nil {
					t.Fatal(err)
				}
				return pid
			}
		}
	}
	t.Fatalf("no etcd among %v", lists)
	return 0
}

func TestStopGivesUpAndKills(t *testing.T) {
	plane := startBare(t, Config{Dir: t.TempDir()})
	// A stopped process does not react to SIGTERM.
	if err := syscall.Kill(plane.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := plane.Stop(ctx); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Stop: %v", err)
	}
}

func TestEndsWithItsParent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), parentEnv+"="+dir)
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var line string
	if _, err := fmt.Fscanln(stdout, &line); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatalf("the parent says %q", line)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	wait.Until(t, fmt.Sprintf("the control plane (pid %d) ends after its parent", pid), wait.Is(func() bool { return ended(pid) }))
	if _, found, err := Find(dir); found || err != nil {
		t.Errorf("Find: %v, %v", found, err)
	}
}

// ended reports whether a process no longer runs. An orphan may stay in the process table until init reaps it.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
}

func TestStartIsCancelled(t *testing.T) {
	dir := t.TempDir()
	cause := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(300*time.Millisecond, func() { cancel(cause) })
	if _, err := Start(ctx, Config{Dir: dir, Bare: true}); !errors.Is(err, cause) {
		t.Errorf("Start: %v, want %v", err, cause)
	}
	if _, found, err := Find(dir); found || err != nil {
		t.Errorf("something still runs: %v, %v", found, err)
	}
}

func TestStartFails(t *testing.T) {
	old := t.TempDir()
	if err := os.WriteFile(filepath.Join(old, "version"), []byte("berth-controlplane/0 kubernetes v1.0.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		binary  string // BERTH_CONTROLPLANE
		cfg     Config
		problem string
	}{
		"no directory":       {cfg: Config{}, problem: "set Dir"},
		"no such binary":     {binary: "/nonexistent/x", cfg: Config{Dir: t.TempDir()}, problem: "BERTH_CONTROLPLANE=/nonexistent/x is not a program: run make build"},
		"binary is a folder": {binary: "/", cfg: Config{Dir: t.TempDir()}, problem: "is not a program"},
		"says nothing":       {binary: "/bin/false", cfg: Config{Dir: t.TempDir()}, problem: "the control plane ended: exit status 1"},
		"ends well":          {binary: "/bin/true", cfg: Config{Dir: t.TempDir()}, problem: "stopped before it was ready"},
		"other version":      {cfg: Config{Dir: old}, problem: "is of berth-controlplane/0 kubernetes v1.0.0"},
		"bad capacity":       {cfg: Config{Dir: t.TempDir(), NodeCapacity: "cpu"}, problem: "--node-capacity:"},
		"bad nodes":          {cfg: Config{Dir: t.TempDir(), Nodes: -1}, problem: "--nodes -1"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.binary != "" {
				t.Setenv(BinaryEnv, tc.binary)
			}
			_, err := Start(context.Background(), tc.cfg)
			if err == nil || !strings.Contains(err.Error(), tc.problem) || strings.Contains(err.Error(), "\n") || strings.HasPrefix(err.Error(), "error: ") {
				t.Errorf("error %v, want one line with %q", err, tc.problem)
			}
		})
	}
}

func TestBinaryIsMissing(t *testing.T) {
	t.Setenv(BinaryEnv, "")
	t.Setenv("PATH", "")
	t.Chdir(t.TempDir())
	if _, err := find(); err == nil || !strings.Contains(err.Error(), "make build") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line with what to do", err)
	}
}

func TestFindsBinaryOnPath(t *testing.T) {
	dir := t.TempDir()
	want := filepath.Join(dir, binaryName)
	if err := os.WriteFile(want, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	t.Setenv(BinaryEnv, "")
	t.Setenv("PATH", dir)
	if got, err := find(); err != nil || got != want {
		t.Errorf("found %q (error %v), want %q", got, err, want)
	}
}

func TestFindInNoDirectory(t *testing.T) {
	if _, found, err := Find(filepath.Join(t.TempDir(), "missing")); found || err != nil {
		t.Errorf("Find: %v, %v; want nothing", found, err)
	}
}

func TestExplain(t *testing.T) {
	exit := errors.New("exit status 1")
	for name, tc := range map[string]struct {
		text string
		exit error
		want string
	}{
		"clean":           {"stopping\n", nil, ""},
		"error":           {"starting etcd\nerror: it is full\n", exit, "it is full"},
		"error and a log": {"error: etcd died:\n  line 1\n  line 2\n", exit, "etcd died:\n  line 1\n  line 2"},
		"the last error":  {"error: one\nerror: two\n", exit, "two"},
		"other words":     {"starting\npanic: ouch\n", exit, `the control plane ended: exit status 1 (it said last: "panic: ouch")`},
		"no words":        {"", exit, `the control plane ended: exit status 1 (it said last: "")`},
		"very many words": {strings.Repeat("progress\n", 20_000) + "error: late\n", exit, "late"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &complaint{}
			if _, err := c.Write([]byte(tc.text)); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := c.explain(tc.exit); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if len(c.text) > maxComplaint {
				t.Errorf("keeps %d bytes", len(c.text))
			}
		})
	}
}

// The error is the caller's to tell; what came before it is progress, however the
// output is cut into writes.
func TestProgressEndsWithTheError(t *testing.T) {
	const said = "starting etcd\nan error: not at the start of a line\nerror: port 1 is in use\nmore of it\n"
	for size := 1; size <= len(said); size++ {
		var progress strings.Builder
		c := &complaint{next: &progress}
		for rest := said; rest != ""; {
			n := min(size, len(rest))
			if _, err := c.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if got := progress.String(); got != "starting etcd\nan error: not at the start of a line\n" {
			t.Errorf("writes of %d bytes: progress %q", size, got)
		}
		if got := c.explain(errors.New("exit status 1")).Error(); got != "port 1 is in use\nmore of it" {
			t.Errorf("writes of %d bytes: error %q", size, got)
		}
	}
}
