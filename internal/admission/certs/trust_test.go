package certs

import (
	"encoding/base64"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
