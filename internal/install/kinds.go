package install

import (
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/options/declare"
)

// kindsRole is the name of the role for kinds that the configuration names.
const kindsRole = "kueue-configured-kinds-role"

// kindRight is a ClusterRole of the manager for the job kinds that this build has.
type kindRight struct {
	role *rbacv1.ClusterRole
	// framework is the kind without which the role is not bound; empty for that to read all of them.
	framework string
}

// kindRights are what the manager may do with the job kinds: read all of them, and pods, also of kinds that are off, since their owners
// decide who queues; and change those that are on.
func kindRights() []kindRight {
	readable := map[string][]string{"": {"pods"}}
	var out []kindRight
	for _, d := range all.Descriptors() {
		if !slices.Contains(readable[d.GVK.Group], d.Resource) {
			readable[d.GVK.Group] = append(readable[d.GVK.Group], d.Resource)
		}
		out = append(out, kindRight{clusterRole(frameworkPrefix+strings.ToLower(d.GVK.Kind)+roleSuffix, d.ManagerRules()...), d.Framework})
	}
	rules := []rbacv1.PolicyRule{job.Allow("apps", []string{"replicasets"}, "get")} // between Deployments and their pods
	for _, group := range slices.Sorted(maps.Keys(readable)) {
		rules = append(rules, job.Allow(group, readable[group], viewVerbs...))
	}
	return append(out, kindRight{role: clusterRole(managerPrefix+"integrations"+roleSuffix, rules...)})
}

// kindAccess lets the manager use the job kinds that the configuration names, which its own role cannot know: declared ones
// like any other, external ones as owners of jobs, and those that go to other clusters.
func kindAccess(o *Options) ([]*unstructured.Unstructured, error) {
	var rules []rbacv1.PolicyRule
	for _, k := range o.Options.DeclaredKinds {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{k.GVK.Group}, Resources: []string{k.Resource},
			Verbs: []string{"delete", "get", "list", "patch", "update", "watch"},
		}, rbacv1.PolicyRule{ // to own Workloads where owners need leave for that
			APIGroups: []string{k.GVK.Group}, Resources: []string{k.Resource + "/finalizers"}, Verbs: []string{"update"},
		})
	}
	for _, gvk := range o.Options.ExternalFrameworks {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{gvk.Group}, Resources: []string{declare.Resource(gvk)}, Verbs: []string{"get"}})
	}
	for _, f := range o.Options.MultiKueue.ExternalFrameworks { // sent to other clusters, from where their status comes back
		resource := declare.Resource(f.GVK)
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{f.GVK.Group}, Resources: []string{resource}, Verbs: []string{"get", "list", "patch", "watch"}},
			rbacv1.PolicyRule{APIGroups: []string{f.GVK.Group}, Resources: []string{resource + "/status"}, Verbs: []string{"get", "patch"}})
	}
	if len(rules) == 0 {
		return nil, nil
	}
	role := clusterRole(kindsRole, rules...)
	var out []*unstructured.Unstructured
	var err error
	for _, object := range []runtime.Object{role, bindManager(role.Name, o.namespace())} {
		if out, err = toUnstructured(out, object); err != nil {
			return nil, err
		}
	}
	return out, nil
}
