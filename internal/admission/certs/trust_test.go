package certs

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The authority is written wherever the API server calls us, once, and nowhere else.
func TestSetCA(t *testing.T) {
	type object = map[string]any
	service := func(name string) object { return object{"service": object{"namespace": "ns", "name": name}} }
	for name, tc := range map[string]struct {
		kind string
		make func(client object) object
	}{
		"mutating":   {"MutatingWebhookConfiguration", func(c object) object { return object{"webhooks": []any{object{"clientConfig": c}}} }},
		"validating": {"ValidatingWebhookConfiguration", func(c object) object { return object{"webhooks": []any{object{"clientConfig": c}}} }},
		"conversion": {"CustomResourceDefinition", func(c object) object {
			return object{"spec": object{"conversion": object{"strategy": "Webhook", "webhook": object{"clientConfig": c}}}}
		}},
		"aggregated API": {"APIService", func(c object) object { return object{"spec": c} }},
	} {
		t.Run(name, func(t *testing.T) {
			of := func(client object) *unstructured.Unstructured {
				u := &unstructured.Unstructured{Object: tc.make(client)}
				u.SetKind(tc.kind)
				u.SetName("x")
				return u
			}
			targets := Targets([]*unstructured.Unstructured{of(service("ours"))})
			if len(targets) != 1 || targets[0].Name != "x" || targets[0].Kind.Kind != tc.kind {
				t.Fatalf("targets are %v", targets)
			}
			client := service("ours")
			client["insecureSkipTLSVerify"] = true
			u := of(client)
			if !targets[0].setCA(u, []byte("ca")) || targets[0].setCA(u, []byte("ca")) || !targets[0].setCA(u, []byte("another")) {
				t.Error("it is not written once")
			}
			want := service("ours")
			want["caBundle"] = base64.StdEncoding.EncodeToString([]byte("another"))
			if diff := cmp.Diff(want, client); diff != "" {
				t.Errorf("client (-want +got):\n%s", diff)
			}
			if targets[0].setCA(of(service("theirs")), []byte("ca")) || targets[0].setCA(of(object{"url": "https://else.where/x"}), []byte("ca")) {
				t.Error("it is written for somebody else's Service")
			}
		})
	}
	plain := &unstructured.Unstructured{Object: object{"spec": object{"conversion": object{"strategy": "None"}}}}
	plain.SetKind("CustomResourceDefinition")
	local := &unstructured.Unstructured{Object: object{"spec": object{"group": "served.by.the.api.server"}}}
	local.SetKind("APIService")
	if targets := Targets([]*unstructured.Unstructured{plain, local}); len(targets) > 0 {
		t.Errorf("these trust nobody: %v", targets)
	}
}

// A target that refuses the authority does not keep the others from it, and the certificate in use stays as long as it lasts.
func TestRefusedAuthority(t *testing.T) {
	of := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "ns", Name: "s"}}
	last := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "last"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "w", ClientConfig: of}},
	}
	c := fake.NewClientBuilder().WithObjects(last, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "refuses"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "w", ClientConfig: of}},
	}).WithInterceptorFuncs(interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
		if o.GetName() == "refuses" {
			return errors.New("no")
		}
		return c.Update(ctx, o, opts...)
	}}).Build()
	k, now := replica(c), time.Now()
	k.Now = func() time.Time { return now }
	for _, target := range []Target{{Name: "refuses"}, {Name: "last"}} {
		target.At = "ns/s"
		target.Kind = admissionregistrationv1.SchemeGroupVersion.WithKind(map[string]string{"refuses": "MutatingWebhookConfiguration", "last": "ValidatingWebhookConfiguration"}[target.Name])
		k.Targets = append(k.Targets, target)
	}
	first := prepared(t, k)
	for _, step := range []struct {
		what  string
		after time.Duration
		keeps bool
	}{
		{"at first", 0, true}, {"while the first certificate lasts", servingLife - renewal + time.Hour, true}, {"after its end", servingLife + time.Hour, false},
	} {
		now = time.Now().Add(step.after)
		if err := k.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "MutatingWebhookConfiguration refuses: no") {
			t.Errorf("%s: %v", step.what, err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(last), last); err != nil {
			t.Fatal(err)
		}
		if kept := k.current.Load().Serving.Leaf.Equal(first.Serving.Leaf); kept != step.keeps {
			t.Errorf("%s: the first certificate serves: %t", step.what, kept)
		}
		if diff := cmp.Diff(string(read(stored(t, c).Data).CA), string(last.Webhooks[0].ClientConfig.CABundle)); diff != "" {
			t.Errorf("%s: the later target has another authority -want +got:\n%s", step.what, diff)
		}
	}
}

// Webhook configurations come before CRDs and APIServices.
func TestOrderOfTargets(t *testing.T) {
	var installed []*unstructured.Unstructured
	for _, kind := range []string{"CustomResourceDefinition", "APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		of := map[string]any{"service": map[string]any{"namespace": "ns", "name": "s"}}
		u := &unstructured.Unstructured{Object: map[string]any{
			"webhooks": []any{map[string]any{"clientConfig": of}}, "spec": map[string]any{"service": of["service"], "conversion": map[string]any{"webhook": map[string]any{"clientConfig": of}}},
		}}
		u.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
		installed = append(installed, u)
	}
	var got []string
	for _, target := range Targets(installed) {
		got = append(got, target.Kind.Kind)
	}
	if diff := cmp.Diff([]string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "CustomResourceDefinition", "APIService"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
