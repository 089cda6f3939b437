package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	certutil "k8s.io/client-go/util/cert"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/listen"
	"github.com/berth-project/berth/internal/options"
)

// TestMetricsCertificate: a certificate of the metrics that another controller renews is served without a restart. The folder is one as the
// kubelet mounts it: the files are links into a folder that is replaced. spec: 70 §4.4, §7 example 23.
func TestMetricsCertificate(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an API server")
	}
	admin := embeddedtest.ConfigOf(t, embeddedtest.Start(t))
	dir := t.TempDir()
	issue := func(version string) *x509.Certificate {
		t.Helper()
		cert, key, err := certutil.GenerateSelfSignedCertKey(version+".example.com", nil, nil)
		must(t, err)
		data := filepath.Join(dir, "..data-"+version)
		must(t, os.Mkdir(data, 0o755), os.WriteFile(filepath.Join(data, "tls.crt"), cert, 0o600), os.WriteFile(filepath.Join(data, "tls.key"), key, 0o600),
			os.Symlink(data, filepath.Join(dir, "..new")), os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
		block, _ := pem.Decode(cert)
		out, err := x509.ParseCertificate(block.Bytes)
		must(t, err)
		return out
	}
	first := issue("first")
	for _, name := range []string{"tls.crt", "tls.key"} {
		must(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
	o := options.Default()
	o.LeaderElection.Enabled, o.JobSet.Lease.Enabled, o.Health.Address, o.VisibilityAddress = false, false, "0", "0"
	o.Metrics.Address = fmt.Sprint("127.0.0.1:", embeddedtest.FreePort(t))
	groups, err := install.ParseGroups("scheduler")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Config{
			REST: admin, Options: o, Groups: groups, Install: true, MetricsCertDir: dir, OnReady: func() { close(ready) }, Log: testr.New(t),
		})
	}()
	wait.Ready(t, "the manager", ready, ended)
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	serves := func(want *x509.Certificate) func() error {
		return func() error {
			connection, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: offered}}).DialContext(t.Context(), "tcp", o.Metrics.Address)
			if err != nil {
				return err
			}
			defer func(c net.Conn) { _ = c.Close() }(connection)
			state := connection.(*tls.Conn).ConnectionState()
			if state.NegotiatedProtocol != "h2" {
				t.Errorf("the metrics are served by %q", state.NegotiatedProtocol)
			}
			if got := state.PeerCertificates[0]; !got.Equal(want) {
				return fmt.Errorf("the certificate is for %v, want %v", got.DNSNames, want.DNSNames)
			}
			return nil
		}
	}
	wait.Until(t, "the certificate of the folder is served", serves(first))
	wait.Until(t, "the renewed one is served", serves(issue("second")))
}

// offered are the protocols that clients offer.
var offered = []string{"h2", "http/1.1"}

// TestProtocols: the listeners speak the protocols that the configuration names, and HTTP/2 if it names none. spec: 70 §2.1.3.
func TestProtocols(t *testing.T) {
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	dir := t.TempDir()
	must(t, err, os.WriteFile(filepath.Join(dir, "tls.crt"), cert, 0o600), os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600))
	pair, err := tls.X509KeyPair(cert, key)
	must(t, err)
	for want, protocols := range map[string][]string{"h2": nil, "http/1.1": {"http/1.1"}} {
		for name, serve := range map[string]func(cfg *Config, address string) (func(context.Context) error, error){
			"webhooks": func(cfg *Config, _ string) (func(context.Context) error, error) {
				return newWebhookServer(cfg).Start, nil
			},
			"webhooks on a reserved port": func(cfg *Config, address string) (func(context.Context) error, error) {
				cfg.Reserved = map[string]bool{address: true}
				return newWebhookServer(cfg).Start, nil
			},
			"another listener": func(cfg *Config, address string) (func(context.Context) error, error) {
				config, err := cfg.servingTLS(nil, true, "")
				if err != nil {
					return nil, err
				}
				config.Certificates = []tls.Certificate{pair}
				return (&listen.Listener{Address: address, TLS: config, Server: &http.Server{ReadHeaderTimeout: time.Minute}}).Start, nil
			},
		} {
			cfg := &Config{Options: options.Default(), ServingCertDir: dir}
			cfg.Options.TLS.NextProtos = protocols
			cfg.Options.Webhook.Host, cfg.Options.Webhook.Port = "127.0.0.1", embeddedtest.FreePort(t)
			address := net.JoinHostPort("127.0.0.1", strconv.Itoa(cfg.Options.Webhook.Port))
			start, err := serve(cfg, address)
			must(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- start(ctx) }()
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: offered}, ForceAttemptHTTP2: true}}
			wait.Until(t, name+" answer by "+want, func() error {
				response, err := client.Get("https://" + address)
				if err != nil {
					return err
				}
				if got := response.TLS.NegotiatedProtocol; got != want || response.ProtoMajor != map[string]int{"http/1.1": 1, "h2": 2}[want] {
					t.Errorf("%s: %s over %q, want %q", name, response.Proto, got, want)
				}
				return response.Body.Close()
			})
			client.CloseIdleConnections()
			cancel()
			must(t, <-ended)
		}
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
