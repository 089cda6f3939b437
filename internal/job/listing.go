package job

import rbacv1 "k8s.io/api/rbac/v1"

// Listing describes a kind in the configuration and the access rules, beside its name. The zero value suits most kinds. The
// catalogue of frameworks, the roles of the manager and the roles of users are made from it.
type Listing struct {
	// Gate names the feature gate that must be on for integrations.frameworks to list the kind. Empty: none.
	Gate string
	// Workers is the number of concurrent reconciles where the configuration has none. 0: the default of all kinds.
	Workers int
	// NoUserRoles omits the roles to edit and to view jobs of the kind, because users get these rights by other roles (spec: 70
	// §5.6).
	NoUserRoles bool
	// Rules are access rules of the manager, beside reading, patching and deleting jobs.
	Rules []rbacv1.PolicyRule
}

// PodsByName is PodLabels for a kind whose pods have a label with the name of the job. others are key-value pairs of constant
// labels.
func PodsByName(label string, others ...string) func(Object) (map[string]string, error) {
	return func(o Object) (map[string]string, error) {
		out := map[string]string{label: o.GetName()}
		for i := 0; i+1 < len(others); i += 2 {
			out[others[i]] = others[i+1]
		}
		return out, nil
	}
}

// Allow returns an access rule.
func Allow(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// ManagerRules are the access rules of the manager for an enabled kind, beside reading: change and delete the jobs, or their pods
// if the kind serves.
func (d *Descriptor) ManagerRules() []rbacv1.PolicyRule {
	group, resource := d.GVK.Group, d.Resource
	if d.Serving {
		group, resource = "", "pods"
	}
	out := append([]rbacv1.PolicyRule{Allow(group, []string{resource}, "delete", "patch")}, d.Listing.Rules...)
	if d.Serving || d.Remote != nil || d.Stops != nil { // others have a status that the manager only reads
		out = append(out, Allow(group, []string{resource + "/status"}, "patch"))
	}
	return out
}
