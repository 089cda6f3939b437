package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cel"
	"github.com/berth-project/berth/internal/cli/ctl/terminal"
	planjob "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/webhook"
	"github.com/berth-project/berth/internal/options"
)

// queueLabels is the content of the policy about queue labels: the managed namespaces and the kinds that are not queued. berth install
// writes the policy from the manager's configuration.
type queueLabels struct {
	managed  *cel.Expression
	unlisted map[string]any  // frameworks by kind, as in the policy
	known    map[string]bool // whether namespaces are managed, by name
}

// queueLabels reads the policy. It returns nil if the policy does not exist, or the caller may not read it.
func (s *session) queueLabels(ctx context.Context) *queueLabels {
	var policy admissionv1.ValidatingAdmissionPolicy
	if err := s.Get(ctx, client.ObjectKey{Name: webhook.QueueLabelPolicyName}, &policy); err != nil {
		return nil
	}
	out := &queueLabels{known: map[string]bool{}}
	for _, v := range policy.Spec.Variables {
		switch v.Name {
		case webhook.ManagedVariable:
			managed, err := cel.Compile(v.Name, v.Expression, cel.Scope{Names: []string{"variables"}}, cel.Bool)
			if err != nil {
				return nil
			}
			out.managed = managed
		case webhook.UnlistedVariable:
			unlisted, err := cel.Compile(v.Name, v.Expression, cel.Scope{}, cel.Map)
			if err != nil {
				return nil
			}
			value, err := unlisted.Eval(nil)
			if err != nil {
				return nil
			}
			out.unlisted, _ = value.(map[string]any)
		}
	}
	if out.managed == nil {
		return nil
	}
	return out
}

// manages reports whether a namespace with these labels is managed.
func (q *queueLabels) manages(labels map[string]string) bool {
	plain := map[string]any{}
	for k, v := range labels {
		plain[k] = v
	}
	managed, err := q.managed.Eval(map[string]any{"variables": map[string]any{"labels": plain}})
	return err != nil || managed == true
}

// ignored returns the reason why the queue label of an object is ignored; empty if it is not, or if that is unknown.
func (s *session) ignored(ctx context.Context, q *queueLabels, resource schema.GroupResource, object metav1.Object) string {
	if q == nil || planjob.QueueName(object) == "" || object.GetDeletionTimestamp() != nil || hasKnownOwner(object) {
		return ""
	}
	if !s.isManaged(ctx, q, object.GetNamespace()) {
		return planjob.UnmanagedNote(object.GetNamespace())
	}
	if framework, ok := q.unlisted[webhook.QueueableName(resource)].(string); ok {
		return planjob.UnlistedNote(framework)
	}
	return ""
}

// isManaged reports whether a namespace is managed. An unreadable one counts as managed.
func (s *session) isManaged(ctx context.Context, q *queueLabels, namespace string) bool {
	if managed, known := q.known[namespace]; known {
		return managed
	}
	ns := corev1.Namespace{}
	err := s.Get(ctx, client.ObjectKey{Name: namespace}, &ns)
	q.known[namespace] = err != nil || q.manages(ns.Labels)
	return q.known[namespace]
}

// hasKnownOwner reports whether the controller of an object is of a kind that Berth knows: then the label of the controller counts.
func hasKnownOwner(object metav1.Object) bool {
	ref := metav1.GetControllerOf(object)
	if ref == nil {
		return false
	}
	if ref.Kind == "ReplicaSet" {
		return true
	}
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	return slices.ContainsFunc(options.Frameworks(), func(f options.Framework) bool { return f.GVK == gvk })
}

// Limits of output and requests.
const (
	maxIgnored    = 10 // objects that are listed individually
	maxNamespaces = 20 // that are read individually
)

// tellIgnored prints a line on stderr for each object in the listed namespaces whose queue label is ignored: it has no Workload, and so
// no row.
func (l *listing) tellIgnored(ctx context.Context, s *session) {
	q := s.queueLabels(ctx)
	if q == nil {
		return
	}
	unmanaged := l.unmanaged(ctx, s, q)
	var lines []string
	for _, f := range options.Frameworks() {
		mapping, err := s.RESTMapper().RESTMapping(f.GVK.GroupKind(), f.GVK.Version)
		if err != nil {
			continue // not installed, for example
		}
		resource := mapping.Resource.GroupResource()
		in := unmanaged
		if q.unlisted[webhook.QueueableName(resource)] != nil {
			in = l.scope(s)
		}
		for _, namespace := range in {
			o := &client.ListOptions{Namespace: namespace}
			client.HasLabels{kueue.QueueNameLabel}.ApplyToList(o)
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(f.GVK.GroupVersion().WithKind(f.GVK.Kind + "List"))
			if err := s.Pages(ctx, list, o); err != nil {
				break // the user may not list the kind, for example
			}
			for i := range list.Items {
				item := &list.Items[i]
				if why := s.ignored(ctx, q, resource, item); why != "" {
					lines = append(lines, fmt.Sprintf("%s %s/%s: %s", strings.ToLower(f.GVK.Kind), item.Namespace, item.Name, why))
				}
			}
		}
	}
	for i, line := range lines {
		if i == maxIgnored {
			fmt.Fprintf(s.Errs, "and %d more\n", len(lines)-i)
			break
		}
		fmt.Fprintln(s.Errs, terminal.Printable(line))
	}
}

// scope returns the listed namespace, or "" for all.
func (l *listing) scope(s *session) []string {
	if l.everywhere {
		return []string{""}
	}
	return []string{s.Namespace}
}

// unmanaged returns the unmanaged ones of the listed namespaces: only there the label of a listed kind may be ignored, so that most
// objects need not be read. If there are many, it returns "" for all.
func (l *listing) unmanaged(ctx context.Context, s *session, q *queueLabels) (out []string) {
	if !l.everywhere {
		if s.isManaged(ctx, q, s.Namespace) {
			return nil
		}
		return []string{s.Namespace}
	}
	var all corev1.NamespaceList
	if err := s.Pages(ctx, &all, &client.ListOptions{}); err != nil {
		return nil
	}
	for i := range all.Items {
		ns := &all.Items[i]
		if q.known[ns.Name] = q.manages(ns.Labels); !q.known[ns.Name] {
			out = append(out, ns.Name)
		}
	}
	if len(out) > maxNamespaces {
		return []string{""}
	}
	return out
}
