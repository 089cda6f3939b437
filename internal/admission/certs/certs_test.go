package certs

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

var (
	secret = types.NamespacedName{Namespace: "default", Name: "cert"}
	hosts  = []string{"127.0.0.1", "kueue-webhook-service.default.svc"}
)

func replica(c client.WithWatch) *Keeper {
	return &Keeper{Client: c, Secret: secret, Hosts: hosts, Now: time.Now, Log: logr.Discard()}
}

func prepared(t *testing.T, k *Keeper) *Pair {
	t.Helper()
	if err := k.Prepare(context.Background()); err != nil {
		t.Fatal(err)
	}
	return k.current.Load()
}

func TestPrepare(t *testing.T) {
	first := prepared(t, replica(fake.NewClientBuilder().Build()))
	leaf, ca := first.Serving.Leaf, certificates(first.CA)[0]
	if !first.serves(first.CA, hosts, time.Now()) {
		t.Error("a client that trusts the authority cannot call")
	}
	if ca.Subject.CommonName != "kueue-ca" || !slices.Equal(ca.Subject.Organization, []string{"kueue"}) || !ca.IsCA {
		t.Errorf("the authority is %v", ca.Subject)
	}
	for what, d := range map[string]struct{ got, want time.Duration }{
		"authority": {time.Until(ca.NotAfter), caLife}, "serving certificate": {time.Until(leaf.NotAfter), servingLife},
	} {
		if off := d.want - d.got; off < 0 || off > time.Minute {
			t.Errorf("the %s lasts %s, want %s", what, d.got, d.want)
		}
	}
	cases := map[string]struct {
		hosts []string
		after time.Duration
		spoil func(map[string][]byte)
		// same certificate, and same authority
		same, sameCA bool
	}{
		"another replica takes the stored one":  {hosts: hosts, same: true, sameCA: true},
		"not due yet":                           {hosts: hosts, after: servingLife - renewal - time.Hour, same: true, sameCA: true},
		"it ends soon":                          {hosts: hosts, after: servingLife - renewal + time.Hour, sameCA: true},
		"it has ended":                          {hosts: hosts, after: servingLife + time.Hour, sameCA: true},
		"the authority ends before it would":    {hosts: hosts, after: caLife - servingLife + time.Hour},
		"a name that it does not serve":         {hosts: []string{"elsewhere.svc"}, sameCA: true},
		"somebody emptied the Secret":           {hosts: hosts, spoil: func(d map[string][]byte) { clear(d) }},
		"the key of the authority is gone":      {hosts: hosts, after: 300 * 24 * time.Hour, spoil: func(d map[string][]byte) { delete(d, keyCAKey) }},
		"no key of the authority, and none due": {hosts: hosts, spoil: func(d map[string][]byte) { delete(d, keyCAKey) }, same: true, sameCA: true},
		"key of another certificate": {hosts: hosts, sameCA: true, spoil: func(d map[string][]byte) {
			other, err := renew(d, nil, hosts, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			d[keyKey] = other[keyKey]
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().Build()
			first := prepared(t, replica(c))
			if tc.spoil != nil {
				s := stored(t, c)
				tc.spoil(s.Data)
				if err := c.Update(context.Background(), s); err != nil {
					t.Fatal(err)
				}
			}
			k := replica(c)
			k.Hosts, k.Now = tc.hosts, func() time.Time { return time.Now().Add(tc.after) }
			got := prepared(t, k)
			if same := got.Serving.Leaf.Equal(first.Serving.Leaf); same != tc.same {
				t.Errorf("the stored certificate was kept: %v, want %v", same, tc.same)
			}
			if same := certificates(got.CA)[0].Equal(certificates(first.CA)[0]); same != tc.sameCA {
				t.Errorf("the authority was kept: %v, want %v", same, tc.sameCA)
			}
			if !got.serves(got.CA, tc.hosts, k.Now().Add(renewal)) {
				t.Error("what was made does not last")
			}
			if again := prepared(t, k); !again.Serving.Leaf.Equal(got.Serving.Leaf) {
				t.Error("what was made is not what is stored")
			}
		})
	}
}

// Managers with different names share one certificate, instead of replacing it in turns.
func TestHostsAddUp(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	a, b := replica(c), replica(c)
	a.Hosts, b.Hosts = []string{"10.0.0.1"}, []string{"10.0.0.2"}
	prepared(t, a)
	last := prepared(t, b)
	if again := prepared(t, a); !again.Serving.Leaf.Equal(last.Serving.Leaf) {
		t.Error("the second certificate does not serve the first manager")
	}
}

// Certificates of a replaced authority stay trusted until it expires, and no longer.
func TestBundle(t *testing.T) {
	long, now := time.Now().Add(-caLife), time.Now()
	data, err := renew(nil, nil, hosts, long.Add(servingLife/2)) // an authority with half a year to go
	if err != nil {
		t.Fatal(err)
	}
	old := certificates(data[keyCA])[0]
	next, err := renew(data, nil, hosts, now)
	if err != nil {
		t.Fatal(err)
	}
	if all := certificates(next[keyCA]); len(all) != 2 || all[0].Equal(old) || !all[1].Equal(old) {
		t.Fatalf("want the new authority, then the old one, got %d", len(all))
	}
	later, err := renew(next, nil, hosts, old.NotAfter.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if all := certificates(later[keyCA]); len(all) != 1 || !all[0].Equal(certificates(next[keyCA])[0]) {
		t.Errorf("want only the new authority once the old one has ended, got %d", len(all))
	}
	lost, err := renew(nil, read(data), hosts, now) // the Secret was deleted while the old one was in use
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(certificates(lost[keyCA]), old.Equal) {
		t.Error("what other replicas still serve with is not trusted any more")
	}
}

func stored(t *testing.T, c client.Client) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := c.Get(context.Background(), secret, s); err != nil {
		t.Fatal(err)
	}
	return s
}
