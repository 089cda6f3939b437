package embeddedtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// RoundTrip is a function as an http.RoundTripper: tests put one between a manager and the API server.
type RoundTrip func(*http.Request) (*http.Response, error)

// RoundTrip is f.
func (f RoundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Run starts a manager, waits until its cache is filled, and returns how to stop it; it is stopped when the test ends at the latest.
// The test fails if the manager does.
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

// Eventually waits until check has nothing to complain about, a minute at most: that is long, but machines are busy.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	Within(t, time.Minute, what, check)
}

// Within is Eventually with another limit.
func Within(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not so after %s: %s: %v", limit, what, err)
}

// FreePort is a port of 127.0.0.1 on which nothing listens at the moment. It is not one of those that the system hands out, to
// listeners on port 0 and to every connection that goes out: such a one may be gone before whoever asked listens on it.
func FreePort(t testing.TB) int {
	t.Helper()
	const first, ports = 10_000, 20_000 // those of Linux begin at 32768
	for range 100 {
		port := first + rand.IntN(ports)
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatalf("none of a hundred ports from %d is free", first)
	return 0
}

var errKilled = errors.New("the manager is dead")

// Mortal kills a manager at one of its writes, events apart: that write is made, but nobody learns of it, and no other
// one gets through.
type Mortal struct {
	Dies    int64 // at which write; 0: never
	writes  atomic.Int64
	dead    atomic.Bool
	revived sync.Once
}

// Wrap is for rest.Config.Wrap.
func (m *Mortal) Wrap(next http.RoundTripper) http.RoundTripper {
	return RoundTrip(func(r *http.Request) (*http.Response, error) {
		switch {
		case r.Method == http.MethodGet:
			return next.RoundTrip(r)
		case m.dead.Load():
			return nil, errKilled
		case strings.Contains(r.URL.Path, "/events"):
			return next.RoundTrip(r)
		}
		last := m.writes.Add(1) == m.Dies
		if last {
			m.dead.Store(true)
		}
		response, err := next.RoundTrip(r)
		if last && err == nil {
			_ = response.Body.Close()
			return nil, errKilled
		}
		return response, err
	})
}

// Revive calls start the first time that it is called after the manager was killed.
func (m *Mortal) Revive(start func()) {
	if m.dead.Load() {
		m.revived.Do(start)
	}
}

// AtEveryWrite lives a life again and again, as a test each, with a manager that is killed at its first write, at its second one,
// and so on, until it survives. Of a life with fewer than least writes it is not believed that it was lived. With -short only every
// step-th write counts.
func AtEveryWrite(t *testing.T, least, step int64, live func(*testing.T, *Mortal)) {
	t.Helper()
	if !testing.Short() {
		step = 1
	}
	for n := int64(0); ; n += step {
		m := &Mortal{Dies: n}
		t.Run(fmt.Sprintf("at write %d", n), func(t *testing.T) { live(t, m) })
		switch {
		case t.Failed():
			return
		case n > 0 && !m.dead.Load():
			if m.writes.Load() < least {
				t.Errorf("only %d writes in a whole life: the test lost its way", m.writes.Load())
			}
			return
		}
	}
}
