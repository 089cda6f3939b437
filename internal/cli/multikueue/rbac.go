// Package multikueue has the commands for administrators of several clusters: the rights that accounts need, and the effect of an
// external framework in the configuration on a job.
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

// PrintRules prints the ClusterRole that a manager's own account, or its credential for a worker, needs for a configuration of several
// clusters, and no more (spec: 40 §4.12). The manager's comes on top of its rights from `berth install`, with a Role for its own
// namespace.
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

// kind is a job kind that is dispatched to workers.
type kind struct {
	gvk      schema.GroupVersionKind
	resource string
	// external kinds come from externalFrameworks; another controller dispatches the jobs of carried ones; copies of forwarded ones
	// follow their jobs; status writes of whole ones may write the object.
	external, carried, forwarded, whole bool
}

// kinds returns the kinds that a configuration dispatches, in order, without asking a cluster: the resource of an external kind is the
// usual plural.
func kinds(o *options.Options) []kind {
	var out []kind
	for _, d := range wire.Kinds(o) {
		if d.Remote != nil {
			out = append(out, kind{gvk: d.GVK, resource: d.Resource, forwarded: d.Remote.Patches()})
		}
	}
	for _, f := range o.MultiKueue.ExternalFrameworks {
		out = slices.DeleteFunc(out, func(k kind) bool { return k.gvk == f.GVK })
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

// workerRules are the rights of the credential on a worker.
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

// followedRules allow reading the children of copies on a worker, where these are used and no dispatched kind.
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

// managerRules are the rights of the manager's account on its own cluster.
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

// namespaceRules are the rights of the manager's account in its namespace.
func namespaceRules(o *options.Options) []rbacv1.PolicyRule {
	out := []rbacv1.PolicyRule{rule("", read, "secrets")}
	if o.Gates.On(feature.MultiKueueClusterProfile) {
		out = append(out, rule("multicluster.x-k8s.io", read, "clusterprofiles"))
	}
	return out
}
