package listen

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Callers checks the client certificates of requests. The server has to ask for them (tls.RequestClientCert).
type Callers struct {
	// File has the authorities in PEM. A changed file is read again.
	File string
	// Names lists the allowed common names and DNS names of certificates. Empty allows every certificate of the authorities.
	Names []string

	mu    sync.Mutex
	roots *x509.CertPool
	read  time.Time // modification time of the file that was read
}

// Check requires an allowed client certificate for requests to a handler; others get 401, or 403 for a wrong certificate.
func (c *Callers) Check(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			http.Error(w, "a client certificate is required: have the API server present one (docs/operate.md)", http.StatusUnauthorized)
			return
		}
		if err := c.allow(r.TLS.PeerCertificates); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allow verifies a chain of certificates, the caller's first.
func (c *Callers) allow(chain []*x509.Certificate) error {
	roots, err := c.pool()
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return fmt.Errorf("the client certificate: %w", err)
	}
	name := chain[0].Subject.CommonName
	if len(c.Names) > 0 && !slices.ContainsFunc(append(slices.Clone(chain[0].DNSNames), name), func(n string) bool { return slices.Contains(c.Names, n) }) {
		return fmt.Errorf("the client certificate of %q is of none of the names that are allowed", name)
	}
	return nil
}

// Ready reports whether the file can be used.
func (c *Callers) Ready() error {
	_, err := c.pool()
	return err
}

// pool returns the authorities that the file has now.
func (c *Callers) pool() (*x509.CertPool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stat, err := os.Stat(c.File)
	if err == nil && c.roots != nil && stat.ModTime().Equal(c.read) {
		return c.roots, nil
	}
	if err != nil {
		return nil, errors.New("the authorities of client certificates cannot be read: " + strings.TrimPrefix(err.Error(), "stat "))
	}
	text, err := os.ReadFile(c.File)
	if err != nil {
		return nil, fmt.Errorf("the authorities of client certificates cannot be read: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate of an authority in PEM", c.File)
	}
	c.roots, c.read = roots, stat.ModTime()
	return roots, nil
}
