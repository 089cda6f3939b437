package wire

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

// endWithin is how long requests under way have when a manager ends.
const endWithin = 5 * time.Second

// listener serves HTTP over TLS on every replica. It is a runnable of the manager.
type listener struct {
	what    string // is served, for messages
	setting string // of the address, in the configuration
	address string // host:port
	tls     *tls.Config
	server  *http.Server // its handler and the limits of a connection
	log     logr.Logger
}

// NeedLeaderElection is false: standbys answer as well. spec: 70 §4.3.
func (l *listener) NeedLeaderElection() bool { return false }

// Start listens until ctx ends, and then lets requests under way finish.
func (l *listener) Start(ctx context.Context) error {
	at, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.address)
	if err != nil {
		return fmt.Errorf("%s cannot be served: %w: choose another %s", l.what, err, l.setting)
	}
	l.server.TLSConfig, l.server.ErrorLog = l.tls, stdlog.New(quiet{l.log}, "", 0)
	ended := make(chan error, 1)
	go func() { ended <- l.server.ServeTLS(at, "", "") }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving %s: %w", l.what, err)
	case <-ctx.Done():
	}
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer stop()
	if err := l.server.Shutdown(limited); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("ending to serve %s: %w", l.what, err)
	}
	return nil
}

// Check is a TLS handshake with the listener, for the probes.
func (l *listener) Check(r *http.Request) error {
	limited, stop := context.WithTimeout(r.Context(), time.Second)
	defer stop()
	host, port, err := net.SplitHostPort(l.address)
	if err != nil {
		return err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the question is whether it answers, not whose it is
	conn, err := dialer.DialContext(limited, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return fmt.Errorf("the listener for %s does not answer: %w", l.what, err)
	}
	return conn.Close()
}

// quiet logs what goes wrong with single connections, such as probes that leave in the middle of a handshake, where only those
// who look for it see it.
type quiet struct{ log logr.Logger }

func (q quiet) Write(p []byte) (int, error) {
	q.log.V(1).Info(strings.TrimSpace(string(p)))
	return len(p), nil
}
