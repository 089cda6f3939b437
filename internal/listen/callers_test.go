package listen

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
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
)

// signed makes a certificate of a name, by an authority or by itself.
func signed(t *testing.T, name string, usage x509.ExtKeyUsage, by *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{usage}, BasicConstraintsValid: true, IsCA: by == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// mux collects what is registered.
type mux struct {
	ctrlwebhook.Server
	http.ServeMux
}

func (m *mux) Register(path string, handler http.Handler) { m.Handle(path, handler) }

// TestCallers: only clients with an allowed certificate get answers, except on the path of conversions, for which an API server presents
// no certificate.
func TestCallers(t *testing.T) {
	authority, stranger := signed(t, "ca", x509.ExtKeyUsageClientAuth, nil), signed(t, "other", x509.ExtKeyUsageClientAuth, nil)
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(ca *tls.Certificate, at time.Time) {
		t.Helper()
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate[0]}), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	write(authority, now)
	for name, tc := range map[string]struct {
		cert  *tls.Certificate
		names []string
		path  string
		want  int
	}{
		"none":                      {nil, nil, "/review", http.StatusUnauthorized},
		"of the authority":          {signed(t, "kube-apiserver", x509.ExtKeyUsageClientAuth, authority), nil, "/review", http.StatusOK},
		"the right name":            {signed(t, "kube-apiserver", x509.ExtKeyUsageClientAuth, authority), []string{"kube-apiserver"}, "/review", http.StatusOK},
		"another name":              {signed(t, "somebody", x509.ExtKeyUsageClientAuth, authority), []string{"kube-apiserver"}, "/review", http.StatusForbidden},
		"that of a server":          {signed(t, "kube-apiserver", x509.ExtKeyUsageServerAuth, authority), nil, "/review", http.StatusForbidden},
		"of another authority":      {signed(t, "kube-apiserver", x509.ExtKeyUsageClientAuth, stranger), nil, "/review", http.StatusForbidden},
		"none, where none is asked": {nil, nil, "/convert", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			m := &mux{}
			w := Webhooks(m, &Callers{File: file, Names: tc.names}, "/convert")
			for _, path := range []string{"/review", "/convert"} {
				w.Register(path, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			}
			s := httptest.NewUnstartedServer(&m.ServeMux)
			s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
			s.StartTLS()
			defer s.Close()
			client := s.Client()
			if tc.cert != nil {
				client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{*tc.cert}
			}
			response, err := client.Post(s.URL+tc.path, "application/json", nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != tc.want {
				t.Errorf("answered %d, want %d", response.StatusCode, tc.want)
			}
		})
	}
	c := &Callers{File: file}
	cert := signed(t, "kube-apiserver", x509.ExtKeyUsageClientAuth, stranger).Leaf
	if c.allow([]*x509.Certificate{cert}) == nil {
		t.Error("a stranger is allowed")
	}
	write(stranger, now.Add(time.Second))
	if err := c.allow([]*x509.Certificate{cert}); err != nil {
		t.Errorf("the new authority is not read: %v", err)
	}
	if (&Callers{File: filepath.Join(t.TempDir(), "none")}).Ready() == nil {
		t.Error("a file that does not exist is ready")
	}
}
