package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var secret = types.NamespacedName{Namespace: "berth-system", Name: "cert"}

func TestEnsure(t *testing.T) {
	ctx := context.Background()
	c := fake.NewClientBuilder().Build()
	now := time.Now()
	hosts := []string{"127.0.0.1", "kueue-webhook-service.berth-system.svc"}
	first, err := Ensure(ctx, c, secret, hosts, now)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(first.CA) {
		t.Fatal("the authority is no certificate")
	}
	for _, h := range hosts {
		if _, err := first.Serving.Leaf.Verify(x509.VerifyOptions{DNSName: h, Roots: roots}); err != nil {
			t.Errorf("a client that trusts the authority and calls %s: %v", h, err)
		}
	}
	cases := map[string]struct {
		hosts []string
		at    time.Time
		spoil func(*corev1.Secret)
		same  bool
	}{
		"another replica takes the stored one": {hosts: hosts, at: now, same: true},
		"a name that it does not serve":        {hosts: []string{"elsewhere.svc"}, at: now},
		"it ends soon":                         {hosts: hosts, at: now.Add(300 * 24 * time.Hour)},
		"somebody emptied the Secret":          {hosts: hosts, at: now, spoil: func(s *corev1.Secret) { s.Data = nil }},
		"key of another certificate": {hosts: hosts, at: now, spoil: func(s *corev1.Secret) {
			_, key, err := generate(hosts)
			if err != nil {
				t.Fatal(err)
			}
			s.Data[keyKey] = key
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := stored(t, c)
			replica := fake.NewClientBuilder().WithObjects(s).Build()
			if tc.spoil != nil {
				tc.spoil(s)
				if err := replica.Update(ctx, s); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Ensure(ctx, replica, secret, tc.hosts, tc.at)
			if err != nil {
				t.Fatal(err)
			}
			if same := equal(got.Serving, first.Serving); same != tc.same {
				t.Errorf("the stored certificate was kept: %v, want %v", same, tc.same)
			}
			if again, _ := Ensure(ctx, replica, secret, tc.hosts, now); !equal(again.Serving, got.Serving) {
				t.Error("what was made is not what is stored")
			}
		})
	}
}

func stored(t *testing.T, c client.Client) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := c.Get(context.Background(), secret, s); err != nil {
		t.Fatal(err)
	}
	s.ResourceVersion = ""
	return s
}

func equal(a, b tls.Certificate) bool { return a.Leaf.Equal(b.Leaf) }
