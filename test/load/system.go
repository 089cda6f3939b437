package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
)

const (
	readyLimit = 2 * time.Minute
	stopLimit  = 20 * time.Second
	// profilePiece is the duration of one processor profile, which the server must know beforehand.
	profilePiece = 20 * time.Second
)

// system is the measured system: a bare control plane, and a manager as a process of its own.
type system struct {
	plane     *embedded.ControlPlane
	config    *rest.Config // of the administrator
	manager   *exec.Cmd
	log       string        // of the manager
	ended     chan struct{} // closed when the manager has ended
	pprof     string        // address, empty for none
	dashboard string        // address
	apiServer int           // pid
	etcd      int
	start     func(context.Context) error // starts a manager, and returns when it is ready
}

// startSystem starts a control plane in a directory, without a manager.
func startSystem(ctx context.Context, dir string, stderr io.Writer) (_ *system, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("not ready after %s", readyLimit))
	defer cancel()
	s := &system{log: filepath.Join(dir, "manager.log"), ended: make(chan struct{})}
	if s.plane, err = embedded.Start(ctx, embedded.Config{Dir: filepath.Join(dir, "controlplane"), Bare: true, Stderr: stderr}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.apiServer, err = child(s.plane.PID(), "kube-apiserver"); err != nil {
		return nil, err
	}
	if s.etcd, err = child(s.plane.PID(), "etcd"); err != nil {
		return nil, err
	}
	if s.config, err = clientcmd.BuildConfigFromFlags("", s.plane.Kubeconfig()); err != nil {
		return nil, err
	}
	return s, nil
}

// startManager starts a manager with extra arguments, and returns when it is ready. It installs first, in another process: that work is not
// the manager's.
func (s *system) startManager(ctx context.Context, dir, berth string, extra []string, o *options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("not ready after %s", readyLimit))
	defer cancel()
	var ports [6]int
	for i := range ports {
		port, err := embeddedtest.LeasePort()
		if err != nil {
			return err
		}
		ports[i] = port
	}
	webhooks, health := fmt.Sprint(ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	install := exec.CommandContext(ctx, berth, "install", "--kubeconfig", s.plane.Kubeconfig(), "--webhook-url", "https://127.0.0.1:"+webhooks)
	install.Args = append(install.Args, slices.DeleteFunc(slices.Clone(extra), func(arg string) bool { return !shared(arg) })...)
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("berth install: %w: %s", err, bytes.TrimSpace(out))
	}
	if o.plain {
		if err := withoutWebhooks(ctx, s.config); err != nil {
			return err
		}
		extra = append([]string{"--controllers=-webhooks"}, extra...)
	}
	args := []string{
		"manager", "--kubeconfig", s.plane.Kubeconfig(), "--webhook-port", webhooks, "--health-probe-bind-address", health,
		"--metrics-bind-address", fmt.Sprintf("127.0.0.1:%d", ports[2]), "--visibility-bind-address", fmt.Sprintf("127.0.0.1:%d", ports[4]),
	}
	if o.dashboard > 0 {
		s.dashboard = fmt.Sprintf("127.0.0.1:%d", ports[5])
		args = append(args, "--dashboard-bind-address", s.dashboard, "--dashboard-auth-mode", "Disabled")
	}
	if o.cpuProfile+o.memProfile != "" {
		s.pprof = fmt.Sprintf("127.0.0.1:%d", ports[3])
		config := fmt.Sprintf("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\npprofBindAddress: %s\n", s.pprof)
		file := filepath.Join(dir, "manager.yaml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return err
		}
		args = append(args, "--config", file)
	}
	s.start = func(ctx context.Context) error {
		log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer log.Close()
		manager, ended := exec.Command(berth, append(args, extra...)...), make(chan struct{})
		manager.Stdout, manager.Stderr = log, log
		manager.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		if err := manager.Start(); err != nil {
			return err
		}
		s.manager, s.ended = manager, ended
		go func() {
			_ = manager.Wait() // its log has its end
			close(ended)
		}()
		return s.ready(ctx, "http://"+health+"/readyz")
	}
	return s.start(ctx)
}

// kill ends the manager at once.
func (s *system) kill() error {
	if err := s.manager.Process.Kill(); err != nil {
		return err
	}
	<-s.ended
	return nil
}

// shared reports whether an argument of the manager changes the installed objects as well.
func shared(arg string) bool {
	return slices.ContainsFunc([]string{"--controllers=", "--config=", "--feature-gates="}, func(flag string) bool {
		return strings.HasPrefix(arg, flag)
	})
}

func (s *system) ready(ctx context.Context, url string) error {
	for {
		if answers(ctx, url) {
			return nil
		}
		select {
		case <-s.ended:
			return s.lastWords()
		case <-ctx.Done():
			return fmt.Errorf("the manager: %w", context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func answers(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// guard returns a context that ends when the manager or the control plane does.
func (s *system) guard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-s.ended:
			cancel(s.lastWords())
		case <-s.plane.Done():
			cancel(fmt.Errorf("the control plane ended: %w", s.plane.Err()))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// lastWords is the end of the manager's log as an error.
func (s *system) lastWords() error {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return err
	}
	return fmt.Errorf("the manager ended; the end of its log:\n%s", strings.TrimSpace(string(data[max(0, len(data)-4000):])))
}

// profileUntil fetches processor profiles, one after the other, until the channel is closed. Without a name it does nothing.
func (s *system) profileUntil(ctx context.Context, enough <-chan struct{}, prefix string) error {
	if prefix == "" {
		return nil
	}
	for n := 0; ; n++ {
		select {
		case <-enough:
			return nil
		default:
		}
		if err := s.profile(ctx, fmt.Sprintf("profile?seconds=%.0f", profilePiece.Seconds()), fmt.Sprintf("%s.%03d", prefix, n)); err != nil {
			return err
		}
	}
}

// profile fetches a profile of the manager into a file.
func (s *system) profile(ctx context.Context, what, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.pprof+"/debug/pprof/"+what, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("profile %s: %s", what, response.Status)
	}
	to, err := os.Create(file)
	if err != nil {
		return err
	}
	defer to.Close()
	_, err = io.Copy(to, response.Body)
	return err
}

// stop ends both, the manager first.
func (s *system) stop() error {
	if s.manager != nil {
		_ = s.manager.Process.Signal(syscall.SIGTERM) // fails when it has ended
		select {
		case <-s.ended:
		case <-time.After(stopLimit):
			_ = s.manager.Process.Kill()
			<-s.ended
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return s.plane.Stop(ctx)
}
