package install

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/berth-project/berth/internal/admission/conversion"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/review"
)

// With webhook.clientCAFile a manager answers no review of a client without a certificate, and still converts.
func TestReviewsNeedACertificate(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	r := newRights(t)
	cfg := r.install(t, "")
	cfg.Options.Webhook.ClientCAFile = filepath.Join(t.TempDir(), "ca.crt")
	cfg.Options.Webhook.ClientNames = []string{"kube-apiserver"}
	if err := os.WriteFile(cfg.Options.Webhook.ClientCAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	_, ready, stop := r.run(cfg)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	wait.Receive(t, "the manager is ready", ready)
	with := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	review := review.NewPath(batchv1.SchemeGroupVersion.WithKind("Job"), false)
	for _, tc := range []struct {
		what, path string
		certs      []tls.Certificate
		refused    bool
	}{
		{"a review without a certificate", review, nil, true},
		{"a review with one", review, []tls.Certificate{with}, false},
		{"a conversion", conversion.Path, nil, false},
	} {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, Certificates: tc.certs,
		}}}
		response, err := c.Post(cfg.WebhookURL+tc.path, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := response.StatusCode == http.StatusUnauthorized; got != tc.refused {
			t.Errorf("%s: answered %d", tc.what, response.StatusCode)
		}
	}
}
