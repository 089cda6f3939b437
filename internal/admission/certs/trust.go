package certs

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Target is an object that tells the API server how to call the manager: a webhook configuration, a CRD whose objects the manager
// converts, or an APIService.
type Target struct {
	Kind schema.GroupVersionKind
	Name string
	// At is the Service or host that it leads to. An object of that name that leads elsewhere belongs to another installation.
	At string
}

// Targets selects the targets among installed objects. Webhook configurations come first: the API server calls them for most requests.
func Targets(installed []*unstructured.Unstructured) []Target {
	var out []Target
	for _, u := range installed {
		if all := clients(u); len(all) > 0 {
			out = append(out, Target{Kind: u.GroupVersionKind(), Name: u.GetName(), At: leadsTo(all[0])})
		}
	}
	rank := func(t Target) int {
		if strings.HasSuffix(t.Kind.Kind, "WebhookConfiguration") {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b Target) int { return rank(a) - rank(b) })
	return out
}

// setCA writes the authority into an object, wherever it leads to the target's Service or host, and reports whether that changed it.
func (t *Target) setCA(u *unstructured.Unstructured, ca []byte) (changed bool) {
	text := base64.StdEncoding.EncodeToString(ca)
	for _, c := range clients(u) {
		if leadsTo(c) != t.At {
			continue
		}
		have, _ := c["caBundle"].(string)
		raw, err := base64.StdEncoding.DecodeString(have)
		if err == nil && bytes.Equal(raw, ca) && c["insecureSkipTLSVerify"] == nil {
			continue
		}
		delete(c, "insecureSkipTLSVerify") // not together with an authority
		c["caBundle"] = text
		changed = true
	}
	return changed
}

// clients returns the parts of an object that may hold a caBundle. They are shared with the object.
func clients(u *unstructured.Unstructured) []map[string]any {
	part := func(o map[string]any, path ...string) map[string]any {
		for _, p := range path {
			o, _ = o[p].(map[string]any)
		}
		return o
	}
	var out []map[string]any
	switch u.GetKind() {
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		hooks, _ := u.Object["webhooks"].([]any)
		for _, h := range hooks {
			if hook, ok := h.(map[string]any); ok {
				out = append(out, part(hook, "clientConfig"))
			}
		}
	case "CustomResourceDefinition":
		out = append(out, part(u.Object, "spec", "conversion", "webhook", "clientConfig"))
	case "APIService":
		if spec := part(u.Object, "spec"); spec["service"] != nil {
			out = append(out, spec)
		}
	}
	return slices.DeleteFunc(out, func(c map[string]any) bool { return c == nil })
}

// leadsTo returns the Service, or the host of the URL, that a client calls.
func leadsTo(c map[string]any) string {
	if service, ok := c["service"].(map[string]any); ok {
		return fmt.Sprintf("%v/%v", service["namespace"], service["name"])
	}
	text, _ := c["url"].(string)
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	return u.Host
}

// internal/wire grants the rights for this, object by object.

// Trust writes the authority into the existing targets. A target that refuses it does not keep the others from it: the error joins all
// failures. Only the metadata of a target is read until that target changes.
func (k *Keeper) Trust(ctx context.Context, ca []byte) error {
	if !bytes.Equal(k.trusted, ca) || k.seen == nil {
		k.trusted, k.seen = bytes.Clone(ca), map[Target]string{}
	}
	var errs []error
	for _, t := range k.Targets {
		if err := k.trust(ctx, t, ca); err != nil {
			errs = append(errs, fmt.Errorf("making the certificate known in %s %s: %w", t.Kind.Kind, t.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (k *Keeper) trust(ctx context.Context, t Target, ca []byte) error {
	key := client.ObjectKey{Name: t.Name}
	var meta metav1.PartialObjectMetadata
	meta.SetGroupVersionKind(t.Kind)
	if err := k.Client.Get(ctx, key, &meta); err != nil {
		return client.IgnoreNotFound(err)
	}
	if k.seen[t] == meta.ResourceVersion {
		return nil
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // other replicas write the same
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(t.Kind)
		if err := k.Client.Get(ctx, key, u); err != nil {
			return client.IgnoreNotFound(err)
		}
		if t.setCA(u, ca) {
			if err := k.Client.Update(ctx, u); err != nil {
				return client.IgnoreNotFound(err)
			}
		}
		k.seen[t] = u.GetResourceVersion()
		return nil
	})
}
