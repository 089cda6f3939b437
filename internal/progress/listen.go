package progress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// Limits of a connection (spec: 50 §4.8).
const (
	readWithin  = 10 * time.Second
	writeWithin = 10 * time.Second
	idleFor     = 2 * time.Minute
	endWithin   = 5 * time.Second
)

// Listener serves over TLS on every replica. It is a runnable of the manager.
type Listener struct {
	Address string // host:port
	Handler http.Handler
	// TLS has the certificate and what may be spoken.
	TLS *tls.Config
	Log logr.Logger
}

// NeedLeaderElection is false: standbys answer as well.
func (l *Listener) NeedLeaderElection() bool { return false }

// Start listens until ctx ends, and then lets requests under way finish.
func (l *Listener) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.Address)
	if err != nil {
		return fmt.Errorf("reports of progress cannot be taken: %w: choose another trainer.statusServer.port", err)
	}
	server := &http.Server{
		Handler: l.Handler, TLSConfig: l.TLS, ReadTimeout: readWithin, WriteTimeout: writeWithin, IdleTimeout: idleFor,
		ErrorLog: stdlog.New(quiet{l.Log}, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-ended:
		return fmt.Errorf("taking reports of progress: %w", err)
	case <-ctx.Done():
	}
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer stop()
	if err := server.Shutdown(limited); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("ending to take reports of progress: %w", err)
	}
	return nil
}

// Check is a TLS handshake with the listener, for the probes.
func (l *Listener) Check(r *http.Request) error {
	ctx := context.Background()
	if r != nil {
		ctx = r.Context()
	}
	limited, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	host, port, err := net.SplitHostPort(l.Address)
	if err != nil {
		return err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the question is whether it answers, not whose it is
	conn, err := dialer.DialContext(limited, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return fmt.Errorf("the listener for reports of progress does not answer: %w", err)
	}
	return conn.Close()
}

// quiet logs what goes wrong with single connections where only those who look for it see it.
type quiet struct{ log logr.Logger }

func (q quiet) Write(p []byte) (int, error) {
	q.log.V(1).Info(strings.TrimSpace(string(p)))
	return len(p), nil
}
