package certs

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// Two replicas serve a webhook in turns, a new connection for each call, while certificates are replaced for every reason. No
// call of the API server fails.
func TestRotation(t *testing.T) {
	ctx := t.Context()
	c, err := client.NewWithWatch(embeddedtest.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ends := soon(t, time.Now().Add(-caLife+2*servingLife), time.Now().Add(-servingLife+renewal/2)) // an authority that lasts, a certificate that does not
	if err := c.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name}, Type: corev1.SecretTypeTLS, Data: ends,
	}); err != nil {
		t.Fatal(err)
	}
	a, b := replica(c), replica(c)
	url := serveInTurns(t, a, b)
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "rotation"},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{webhookFor(url, ends[keyCA])},
	}
	if err := c.Create(ctx, hook); err != nil {
		t.Fatal(err)
	}
	for _, k := range []*Keeper{a, b} {
		k.current.Store(read(ends)) // as if it had run since the certificate was made
		k.Targets = targetsOf(t, hook)
	}
	calls := callAll(ctx, t, c)
	defer calls.stop()
	for _, k := range []*Keeper{a, b} {
		calls.running.Go(func() { _ = k.Start(ctx) })
	}
	first := read(ends)
	calls.wait("the certificate that ends soon is replaced on both replicas", func() error { return moved(a, b, first) })
	renewed := a.current.Load()
	if !certificates(renewed.CA)[0].Equal(certificates(first.CA)[0]) {
		t.Error("a new authority was made although the old one lasts")
	}

	deleted := time.Now()
	if err := c.Delete(ctx, stored(t, c)); err != nil {
		t.Fatal(err)
	}
	calls.wait("a Secret that was deleted comes back, and both replicas serve what is in it", func() error { return moved(a, b, renewed) })
	if time.Since(deleted) < settleTime {
		t.Error("no time was left for all API servers to hear of the new authority")
	}
	if certificates(a.CA())[0].Equal(certificates(renewed.CA)[0]) {
		t.Error("the authority is the same although its key was lost")
	}

	s := stored(t, c)
	s.Data = soon(t, time.Now().Add(-caLife+servingLife/2), time.Now().Add(-time.Hour)) // an authority that ends before a certificate would
	s.Data[keyCA] = append(s.Data[keyCA], a.CA()...)
	s.Data[keyCert] = nil
	before := a.current.Load()
	if err := c.Update(ctx, s); err != nil {
		t.Fatal(err)
	}
	calls.wait("an authority that ends soon is replaced", func() error { return moved(a, b, before) })
	calls.stop()
	if err := c.Get(ctx, client.ObjectKeyFromObject(hook), hook); err != nil {
		t.Fatal(err)
	}
	if got := string(hook.Webhooks[0].ClientConfig.CABundle); got != string(a.CA()) {
		t.Error("the webhook configuration does not trust what is served")
	}
	if n := calls.made.Load(); n < 30 {
		t.Errorf("only %d calls were made: the test proves little", n)
	}
}

// soon is the content of a Secret whose authority and certificate were made at some time.
func soon(t *testing.T, authorityMade, certMade time.Time) map[string][]byte {
	t.Helper()
	data, err := renew(nil, nil, hosts, authorityMade)
	if err != nil {
		t.Fatal(err)
	}
	signer := readAuthority(data, authorityMade)
	data[keyCert], data[keyKey], err = signer.issue(hosts, certMade)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// moved reports whether both replicas serve the same certificate, which is not the old one, and which lasts.
func moved(a, b *Keeper, old *Pair) error {
	x, y := a.current.Load(), b.current.Load()
	if x.Serving.Leaf.Equal(old.Serving.Leaf) || !x.Serving.Leaf.Equal(y.Serving.Leaf) || !x.serves(x.CA, hosts, time.Now().Add(renewal)) {
		return fmt.Errorf("serving %v and %v", x.Serving.Leaf.NotAfter, y.Serving.Leaf.NotAfter)
	}
	return nil
}

func webhookFor(url string, ca []byte) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: "v.rotation.test", SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}},
	}
}

func targetsOf(t *testing.T, hook *admissionregistrationv1.ValidatingWebhookConfiguration) []Target {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"webhooks": []any{
		map[string]any{"clientConfig": map[string]any{"url": *hook.Webhooks[0].ClientConfig.URL}},
	}}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"})
	u.SetName(hook.Name)
	return Targets([]*unstructured.Unstructured{u})
}

// serveInTurns listens as a Service with two replicas behind it would.
func serveInTurns(t *testing.T, replicas ...*Keeper) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int32
	server := &http.Server{
		ReadHeaderTimeout: time.Second,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return replicas[int(n.Add(1))%len(replicas)].Certificate(hello)
		}},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // no HTTP/2: it keeps connections
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var review admissionv1.AdmissionReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
			_ = json.NewEncoder(w).Encode(&review)
		}),
	}
	server.SetKeepAlivesEnabled(false)
	go func() { _ = server.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	return "https://" + l.Addr().String() + "/"
}

// caller makes the API server call the webhook without a pause.
type caller struct {
	t       *testing.T
	running sync.WaitGroup
	stop    func()
	made    atomic.Int32
	failed  atomic.Pointer[string]
}

func callAll(ctx context.Context, t *testing.T, c client.Client) *caller {
	ctx, cancel := context.WithCancel(ctx)
	out := &caller{t: t, stop: cancel}
	out.running.Go(func() {
		for ctx.Err() == nil {
			err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "c-"}}, client.DryRunAll)
			if err != nil && ctx.Err() == nil {
				out.failed.CompareAndSwap(nil, new(err.Error()))
			}
			out.made.Add(1)
			time.Sleep(10 * time.Millisecond)
		}
	})
	t.Cleanup(func() { cancel(); out.running.Wait() })
	return out
}

// wait waits for check to succeed, and fails the test if a call has failed by then.
func (c *caller) wait(what string, check func() error) {
	c.t.Helper()
	wait.Until(c.t, what, check)
	made := c.made.Load()
	wait.Until(c.t, "a few calls more", func() error {
		if now := c.made.Load(); now < made+10 {
			return fmt.Errorf("%d", now-made)
		}
		return nil
	})
	if failed := c.failed.Load(); failed != nil {
		c.t.Fatalf("until %s, a call failed: %s", what, *failed)
	}
}
