// Package certs keeps the certificate that the webhooks are served with: made by the
// first replica that needs it, shared with the others in a Secret, and made known to
// the API server in the webhook configurations. spec: 70 §4.4.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// renewal is how long before its end a certificate is replaced.
const renewal = 90 * 24 * time.Hour

// Keys of the Secret. spec: 70 §4.4.
const (
	keyCA   = "ca.crt"
	keyCert = "tls.crt"
	keyKey  = "tls.key"
)

// Pair is a serving certificate and the authority that the API server has to trust.
type Pair struct {
	Serving tls.Certificate
	CA      []byte // PEM
}

// Ensure returns the certificate from the Secret, if it serves all hosts (names or
// addresses) for long enough, and otherwise makes one and stores it there. Of several
// replicas that make one at the same time, one wins and the others take its.
func Ensure(ctx context.Context, c client.Client, secret types.NamespacedName, hosts []string, now time.Time) (Pair, error) {
	if len(hosts) == 0 {
		return Pair{}, errors.New("a serving certificate needs at least one host")
	}
	for range 5 {
		var have corev1.Secret
		err := c.Get(ctx, secret, &have)
		if err != nil && !apierrors.IsNotFound(err) {
			return Pair{}, fmt.Errorf("reading the webhook certificate: %w", err)
		}
		missing := err != nil
		if !missing {
			if pair, ok := usable(have.Data, hosts, now); ok {
				return pair, nil
			}
		}
		pair, err := store(ctx, c, &have, secret, missing, hosts)
		if err == nil {
			return pair, nil
		}
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			return Pair{}, fmt.Errorf("storing the webhook certificate in Secret %s: %w", secret, err)
		} // else another replica was first
	}
	return Pair{}, fmt.Errorf("the webhook certificate in Secret %s keeps changing; is something else writing it?", secret)
}

// store makes a certificate and writes it over what was read.
func store(ctx context.Context, c client.Client, have *corev1.Secret, name types.NamespacedName, missing bool, hosts []string) (Pair, error) {
	certAndCA, key, err := generate(hosts)
	if err != nil {
		return Pair{}, err
	}
	serving, err := tls.X509KeyPair(certAndCA, key)
	if err != nil {
		return Pair{}, err
	}
	pair := Pair{Serving: serving, CA: lastBlock(certAndCA)}
	have.Data = map[string][]byte{keyCert: certAndCA, keyKey: key, keyCA: pair.CA}
	if missing {
		have.ObjectMeta = metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}
		have.Type = corev1.SecretTypeTLS
		return pair, c.Create(ctx, have)
	}
	return pair, c.Update(ctx, have)
}

func generate(hosts []string) (cert, key []byte, err error) {
	var ips []net.IP
	var names []string
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, h)
		}
	}
	return certutil.GenerateSelfSignedCertKey(hosts[0], ips, names)
}

// usable tells whether the stored certificate is one, belongs to its key, covers all
// hosts and does not end soon.
func usable(data map[string][]byte, hosts []string, now time.Time) (Pair, bool) {
	pair, err := tls.X509KeyPair(data[keyCert], data[keyKey])
	if err != nil || pair.Leaf == nil || len(data[keyCA]) == 0 {
		return Pair{}, false
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data[keyCA]) {
		return Pair{}, false
	}
	for _, h := range hosts {
		opts := x509.VerifyOptions{DNSName: h, Roots: roots, CurrentTime: now.Add(renewal)}
		if _, err := pair.Leaf.Verify(opts); err != nil {
			return Pair{}, false
		}
	}
	return Pair{Serving: pair, CA: data[keyCA]}, true
}

// lastBlock is the authority, which follows the certificate that it signed.
func lastBlock(chain []byte) []byte {
	var last []byte
	for block, rest := pem.Decode(chain); block != nil; block, rest = pem.Decode(rest) {
		last = pem.EncodeToMemory(block)
	}
	return bytes.Clone(last)
}
