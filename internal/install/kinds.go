package install

import (
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/options/declare"
)

// kindsRole is the name of the role for kinds in the configuration.
const kindsRole = "kueue-configured-kinds-role"

// kindRight is a ClusterRole of the manager for the built-in job kinds.
type kindRight struct {
	role *rbacv1.ClusterRole
	// framework is the kind without which the role is not bound; empty for the role that reads all kinds.
	framework string
}

// kindRights returns the manager's rights on job kinds: reading all of them and pods, because owners of disabled kinds still decide which
// object is queued, and writing the enabled ones.
func kindRights() []kindRight {
	readable := map[string][]string{"": {"pods"}}
	var out []kindRight
	for _, d := range all.Descriptors() {
		if !slices.Contains(readable[d.GVK.Group], d.Resource) {
			readable[d.GVK.Group] = append(readable[d.GVK.Group], d.Resource)
		}
		out = append(out, kindRight{clusterRole(frameworkPrefix+strings.ToLower(d.GVK.Kind)+roleSuffix, d.ManagerRules()...), d.Framework})
	}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: []string{"get"}}} // between Deployments and their pods
	for _, group := range slices.Sorted(maps.Keys(readable)) {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: readable[group], Verbs: viewVerbs})
	}
	return append(out, kindRight{role: clusterRole(managerPrefix+"integrations"+roleSuffix, rules...)})
}

// kindAccess returns the manager's rights on the job kinds in the configuration: declared ones like built-in ones, external ones as
// owners of jobs, and kinds that are dispatched to other clusters.
func kindAccess(o *Options) ([]*unstructured.Unstructured, error) {
	var rules []rbacv1.PolicyRule
	for _, k := range o.Options.DeclaredKinds {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{k.GVK.Group}, Resources: []string{k.Resource},
			Verbs: []string{"delete", "get", "list", "patch", "update", "watch"},
		}, rbacv1.PolicyRule{ // OwnerReferencesPermissionEnforcement demands it of owners of Workloads
			APIGroups: []string{k.GVK.Group}, Resources: []string{k.Resource + "/finalizers"}, Verbs: []string{"update"},
		})
	}
	for _, gvk := range o.Options.ExternalFrameworks {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{gvk.Group}, Resources: []string{declare.Resource(gvk)}, Verbs: []string{"get"}})
	}
	for _, f := range o.Options.MultiKueue.ExternalFrameworks { // dispatched to other clusters; their status is copied back
		resource := declare.Resource(f.GVK)
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{f.GVK.Group}, Resources: []string{resource}, Verbs: []string{"get", "list", "patch", "watch"}},
			rbacv1.PolicyRule{APIGroups: []string{f.GVK.Group}, Resources: []string{resource + "/status"}, Verbs: []string{"get", "patch"}})
	}
	if len(rules) == 0 {
		return nil, nil
	}
	role := clusterRole(kindsRole, rules...)
	return toUnstructured(nil, role, bindManager(role.Name, o.namespace()))
}
