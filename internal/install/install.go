// Package install makes the manifests of Berth from its options, and applies them: CRDs, access rules, webhook configurations, services,
// the manager's Deployment, and the shipped training runtimes.
//
//	Options ─► Manifests ─► Apply, `berth install --print`, the Helm chart, kustomize
package install

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// installer is the field manager of Apply.
const installer = client.FieldOwner("berth-install")

// Apply applies the manifests by server-side apply and waits until the API server serves the CRDs. Progress gets a line for each group of
// objects. A connection without a rate limit gets none here: client-go's default of 5 requests a second would make it last half a minute.
func Apply(ctx context.Context, cfg *rest.Config, o Options, progress io.Writer) error {
	c, err := connect(cfg)
	if err != nil {
		return err
	}
	objects, err := Manifests(o)
	if err != nil {
		return err
	}
	if err := handOver(ctx, c, &o); err != nil {
		return err
	}
	var crds []string
	counts := map[string]int{}
	var kept []string // training runtimes
	waited := false
	for _, same := range byKind(objects) {
		if custom(same[0]) && !waited {
			if err := served(ctx, c, crds); err != nil {
				return err
			}
			waited = true
		}
		changed, err := putAll(ctx, c, same)
		if err != nil {
			return err
		}
		for i, u := range same {
			switch {
			case changed[i]:
				kept = append(kept, u.GetName())
				continue
			case u.GetKind() == "CustomResourceDefinition":
				crds = append(crds, u.GetName())
			}
			counts[group(u)]++
		}
	}
	if !waited {
		if err := served(ctx, c, crds); err != nil {
			return err
		}
	}
	tellInstalled(progress, counts, kept)
	return withdraw(ctx, c, objects, &o)
}

// byKind splits objects where their kind changes.
func byKind(objects []*unstructured.Unstructured) (out [][]*unstructured.Unstructured) {
	for i, u := range objects {
		if i == 0 || u.GroupVersionKind() != objects[i-1].GroupVersionKind() {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], u)
	}
	return out
}

// atOnce is the number of requests at once.
const atOnce = 8

// putAll applies objects that do not need each other. It reports which are training runtimes that others have changed.
func putAll(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) (changed []bool, err error) {
	changed = make([]bool, len(objects))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(atOnce)
	for i, u := range objects {
		all.Go(func() (err error) {
			changed[i], err = put(ctx, c, u)
			return err
		})
	}
	return changed, all.Wait()
}

// put applies one object in the place of leftovers. It reports a training runtime that others have changed, which it leaves.
func put(ctx context.Context, c client.Client, u *unstructured.Unstructured) (changed bool, err error) {
	current, err := supersede(ctx, c, u)
	if err != nil {
		return false, fmt.Errorf("replacing %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if current {
		return false, nil
	}
	if err = apply(ctx, c, u); custom(u) && apierrors.IsConflict(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("applying %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return false, nil
}

// tries is how often an apply is tried that the API server is too busy for, and the pauses between.
var tries = wait.Backoff{Steps: 5, Duration: time.Second, Factor: 2}

// apply applies one object, again if the API server is too busy: storing a large CRD may time out on a slow machine. What others have set in a
// training runtime is not overwritten: that is a conflict.
func apply(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
	busy := func(err error) bool {
		return ctx.Err() == nil && (apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err))
	}
	how := []client.ApplyOption{installer}
	if !custom(u) {
		how = append(how, client.ForceOwnership)
	}
	return retry.OnError(tries, busy, func() error { return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), how...) })
}

// connect returns a client for Apply.
func connect(cfg *rest.Config) (client.Client, error) {
	if cfg.QPS == 0 && cfg.RateLimiter == nil {
		cfg = rest.CopyConfig(cfg)
		cfg.QPS = -1
	}
	c, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return c, nil
}

// tellInstalled writes how many objects of each group were applied, and which training runtimes were kept.
func tellInstalled(progress io.Writer, counts map[string]int, kept []string) {
	for _, g := range []string{
		"custom resource definitions", "namespace and access rules", "training runtimes", "aggregated APIs and services", "parts of the manager",
		"webhook configurations", "admission policies and their bindings",
	} {
		if counts[g] > 0 {
			fmt.Fprintf(progress, "installed %d %s\n", counts[g], g)
		}
	}
	if len(kept) > 0 {
		fmt.Fprintf(progress, "kept training runtimes that were changed: %s; to get one as it comes with Berth, delete it and install again\n", strings.Join(kept, ", "))
	}
}

func group(u *unstructured.Unstructured) string {
	switch u.GetKind() {
	case "CustomResourceDefinition":
		return "custom resource definitions"
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return "webhook configurations"
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		return "admission policies and their bindings"
	case trainerv1alpha1.KindClusterTrainingRuntime:
		return "training runtimes"
	case "APIService", "Service":
		return "aggregated APIs and services"
	case "Deployment", "ConfigMap", "PriorityClass", "PodDisruptionBudget", "NetworkPolicy":
		return "parts of the manager"
	}
	return "namespace and access rules"
}

// custom reports whether an object's kind is defined by one of Berth's CRDs.
func custom(u *unstructured.Unstructured) bool {
	return u.GroupVersionKind().Group == trainerv1alpha1.GroupVersion.Group
}

// supersede removes leftovers of another installation that an apply would keep: webhooks that Berth does not have, whose calls would
// fail, and the other address of a webhook, which may be a URL or a Service but not both. It reports whether an apply would change nothing.
func supersede(ctx context.Context, c client.Client, wanted *unstructured.Unstructured) (current bool, err error) {
	var at []string
	switch wanted.GetKind() {
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
	case "CustomResourceDefinition":
		at = []string{"spec", "conversion", "webhook"}
	default:
		return false, nil
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(wanted.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(wanted), live); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	changed := false
	if at != nil {
		if applied(live, wanted) {
			return true, nil
		}
		want, _, _ := unstructured.NestedMap(wanted.Object, at...)
		have, found, _ := unstructured.NestedMap(live.Object, at...)
		if changed = found && readdress(have, want); changed {
			_ = unstructured.SetNestedMap(live.Object, have, at...) // the same place
		}
	} else {
		have, _, _ := unstructured.NestedSlice(live.Object, "webhooks")
		want, _, _ := unstructured.NestedSlice(wanted.Object, "webhooks")
		byName := map[any]map[string]any{}
		for _, w := range want {
			hook, _ := w.(map[string]any)
			byName[hook["name"]] = hook
		}
		kept := slices.DeleteFunc(slices.Clone(have), func(h any) bool {
			hook, _ := h.(map[string]any)
			return byName[hook["name"]] == nil
		})
		changed = len(kept) < len(have)
		for _, h := range kept {
			hook, _ := h.(map[string]any)
			changed = readdress(hook, byName[hook["name"]]) || changed
		}
		live.Object["webhooks"] = kept
	}
	if !changed {
		return false, nil
	}
	return false, c.Update(ctx, live, installer)
}

// applied reports whether an earlier Apply has left exactly the wanted CRD. The API server needs seconds to apply all of them once more.
func applied(live, wanted *unstructured.Unstructured) bool {
	mine := slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == string(installer) && e.Operation == metav1.ManagedFieldsOperationApply
	})
	want, _, _ := unstructured.NestedMap(wanted.Object, "spec")
	if _, set := want["conversion"]; !set && want != nil {
		want["conversion"] = map[string]any{"strategy": string(apiextensionsv1.NoneConverter)} // as the API server fills it in
	}
	return mine && equality.Semantic.DeepEqual(live.Object["spec"], want) &&
		maps.Equal(live.GetLabels(), wanted.GetLabels()) && maps.Equal(live.GetAnnotations(), wanted.GetAnnotations())
}

// readdress replaces the address of a webhook, without its authority, if it is of the other form. It reports whether it changed.
func readdress(have, want map[string]any) bool {
	old, _ := have["clientConfig"].(map[string]any)
	client, _ := want["clientConfig"].(map[string]any)
	if client == nil || (old["url"] == nil) == (client["url"] == nil) {
		return false
	}
	have["clientConfig"] = client
	return true
}

// served waits until the API server answers for every CRD: the condition Established is not enough, and watches that come too early back
// off for seconds.
func served(ctx context.Context, c client.Client, names []string) error {
	for _, name := range names {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			var crd apiextensionsv1.CustomResourceDefinition
			if err := c.Get(ctx, client.ObjectKey{Name: name}, &crd); err != nil {
				return false, err
			}
			// Before the manager runs, objects of other versions than the stored one cannot be converted. It is enough that the path
			// exists.
			converts := crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
			for _, v := range crd.Spec.Versions {
				list := &metav1.PartialObjectMetadataList{}
				list.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.ListKind})
				if !v.Served {
					continue
				}
				if err := c.List(ctx, list, client.Limit(1)); err != nil && (!converts || apierrors.IsNotFound(err)) {
					return false, nil // not served yet: poll again
				}
			}
			return true, nil
		})
		if err != nil {
			return fmt.Errorf("waiting for the API server to serve %s: %w", name, err)
		}
	}
	return nil
}
