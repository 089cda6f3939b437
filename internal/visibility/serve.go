package visibility

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Listener serves the visibility API over TLS on every replica. It is a runnable of the
// manager.
type Listener struct {
	Address string // host:port
	Handler http.Handler
	// TLS has the certificate and what may be spoken. Callers may show certificates.
	TLS *tls.Config
	// Follow is what Delegate returned.
	Follow func(context.Context)
	Log    logr.Logger
}

// NeedLeaderElection is false: standbys answer as well. spec: 70 §4.3.
func (l *Listener) NeedLeaderElection() bool { return false }

// Limits of a connection.
const (
	headersWithin = 32 * time.Second
	idleFor       = 90 * time.Second
	headerBytes   = 64 << 10
	endWithin     = 5 * time.Second
)

// Start listens until ctx ends, and then lets requests under way finish.
func (l *Listener) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.Address)
	if err != nil {
		return fmt.Errorf("the visibility API cannot be served: %w: choose another visibilityServer.bindPort", err)
	}
	running, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	following.Go(func() { l.Follow(running) })
	config := l.TLS.Clone()
	config.ClientAuth = tls.RequestClientCert // the API server's is checked when it calls
	server := &http.Server{
		Handler: l.Handler, TLSConfig: config, ReadHeaderTimeout: headersWithin, IdleTimeout: idleFor, MaxHeaderBytes: headerBytes,
		ErrorLog: stdlog.New(quiet{l.Log}, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving the visibility API: %w", err)
	case <-ctx.Done():
	}
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer stop()
	if err := server.Shutdown(limited); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stopping the visibility API: %w", err)
	}
	return nil
}

// quiet logs what goes wrong with single connections, such as probes that leave in the
// middle of a handshake, where only those who look for it see it.
type quiet struct{ log logr.Logger }

func (q quiet) Write(p []byte) (int, error) {
	q.log.V(1).Info(strings.TrimSpace(string(p)))
	return len(p), nil
}
