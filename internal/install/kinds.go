package install

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-project/berth/internal/options/declare"
)

// kindsRole is the name of the role for kinds that the configuration names.
const kindsRole = "kueue-configured-kinds-role"

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
