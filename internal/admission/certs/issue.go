package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// Keys of the Secret. spec: 70 §4.4.
const (
	keyCA    = "ca.crt" // the authority in use, then replaced authorities that have not expired
	keyCAKey = "ca.key"
	keyCert  = "tls.crt"
	keyKey   = "tls.key"
)

// How long certificates last, and how long before their end they are replaced. spec: 70 §4.4.
const (
	caLife      = 10 * 365 * 24 * time.Hour
	servingLife = 365 * 24 * time.Hour
	renewal     = 90 * 24 * time.Hour
	// skew is how far other machines' clocks may be behind.
	skew = time.Hour
	// keptAuthorities bounds the authorities of a bundle.
	keptAuthorities = 4
)

// Pair is a serving certificate and the authorities that the API server has to trust.
type Pair struct {
	Serving tls.Certificate
	CA      []byte // PEM
}

// serves reports whether a client that trusts the bundle can call all hosts at a time.
func (p *Pair) serves(bundle []byte, hosts []string, at time.Time) bool {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return false
	}
	for _, h := range hosts {
		if _, err := p.Serving.Leaf.Verify(x509.VerifyOptions{DNSName: h, Roots: roots, CurrentTime: at}); err != nil {
			return false
		}
	}
	return true
}

// read returns the serving certificate in the Secret; nil if there is none that belongs to its key.
func read(data map[string][]byte) *Pair {
	serving, err := tls.X509KeyPair(data[keyCert], data[keyKey])
	if err != nil || serving.Leaf == nil || len(data[keyCA]) == 0 {
		return nil
	}
	return &Pair{Serving: serving, CA: data[keyCA]}
}

// authority signs serving certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// readAuthority returns the authority in the Secret; nil if there is none that outlives a new serving certificate.
func readAuthority(data map[string][]byte, now time.Time) *authority {
	all := certificates(data[keyCA])
	key, err := keyutil.ParsePrivateKeyPEM(data[keyCAKey])
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok || len(all) == 0 {
		return nil
	}
	public, ok := all[0].PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(signer.Public()) || !all[0].IsCA || all[0].NotAfter.Before(now.Add(servingLife)) || all[0].NotBefore.After(now) {
		return nil
	}
	return &authority{cert: all[0], key: signer}
}

func newAuthority(now time.Time) (*authority, error) {
	a := &authority{}
	cert := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "kueue-ca", Organization: []string{"kueue"}},
		NotBefore: now.Add(-skew), NotAfter: now.Add(caLife),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		IsCA:     true, BasicConstraintsValid: true,
	}
	var err error
	a.cert, a.key, err = sign(cert, nil)
	return a, err
}

// issue makes a serving certificate for the hosts, which are names or addresses, in PEM.
func (a *authority) issue(hosts []string, now time.Time) (cert, key []byte, err error) {
	wanted := &x509.Certificate{
		Subject:   pkix.Name{CommonName: hosts[0], Organization: []string{"kueue"}},
		NotBefore: now.Add(-skew), NotAfter: now.Add(servingLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			wanted.IPAddresses = append(wanted.IPAddresses, ip)
		} else {
			wanted.DNSNames = append(wanted.DNSNames, h)
		}
	}
	signed, secret, err := sign(wanted, a)
	if err != nil {
		return nil, nil, err
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(secret); err != nil {
		return nil, nil, err
	}
	return encode(signed), key, nil
}

// sign makes a key and a certificate of it, signed by the authority, or self-signed if by is nil.
func sign(wanted *x509.Certificate, by *authority) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if wanted.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, err
	}
	if by == nil {
		by = &authority{cert: wanted, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, wanted, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, nil, err
	}
	made, err := x509.ParseCertificate(der)
	return made, key, err
}

// renew returns the new content of a Secret: a new serving certificate, signed by the present authority if that is usable. Authorities of
// certificates in use stay trusted until they expire: other replicas serve with them until they have seen the Secret.
func renew(data map[string][]byte, inUse *Pair, hosts []string, now time.Time) (map[string][]byte, error) {
	if len(hosts) == 0 {
		return nil, errors.New("a serving certificate needs at least one host")
	}
	signer := readAuthority(data, now)
	if signer == nil {
		var err error
		if signer, err = newAuthority(now); err != nil {
			return nil, fmt.Errorf("making a certificate authority: %w", err)
		}
	}
	// Managers outside the cluster that are called by other names may share the Secret.
	all := slices.Clone(hosts)
	if stored := read(data); stored != nil {
		all = append(all, stored.Serving.Leaf.DNSNames...)
		for _, ip := range stored.Serving.Leaf.IPAddresses {
			all = append(all, ip.String())
		}
	}
	cert, key, err := signer.issue(distinct(all), now)
	if err != nil {
		return nil, fmt.Errorf("making a serving certificate: %w", err)
	}
	secret, err := keyutil.MarshalPrivateKeyToPEM(signer.key)
	if err != nil {
		return nil, err
	}
	trusted := []*x509.Certificate{signer.cert}
	before := certificates(data[keyCA])
	if inUse != nil {
		before = append(before, certificates(inUse.CA)...)
	}
	for _, old := range before {
		known := slices.ContainsFunc(trusted, old.Equal)
		if !known && now.Before(old.NotAfter) && len(trusted) < keptAuthorities {
			trusted = append(trusted, old)
		}
	}
	return map[string][]byte{keyCA: encode(trusted...), keyCAKey: secret, keyCert: cert, keyKey: key}, nil
}

// distinct keeps the first of equals.
func distinct(names []string) []string {
	var out []string
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func encode(certs ...*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range certs {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a buffer takes all
	}
	return out.Bytes()
}

// certificates reads the certificates in PEM, and skips everything else.
func certificates(text []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, c)
		}
	}
	return out
}
