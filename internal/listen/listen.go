// Package listen serves HTTP in the manager: listeners, reserved ports, and bounds of requests and callers.
package listen

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

// endWithin is how long pending requests have when a manager ends.
const endWithin = 5 * time.Second

// Listener serves HTTP on every replica.
type Listener struct {
	What    string       // the served thing, for messages
	Setting string       // the address' field in the configuration
	Address string       // host:port
	Shared  bool         // the address is reserved, see Reservation
	TLS     *tls.Config  // nil is plain HTTP
	Server  *http.Server // its handler and the limits of a connection
	Log     logr.Logger
}

// NeedLeaderElection is false: standbys answer as well. spec: 70 §4.3.
func (l *Listener) NeedLeaderElection() bool { return false }

// Start listens until ctx ends, and then waits for pending requests.
func (l *Listener) Start(ctx context.Context) error {
	config := &net.ListenConfig{}
	if l.Shared {
		*config = Sharing()
	}
	at, err := config.Listen(ctx, "tcp", l.Address)
	if err != nil {
		return fmt.Errorf("%s cannot be served: %w: choose another %s", l.What, err, l.Setting)
	}
	l.Server.TLSConfig, l.Server.ErrorLog = l.TLS, stdlog.New(quiet{l.Log}, "", 0)
	if l.TLS != nil {
		at = tls.NewListener(at, l.TLS) // ServeTLS would offer HTTP/2 whatever NextProtos is
	}
	ended := make(chan error, 1)
	go func() { ended <- l.Server.Serve(at) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving %s: %w", l.What, err)
	case <-ctx.Done():
	}
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer stop()
	if err := l.Server.Shutdown(limited); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("ending to serve %s: %w", l.What, err)
	}
	return nil
}

// Check is a TLS handshake with the listener, for the probes.
func (l *Listener) Check(r *http.Request) error {
	limited, stop := context.WithTimeout(r.Context(), time.Second)
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
		return fmt.Errorf("the listener for %s does not answer: %w", l.What, err)
	}
	return conn.Close()
}

// quiet logs failures of single connections, such as probes that leave during a handshake, at a level that is off by default.
type quiet struct{ log logr.Logger }

func (q quiet) Write(p []byte) (int, error) {
	q.log.V(1).Info(strings.TrimSpace(string(p)))
	return len(p), nil
}
