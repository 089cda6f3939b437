package embeddedtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// RoundTrip is a function as an http.RoundTripper, to put between a manager and the API server.
type RoundTrip func(*http.Request) (*http.Response, error)

// RoundTrip is f.
func (f RoundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Quiet discards what the libraries of controllers log: tests fail with what is returned to them. The logger is the whole process's, and
// parallel tests would race to set it.
var Quiet = sync.OnceFunc(func() { log.SetLogger(logr.Discard()) })

// Manager makes a manager without metrics, one of several in the process.
func Manager(t testing.TB, cfg *rest.Config, options manager.Options) manager.Manager {
	t.Helper()
	Quiet()
	options.Metrics.BindAddress, options.Controller.SkipNameValidation = "0", new(true)
	mgr, err := manager.New(cfg, options)
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

// Run starts a manager, waits until its cache is filled, and returns a function that stops it; it is also stopped when the test ends. The
// test fails if the manager does.
func Run(t testing.TB, mgr manager.Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		cancel()
		t.Fatal("the cache of the manager does not fill")
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// FreePort is LeasePort for a test, which fails without one.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := LeasePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// LeasePort returns a port of 127.0.0.1 for a program that the caller starts. No other caller gets the port, in any process of the
// machine, until this process ends. It is no ephemeral port, which listeners on port 0 and outgoing connections may take at any time.
func LeasePort() (int, error) {
	const first, ports = 10_000, 20_000 // the ephemeral ports of Linux begin at 32768
	for range 100 {
		port := first + rand.IntN(ports)
		mine, err := lockPort(port)
		if err != nil {
			return 0, fmt.Errorf("locking port %d: %w", port, err)
		}
		if !mine {
			continue
		}
		if listensOn(port) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("none of a hundred ports from %d is free", first)
}

// listensOn listens on a port and stops. No process is started meanwhile: a child has its parent's sockets until it runs its program, and
// would occupy the port.
func listensOn(port int) error {
	forked()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil { // as package net does
		return err
	}
	if err := unix.Bind(socket, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	return unix.Listen(socket, 1)
}

// forked has package os start the one child that it starts without the ForkLock: it looks once whether the kernel has pidfds.
var forked = sync.OnceFunc(func() { _, _ = os.FindProcess(os.Getpid()) })

// lockPort locks a file for a port, until the process ends. It returns false if any process has locked the port already.
func lockPort(port int) (bool, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("berth-test-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	file, err := unix.Open(filepath.Join(dir, strconv.Itoa(port)), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false, err
	}
	err = unix.Flock(file, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return true, nil // the file stays open, and with it the lock
	}
	_ = unix.Close(file)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return false, err
}

// Only confines the cache of a manager, and so its controllers, to a namespace, so that tests with a manager each run in parallel on one
// API server.
func Only(namespace string) cache.Options {
	return cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}
}
