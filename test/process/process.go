// Package process runs `berth manager` as a process of its own, for tests that kill and measure it.
package process

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// Binary is a program that `make build` left in bin/.
func Binary(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is not built: run `make build`", path)
	}
	return path
}

// Manager is a running `berth manager`.
type Manager struct {
	Visibility string        // the address of its visibility API
	Ended      chan struct{} // closed when it has ended

	t      testing.TB
	cmd    *exec.Cmd
	health string
	log    log
	killed atomic.Bool
}

// Start starts a manager with arguments and waits until it is ready. It ends with the test, which shows the end of its log if it fails.
func Start(t testing.TB, kubeconfig string, args ...string) *Manager {
	t.Helper()
	address := func() string { return "127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(t)) }
	m := &Manager{t: t, health: address(), Visibility: address(), Ended: make(chan struct{})}
	m.cmd = exec.Command(Binary(t, "berth"), append([]string{
		"manager", "--kubeconfig", kubeconfig, "--health-probe-bind-address", m.health, "--metrics-bind-address", "0",
		"--visibility-bind-address", m.Visibility,
	}, args...)...)
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = m.cmd.Wait() // the test checks how it ended
		close(m.Ended)
	}()
	t.Cleanup(func() {
		killed := m.killed.Load()
		m.Kill()
		if t.Failed() && !killed { // its log explains no failure after the test has killed it
			t.Logf("log of a manager:\n%s", m.log.tail())
		}
	})
	wait.Until(t, "the manager is ready", func() error {
		select {
		case <-m.Ended:
			t.Fatalf("the manager ended:\n%s", m.log.tail())
		default:
		}
		return m.Ready()
	})
	return m
}

// Ready asks the probe.
func (m *Manager) Ready() error {
	response, err := http.Get("http://" + m.health + "/readyz")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return nil
}

// Signal sends it a signal.
func (m *Manager) Signal(s os.Signal) {
	m.t.Helper()
	if err := m.cmd.Process.Signal(s); err != nil {
		m.t.Fatal(err)
	}
}

// Kill ends it as a crash would.
func (m *Manager) Kill() {
	m.killed.Store(true)
	_ = m.cmd.Process.Kill() // fails when it is dead already
	<-m.Ended
}

// CPU is the processor time that it has used.
func (m *Manager) CPU() time.Duration {
	m.t.Helper()
	stat, err := m.proc().Stat()
	if err != nil {
		m.t.Fatal(err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second))
}

// RSS is its resident memory in MiB.
func (m *Manager) RSS() float64 { return float64(m.status().VmRSS) / (1 << 20) }

// PeakRSS is the most resident memory that it ever had, in MiB.
func (m *Manager) PeakRSS() float64 { return float64(m.status().VmHWM) / (1 << 20) }

func (m *Manager) status() procfs.ProcStatus {
	m.t.Helper()
	status, err := m.proc().NewStatus()
	if err != nil {
		m.t.Fatal(err)
	}
	return status
}

func (m *Manager) proc() procfs.Proc {
	m.t.Helper()
	p, err := procfs.NewProc(m.cmd.Process.Pid)
	if err != nil {
		m.t.Fatal(err)
	}
	return p
}

// log keeps the output of a process.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// tail is the last lines, long ones cut: the reason of a failure comes before them, and has to be visible.
func (l *log) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(l.buf.String(), "\n")
	lines = lines[max(0, len(lines)-25):]
	for i, line := range lines {
		lines[i] = line[:min(len(line), 300)]
	}
	return strings.Join(lines, "\n")
}
