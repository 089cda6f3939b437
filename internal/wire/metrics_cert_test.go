package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr/testr"
	certutil "k8s.io/client-go/util/cert"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
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
			connection, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", o.Metrics.Address)
			if err != nil {
				return err
			}
			defer func(c net.Conn) { _ = c.Close() }(connection)
			if got := connection.(*tls.Conn).ConnectionState().PeerCertificates[0]; !got.Equal(want) {
				return fmt.Errorf("the certificate is for %v, want %v", got.DNSNames, want.DNSNames)
			}
			return nil
		}
	}
	wait.Until(t, "the certificate of the folder is served", serves(first))
	wait.Until(t, "the renewed one is served", serves(issue("second")))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
