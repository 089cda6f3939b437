package multikueue

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// idle is a connection that nothing goes through but what a test does.
func idle(t *testing.T, lost func(*connection, error)) *connection {
	t.Helper()
	m := &shared{Options: Options{Now: time.Now}}
	m.fleet = newFleet(m)
	c := &connection{shared: m, name: "w1", lost: lost, slots: make(chan struct{}, callsAtOnce), calls: map[int64]time.Time{}}
	c.ctx, c.cancel = context.WithCancel(t.Context())
	t.Cleanup(c.cancel)
	return c
}

// TestCalls says when a call counts as a failure, and what many of them do.
func TestCalls(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "x")
	unauthorized := apierrors.NewUnauthorized("no")
	broken := errors.New("connection reset")
	for name, tc := range map[string]struct {
		errs []error
		lost bool
	}{
		"answers":              {[]error{notFound, notFound, notFound, notFound, notFound, notFound}, false},
		"four failures":        {[]error{broken, broken, broken, broken}, false},
		"five failures":        {[]error{broken, broken, broken, broken, broken}, true},
		"an answer in between": {[]error{broken, broken, broken, notFound, broken, broken}, false},
		"bad credentials":      {[]error{unauthorized}, true},
	} {
		lost := false
		c := idle(t, func(*connection, error) { lost = true })
		for _, want := range tc.errs {
			if err := c.call(t.Context(), func(context.Context, client.Client) error { return want }); !errors.Is(err, want) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if lost != tc.lost {
			t.Errorf("%s: lost %v", name, lost)
		}
	}
}

// TestStuck says that a worker that does not answer keeps nobody waiting, and is left out until it answers.
func TestStuck(t *testing.T) {
	c := idle(t, func(*connection, error) {})
	r := &remote{name: "w1", connection: c}
	answer := make(chan struct{})
	began := time.Now()
	err := c.call(t.Context(), func(context.Context, client.Client) error {
		<-answer
		return nil
	})
	if took := time.Since(began); !errors.Is(err, errStuck) || took > 2*slow {
		t.Errorf("got %v after %s", err, took)
	}
	conn, lost, _ := r.connected()
	if conn != nil || lost.Before(began) {
		t.Errorf("it counts as connected, or as lost since %s", lost)
	}
	if err := c.call(t.Context(), func(context.Context, client.Client) error { return nil }); !errors.Is(err, errStuck) {
		t.Errorf("another call: %v", err)
	}
	c.late.Store(false) // whom to wake is a matter of a whole manager
	close(answer)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if conn, _, _ := r.connected(); conn == c {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it answers and is not used again")
		}
	}
}

// TestLostSince keeps the time of the first loss over attempts that fail, and begins anew with each connection.
func TestLostSince(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &remote{name: "w1", connection: idle(t, nil), firstLost: at.Add(-time.Hour)}
	r.disconnect(at)
	r.disconnect(at.Add(time.Minute))
	if _, lost, first := r.connected(); !lost.Equal(at) || !first.IsZero() {
		t.Errorf("lost since %s, first %s", lost, first)
	}
}

// TestProbe wants a refusal first: what takes connections all the time says nothing.
func TestProbe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	r := &remote{address: address}
	if r.probe() {
		t.Error("it was there all the time")
	}
	_ = l.Close()
	if r.probe() {
		t.Error("it refuses")
	}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if !r.probe() || r.probe() {
		t.Error("it is back, once")
	}
	for host, want := range map[string]string{"https://w1.example": "w1.example:443", "https://10.0.0.1:6443": "10.0.0.1:6443", "https://[::1]:6443": "[::1]:6443", "": ""} {
		if got := addressOf(&rest.Config{Host: host}); got != want {
			t.Errorf("%s: %s", host, got)
		}
	}
}
