package job

import rbacv1 "k8s.io/api/rbac/v1"

// Listing is what the configuration and the access rules say about a kind, beside its name. The zero value is right for most kinds.
// The catalogue of frameworks, the roles of the manager and those of users are made from it.
type Listing struct {
	// Gate names the feature gate that must be on for integrations.frameworks to list the kind. Empty: none.
	Gate string
	// Workers is how many jobs of the kind are reconciled at once where the configuration does not say. 0: as many as of any kind.
	Workers int
	// NoUserRoles leaves out the roles to edit and to view jobs of the kind, which users get by other roles (spec: 70 §5.6).
	NoUserRoles bool
	// Rules are what the manager may do for jobs of the kind, beside reading, patching and deleting them.
	Rules []rbacv1.PolicyRule
}

// PodsByName is PodLabels for a kind whose pods have a label with the name of the job, and maybe others that are always the same.
func PodsByName(label string, others ...string) func(Object) (map[string]string, error) {
	return func(o Object) (map[string]string, error) {
		out := map[string]string{label: o.GetName()}
		for i := 0; i+1 < len(others); i += 2 {
			out[others[i]] = others[i+1]
		}
		return out, nil
	}
}

// Allow is an access rule.
func Allow(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// ManagerRules are what the manager may do for jobs of a kind that is enabled, beside reading them: change and delete the jobs, or their
// pods if the kind serves.
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
