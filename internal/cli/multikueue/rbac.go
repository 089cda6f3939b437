// Package multikueue is what administrators of several clusters ask before they start a manager: what accounts must be allowed to do, and what
// an external framework of the configuration would make of a job.
package multikueue

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/wire"
)

// Roles of PrintRules.
const (
	Manager = "manager"
	Worker  = "worker"
)

const queueing = "kueue.x-k8s.io"

var (
	read   = []string{"get", "list", "watch"}
	status = []string{"get", "patch", "update"}
)

// PrintRules prints the ClusterRole that a manager's own account, or the credential that it has for a worker, needs for many clusters with a
// configuration, and no more (spec: 40 §4.12). For the manager it comes on top of what `berth install` gives it for jobs of the cluster
// itself, with a Role for its own namespace.
func PrintRules(out io.Writer, o *options.Options, role string) error {
	objects := []any{}
	switch role {
	case Worker:
		objects = append(objects, clusterRole("berth-multikueue-worker", workerRules(o)))
	case Manager:
		objects = append(objects, clusterRole("berth-multikueue-manager", managerRules(o)), &rbacv1.Role{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: "berth-multikueue-manager"},
			Rules:      namespaceRules(o),
		})
	default:
		return fmt.Errorf("--role %q: must be %s or %s", role, Manager, Worker)
	}
	for i, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprintln(out, "---")
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return nil
}

func clusterRole(name string, rules []rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules,
	}
}

// kind is a kind of jobs that is sent to workers.
type kind struct {
	gvk      schema.GroupVersionKind
	resource string
	// external says that it comes from externalFrameworks, carried that a controller of its own carries its jobs there, forwarded that copies
	// follow their jobs, and whole that a write of the status may be one of the object.
	external, carried, forwarded, whole bool
}

// kinds returns the kinds that a configuration dispatches, in order. No cluster is asked: the resource of an external kind is the
// usual plural.
func kinds(o *options.Options) []kind {
	var out []kind
	for _, d := range wire.Kinds(o) {
		if d.Remote != nil {
			out = append(out, kind{gvk: d.GVK, resource: d.Resource, forwarded: d.Remote.Patches()})
		}
	}
	for _, f := range o.MultiKueue.ExternalFrameworks {
		if slices.ContainsFunc(out, func(k kind) bool { return k.gvk == f.GVK }) {
			out = slices.DeleteFunc(out, func(k kind) bool { return k.gvk == f.GVK })
		}
		plural, _ := apimeta.UnsafeGuessKindToResource(f.GVK)
		out = append(out, kind{
			gvk: f.GVK, resource: plural.Resource, external: true, carried: f.NoJob, forwarded: len(f.SpecPaths) > 0,
			whole: !f.NoJob && (f.Extended && f.Subresource != "Status" && f.StatusMode != "Disabled" || len(f.AnnotationPrefixes)+len(f.LabelPrefixes) > 0),
		})
	}
	slices.SortFunc(out, func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.gvk.Group, b.gvk.Group), cmp.Compare(a.resource, b.resource))
	})
	return out
}

func rule(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// workerRules are what the credential needs on a worker.
func workerRules(o *options.Options) []rbacv1.PolicyRule {
	out := []rbacv1.PolicyRule{
		rule(queueing, []string{"create", "delete", "get", "list", "patch", "update", "watch"}, "workloads"),
		rule(queueing, status, "workloads/status"),
		rule(queueing, read, "clusterqueues", "localqueues"),
	}
	for _, k := range kinds(o) {
		if k.carried {
			continue
		}
		verbs := []string{"create", "delete", "get", "list", "watch"}
		if k.forwarded {
			verbs = []string{"create", "delete", "get", "list", "patch", "watch"}
		}
		out = append(out, rule(k.gvk.Group, verbs, k.resource), rule(k.gvk.Group, []string{"get"}, k.resource+"/status"))
	}
	return append(out, followedRules(o)...)
}

// followedRules are about what copies make on a worker, where that is looked at, and is of no kind that is sent.
func followedRules(o *options.Options) (out []rbacv1.PolicyRule) {
	sent := kinds(o)
	for _, d := range wire.Kinds(o) {
		if d.Remote == nil || d.Remote.Follow == nil || slices.ContainsFunc(sent, func(k kind) bool { return k.gvk == d.ManagedChildren.Child }) {
			continue
		}
		plural, _ := apimeta.UnsafeGuessKindToResource(d.ManagedChildren.Child)
		out = append(out, rule(d.ManagedChildren.Child.Group, read, plural.Resource))
	}
	return out
}

// managerRules are what the manager's account needs on its own cluster.
func managerRules(o *options.Options) []rbacv1.PolicyRule {
	out := []rbacv1.PolicyRule{
		rule(queueing, read, "admissionchecks", "multikueueclusters", "multikueueconfigs"),
		rule(queueing, status, "admissionchecks/status", "multikueueclusters/status"),
		rule(queueing, []string{"delete", "get", "list", "patch", "update", "watch"}, "workloads"),
		rule(queueing, status, "workloads/status"),
		rule("events.k8s.io", []string{"create", "patch"}, "events"),
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}},
	}
	if o.Gates.On(feature.MultiKueueManagerQuotaAutomation) {
		out = append(out, rule(queueing, []string{"get", "list", "patch", "update", "watch"}, "clusterqueues"), rule(queueing, status, "clusterqueues/status"),
			rule(queueing, read, "localqueues"))
	}
	for _, k := range kinds(o) {
		verbs := read
		if k.whole {
			verbs = []string{"get", "list", "patch", "watch"}
		}
		out = append(out, rule(k.gvk.Group, verbs, k.resource))
		if !k.carried {
			out = append(out, rule(k.gvk.Group, []string{"get", "patch"}, k.resource+"/status"))
		}
	}
	return out
}

// namespaceRules are what the manager's account needs in its namespace.
func namespaceRules(o *options.Options) []rbacv1.PolicyRule {
	out := []rbacv1.PolicyRule{rule("", read, "secrets")}
	if o.Gates.On(feature.MultiKueueClusterProfile) {
		out = append(out, rule("multicluster.x-k8s.io", read, "clusterprofiles"))
	}
	return out
}
