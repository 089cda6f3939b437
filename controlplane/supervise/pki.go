package supervise

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	certificateLife = 10 * 365 * 24 * time.Hour
	serviceCIDR     = "10.96.0.0/16"
	serviceIP       = "10.96.0.1" // of the service kubernetes: the first address of serviceCIDR
)

// users have a token each. All but the scheduler are in system:masters: the API server is private, and the programs must not be delayed
// by the fair queueing that protects a shared one.
var users = []struct{ name, token, groups string }{
	{"berth:admin", "admin", "system:masters"},
	{"system:kube-controller-manager", ControllerManager, "system:masters"},
	{"system:kube-scheduler", Scheduler, "system:masters"},
	{"berth:kwok", Kwok, "system:masters"},
}

// pki is the directory with certificates, keys and tokens.
type pki string

func (p pki) file(name string) string { return filepath.Join(string(p), name) }

// ensurePKI makes the certificates, keys and tokens of a new directory, and returns the existing ones of an older directory: clients and
// service-account tokens of an earlier run stay valid.
func (d dir) ensurePKI(now time.Time) (pki, error) {
	path := d.path("pki")
	if _, err := os.Lstat(path); err == nil {
		return pki(path), nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	// Made in a temporary directory and renamed, so that it is complete or missing.
	fresh := pki(path + ".new")
	if err := os.RemoveAll(string(fresh)); err != nil {
		return "", err
	}
	if err := os.Mkdir(string(fresh), 0o700); err != nil {
		return "", err
	}
	if err := fresh.fill(now); err != nil {
		return "", fmt.Errorf("make certificates: %w", err)
	}
	return pki(path), os.Rename(string(fresh), path)
}

func (p pki) fill(now time.Time) error {
	loopback := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	// Three authorities: a certificate for the API server must not give access to etcd, nor allow acting as the front proxy.
	for _, authority := range []struct {
		name   string
		leaves []leaf
	}{
		{"ca", []leaf{{
			name: "apiserver", subject: "kube-apiserver", ips: append([]net.IP{net.ParseIP(serviceIP)}, loopback...),
			dns: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		}}},
		{"etcd-ca", []leaf{
			{name: "etcd", subject: "etcd", ips: loopback, dns: []string{"localhost"}},
			{name: "etcd-client", subject: "kube-apiserver"},
		}},
		{"front-proxy-ca", []leaf{{name: "front-proxy", subject: "front-proxy-client"}}},
	} {
		if err := p.authority(authority.name, authority.leaves, now); err != nil {
			return err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := p.writeKey("service-account.key", key); err != nil {
		return err
	}
	var tokens strings.Builder
	for i, user := range users {
		token := randomToken()
		fmt.Fprintf(&tokens, "%s,%s,%d,%q\n", token, user.name, i, user.groups)
		if err := writeOwned(p.file(user.token+".token"), []byte(token)); err != nil {
			return err
		}
	}
	return writeOwned(p.file("tokens.csv"), []byte(tokens.String()))
}

// token returns a user's token, by the name of its file.
func (p pki) token(name string) (string, error) {
	data, err := readOwned(p.file(name + ".token"))
	return string(data), err
}

func randomToken() string {
	var bytes [24]byte
	_, _ = rand.Read(bytes[:]) // never fails: see crypto/rand
	return hex.EncodeToString(bytes[:])
}

// leaf is a certificate to make. Without addresses and names it is a client's, otherwise a server's that may also be a client (such as
// members of an etcd cluster).
type leaf struct {
	name, subject string
	ips           []net.IP
	dns           []string
}

func (p pki) authority(name string, leaves []leaf, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := certificate("berth-controlplane "+name, now)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	if err := p.write(name, der, key); err != nil {
		return err
	}
	for _, leaf := range leaves {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		template := certificate(leaf.subject, now)
		template.KeyUsage = x509.KeyUsageDigitalSignature
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if len(leaf.ips) > 0 {
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		}
		template.IPAddresses, template.DNSNames = leaf.ips, leaf.dns
		der, err := x509.CreateCertificate(rand.Reader, template, root, own.Public(), key)
		if err != nil {
			return err
		}
		if err := p.write(leaf.name, der, own); err != nil {
			return err
		}
	}
	return nil
}

func certificate(subject string, now time.Time) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: subject},
		NotBefore:    now.Add(-time.Hour), // clocks differ
		NotAfter:     now.Add(certificateLife),
	}
}

// write writes NAME.crt and NAME.key.
func (p pki) write(name string, der []byte, key *ecdsa.PrivateKey) error {
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := writeOwned(p.file(name+".crt"), encoded); err != nil {
		return err
	}
	return p.writeKey(name+".key", key)
}

func (p pki) writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writeOwned(p.file(file), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// clientTLS trusts the named authority and, unless client is empty, presents that certificate.
func (p pki) clientTLS(authority, client string) (*tls.Config, error) {
	data, err := readOwned(p.file(authority + ".crt"))
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !config.RootCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate", p.file(authority+".crt"))
	}
	if client != "" {
		certificate, err := readOwned(p.file(client + ".crt"))
		if err != nil {
			return nil, err
		}
		key, err := readOwned(p.file(client + ".key"))
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// kubeconfig returns a kubeconfig for the user with the named token.
func (p pki) kubeconfig(server, token string) ([]byte, error) {
	authority, err := readOwned(p.file("ca.crt"))
	if err != nil {
		return nil, err
	}
	secret, err := p.token(token)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: berth
contexts:
  - name: berth
    context: {cluster: berth, user: %[1]s}
clusters:
  - name: berth
    cluster:
      server: %[2]s
      certificate-authority-data: %[3]s
users:
  - name: %[1]s
    user: {token: %[4]s}
`, token, server, base64.StdEncoding.EncodeToString(authority), secret), nil
}
