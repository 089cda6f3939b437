package install

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/job/webhook"
)

// Labels of the roles for users. spec: 70 §5.6.
const (
	adminLabel   = "rbac.kueue.x-k8s.io/batch-admin"
	userLabel    = "rbac.kueue.x-k8s.io/batch-user"
	roleLabel    = "rbac.kueue.x-k8s.io/role"
	builtInLabel = "rbac.authorization.k8s.io/aggregate-to-"
)

// builtIn selects Kubernetes' own roles that a role is aggregated to.
type builtIn uint8

const (
	noBuiltIn builtIn = iota
	adminOnly
	viewEditAdmin
)

// kindRoles defines the users that may edit and view the objects of a kind. Batch administrators may do both.
type kindRoles struct {
	kind, group, resource string
	userEdits, userViews  bool
	view                  builtIn
}

// rolesOfKinds is the table of spec 70 §5.6 without job kinds, extended by the kinds that it lacks: batch administrators may edit
// whatever they create.
var rolesOfKinds = []kindRoles{
	{kind: "clusterqueue", group: "kueue.x-k8s.io", resource: "clusterqueues", view: adminOnly},
	{kind: "cohort", group: "kueue.x-k8s.io", resource: "cohorts", view: adminOnly},
	{kind: "resourceflavor", group: "kueue.x-k8s.io", resource: "resourceflavors", view: adminOnly},
	{kind: "topology", group: "kueue.x-k8s.io", resource: "topologies", view: adminOnly},
	{kind: "admissioncheck", group: "kueue.x-k8s.io", resource: "admissionchecks", view: adminOnly},
	{kind: "workloadpriorityclass", group: "kueue.x-k8s.io", resource: "workloadpriorityclasses", view: adminOnly},
	{kind: "multikueuecluster", group: "kueue.x-k8s.io", resource: "multikueueclusters", view: adminOnly},
	{kind: "multikueueconfig", group: "kueue.x-k8s.io", resource: "multikueueconfigs", view: adminOnly},
	{kind: "provisioningrequestconfig", group: "kueue.x-k8s.io", resource: "provisioningrequestconfigs", view: adminOnly},
	{kind: "localqueue", group: "kueue.x-k8s.io", resource: "localqueues", userViews: true, view: viewEditAdmin},
	{kind: "workload", group: "kueue.x-k8s.io", resource: "workloads", userViews: true, view: viewEditAdmin},
}

func rolesOfJobs() (out []kindRoles) {
	for _, d := range all.InOrder() {
		if !d.Listing.NoUserRoles {
			out = append(out, kindRoles{
				kind: strings.ToLower(d.GVK.Kind), group: d.GVK.Group, resource: d.Resource, userEdits: true, userViews: true, view: viewEditAdmin,
			})
		}
	}
	return out
}

var (
	viewVerbs = []string{"get", "list", "watch"}
	editVerbs = []string{"create", "delete", "get", "list", "patch", "update", "watch"}
)

// userRoles returns the ClusterRoles that administrators bind to people.
func userRoles(o *Options) ([]*unstructured.Unstructured, error) {
	var roles []runtime.Object
	for _, k := range append(slices.Clone(rolesOfKinds), rolesOfJobs()...) {
		editor := clusterRole("kueue-"+k.kind+"-editor-role", objectRules(k.group, k.resource, editVerbs)...)
		viewer := clusterRole("kueue-"+k.kind+"-viewer-role", objectRules(k.group, k.resource, viewVerbs)...)
		editor.Labels[roleLabel], viewer.Labels[roleLabel] = k.kind+"-editor", k.kind+"-viewer"
		grant(editor, true, k.userEdits, noBuiltIn)
		grant(viewer, true, k.userViews, k.view)
		roles = append(roles, editor, viewer)
	}
	const visibility = "visibility.kueue.x-k8s.io"
	for _, p := range []struct {
		what, group, resource string
		verbs                 []string
		user                  bool
		view                  builtIn
	}{
		{"pending-workloads-cq", visibility, "clusterqueues/pendingworkloads", viewVerbs, false, viewEditAdmin},
		{"pending-workloads-lq", visibility, "localqueues/pendingworkloads", viewVerbs, true, viewEditAdmin},
		// A user that may read a Workload may ask for its explanation.
		{"explanation", berthv1alpha1.GroupVersion.Group, "workloads/explanation", []string{"get"}, true, viewEditAdmin},
		{"queue-activity", berthv1alpha1.GroupVersion.Group, "queueactivities", []string{"list"}, false, viewEditAdmin},
		// The use of nodes is for administrators.
		{"topology-usage", berthv1alpha1.GroupVersion.Group, "topologies/usage", []string{"get"}, false, noBuiltIn},
	} {
		role := clusterRole("kueue-"+p.what+"-viewer-role",
			rbacv1.PolicyRule{APIGroups: []string{p.group}, Resources: []string{p.resource}, Verbs: p.verbs})
		grant(role, true, p.user, p.view)
		roles = append(roles, role)
	}
	label := clusterRole("kueue-queue-label-viewer-role", rbacv1.PolicyRule{
		APIGroups: []string{admissionv1.GroupName}, Resources: []string{"validatingadmissionpolicies"}, ResourceNames: []string{webhook.QueueLabelPolicyName},
		Verbs: []string{"get"},
	})
	roles = append(roles, label)
	if o.Groups.Has(JobSet) {
		roles = append(roles, clusterRole("jobset-editor-role", objectRules("jobset.x-k8s.io", "jobsets", editVerbs)...),
			clusterRole("jobset-viewer-role", objectRules("jobset.x-k8s.io", "jobsets", viewVerbs)...))
	}
	// The policy lists the queued kinds and namespaces, which are public: berth list and berth explain report from it what is ignored.
	roles = append(roles, &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: "kueue-queue-label-viewer-rolebinding"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: label.Kind, Name: label.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:authenticated"}},
	})
	// The sums come last: a cluster writes them again for each role that is added to them.
	sums := []runtime.Object{aggregated("kueue-batch-admin-role", adminLabel), aggregated("kueue-batch-user-role", userLabel)}
	out, err := toUnstructured(nil, append(roles, sums...)...)
	if err != nil {
		return nil, err
	}
	for _, role := range out[len(roles):] {
		delete(role.Object, "rules") // the API server fills in the rules of aggregated roles
	}
	return out, nil
}

func objectRules(group, resource string, verbs []string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs},
		{APIGroups: []string{group}, Resources: []string{resource + "/status"}, Verbs: []string{"get"}},
	}
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Rules: rules,
	}
}

// aggregated returns a role that is the sum of the roles with a label.
func aggregated(name, label string) *rbacv1.ClusterRole {
	role := clusterRole(name)
	role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{label: "true"}}}}
	return role
}

// grant aggregates a role to others.
func grant(role *rbacv1.ClusterRole, admin, user bool, also builtIn) {
	for label, on := range map[string]bool{
		adminLabel: admin, userLabel: user,
		builtInLabel + "view": also == viewEditAdmin, builtInLabel + "edit": also == viewEditAdmin, builtInLabel + "admin": also != noBuiltIn,
	} {
		if on {
			role.Labels[label] = "true"
		}
	}
}
