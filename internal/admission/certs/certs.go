// Package certs keeps the certificate that the manager serves with: made by the first replica that needs it, shared with the others in a
// Secret, replaced long before its end, and announced to the API server. spec: 70 §4.4.
//
// A new certificate is served from memory as soon as it is made or seen in the Secret, without waiting for a mounted volume or a restart.
// A library that rotates files in a folder could not do that.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// checkEvery is the interval of checks without a sign of a change.
	checkEvery = time.Minute
	// settleTime is how long a replica keeps serving with a certificate of a replaced authority, so that every API server knows the new
	// authority before it sees the new certificate.
	settleTime = 5 * time.Second
	// watchAgain is the pause before watching the Secret again.
	watchAgain = 5 * time.Second
)

// Keeper is a runnable of the manager, on every replica.
type Keeper struct {
	// Client reads and writes without a cache.
	Client client.WithWatch
	Secret types.NamespacedName
	// Hosts are the names and addresses that the certificate has to serve.
	Hosts []string
	// Targets have to trust its authority; missing ones are skipped.
	Targets []Target
	Now     func() time.Time
	Log     logr.Logger

	current atomic.Pointer[Pair]
	seen    map[Target]string // the resource versions that already trust it
	trusted []byte            // the authority of seen
}

// Certificate implements tls.Config.GetCertificate. Prepare must have been called.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair := k.current.Load()
	if pair == nil {
		return nil, errors.New("there is no serving certificate yet")
	}
	return &pair.Serving, nil
}

// CA returns the authorities that the API server has to trust, in PEM; nil before Prepare.
func (k *Keeper) CA() []byte {
	if pair := k.current.Load(); pair != nil {
		return pair.CA
	}
	return nil
}

// Prepare reads the certificate from the Secret, or makes one, before any request is served.
func (k *Keeper) Prepare(ctx context.Context) error {
	pair, err := k.ensure(ctx)
	if err == nil {
		k.current.Store(pair)
	}
	return err
}

// NeedLeaderElection is false: each replica serves.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Start keeps the certificate until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	go k.watch(ctx, changed)
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		if err := k.Check(ctx); err != nil && ctx.Err() == nil {
			k.Log.Error(err, "The serving certificate could not be looked after; trying again", "secret", k.Secret.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-changed:
		}
	}
}

// Check verifies once that the certificate is right and trusted, and repairs it otherwise. While a target refuses the authority the
// certificate in use stays, as long as it lasts.
func (k *Keeper) Check(ctx context.Context) error {
	pair, err := k.ensure(ctx)
	if err != nil {
		return err
	}
	untrusted := k.Trust(ctx, pair.CA)
	old := k.current.Load()
	switch {
	case old == nil:
	case old.Serving.Leaf.Equal(pair.Serving.Leaf):
		if bytes.Equal(old.CA, pair.CA) {
			return untrusted
		}
	case untrusted != nil && old.serves(old.CA, k.Hosts, k.Now()):
		return untrusted
	case !pair.serves(old.CA, k.Hosts, k.Now()) && old.serves(old.CA, k.Hosts, k.Now()):
		select {
		case <-time.After(settleTime):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	k.current.Store(pair)
	k.Log.Info("Serving with another certificate", "until", pair.Serving.Leaf.NotAfter.Format(time.RFC3339))
	return untrusted
}

// ensure returns the certificate from the Secret if it serves all hosts for long enough, and otherwise stores a new one there. If several
// replicas make one at the same time, one wins and the others use its certificate.
func (k *Keeper) ensure(ctx context.Context) (*Pair, error) {
	for range 5 {
		var have corev1.Secret
		err := k.Client.Get(ctx, k.Secret, &have)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading the serving certificate: %w", err)
		}
		missing := err != nil
		now := k.Now()
		if pair := read(have.Data); pair != nil && pair.serves(pair.CA, k.Hosts, now) && pair.serves(pair.CA, k.Hosts, now.Add(renewal)) {
			return pair, nil
		}
		pair, err := k.store(ctx, &have, missing, now)
		if err == nil {
			return pair, nil
		}
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			return nil, fmt.Errorf("storing the serving certificate in Secret %s: %w", k.Secret, err)
		} // else another replica was first
	}
	return nil, fmt.Errorf("the serving certificate in Secret %s keeps changing; is something else writing it?", k.Secret)
}

// store makes a certificate and writes it over the Secret that was read.
func (k *Keeper) store(ctx context.Context, have *corev1.Secret, missing bool, now time.Time) (*Pair, error) {
	data, err := renew(have.Data, k.current.Load(), k.Hosts, now)
	if err != nil {
		return nil, err
	}
	pair := read(data)
	if pair == nil || !pair.serves(pair.CA, k.Hosts, now) {
		return nil, fmt.Errorf("a certificate for %v cannot be made", k.Hosts)
	}
	if missing {
		have.ObjectMeta = metav1.ObjectMeta{Namespace: k.Secret.Namespace, Name: k.Secret.Name}
		have.Type = corev1.SecretTypeTLS
		have.Data = data
		return pair, k.Client.Create(ctx, have)
	}
	if have.Data == nil {
		have.Data = map[string][]byte{}
	}
	maps.Copy(have.Data, data)
	return pair, k.Client.Update(ctx, have)
}

// watch signals whenever the Secret may have changed, until ctx ends.
func (k *Keeper) watch(ctx context.Context, changed chan<- struct{}) {
	for ctx.Err() == nil {
		watcher, err := k.Client.Watch(ctx, &corev1.SecretList{}, client.InNamespace(k.Secret.Namespace),
			client.MatchingFields{metav1.ObjectNameField: k.Secret.Name})
		if err != nil {
			k.Log.V(1).Info("The Secret of the serving certificate cannot be watched; it is read every minute", "error", err.Error())
		} else {
			for range watcher.ResultChan() {
				select {
				case changed <- struct{}{}:
				default: // there is a signal already
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchAgain):
		}
	}
}
