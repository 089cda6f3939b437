package install

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/admission"
	"github.com/berth-project/berth/internal/admission/certs"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/visibility"
)

// Names of the manager's account, roles and bindings (docs/rights.md). A ClusterRole whose feature is off is installed without a binding.
const (
	// managerAccount is the account of a manager in the cluster.
	managerAccount = "kueue-controller-manager"
	managerPrefix  = "kueue-manager-"
	roleSuffix     = "-role"
	// frameworkPrefix begins the roles of job kinds; the kind follows, in lower case.
	frameworkPrefix = managerPrefix + "framework-"
)

// granted maps each ClusterRole in config/rbac/role.yaml to the condition under which the manager needs it; kindRights covers job kinds.
var granted = map[string]func(*Options) bool{
	"kueue-manager-role":                  func(*Options) bool { return true },
	"kueue-manager-queues-role":           runs(Queues),
	"kueue-manager-storage-role":          runs(Queues),
	"kueue-manager-jobset-role":           runs(JobSet),
	"kueue-manager-training-role":         runs(Training),
	"kueue-manager-training-secrets-role": runs(Training),
	"kueue-manager-provisioning-role":     runs(Checks),
	"kueue-manager-multikueue-role":       runsWith(MultiKueue, feature.MultiKueue),
	"kueue-manager-elastic-role":          runsWith(Integrations, feature.ElasticJobsViaWorkloadSlices),
	"kueue-manager-topology-role":         placesPods,
	"kueue-manager-recovery-role":         runsWith(Integrations, feature.FailureRecoveryPolicy),
	"kueue-manager-dashboard-role":        func(o *Options) bool { return o.Options.Dashboard.Served() },
}

func runs(group Group) func(*Options) bool {
	return func(o *Options) bool { return o.Groups.Has(group) }
}

func runsWith(group Group, gate feature.Gate) func(*Options) bool {
	return func(o *Options) bool { return o.Groups.Has(group) && o.Options.Gates.On(gate) }
}

// placesPods reports whether the manager places pods, or follows the nodes of placed ones.
func placesPods(o *Options) bool {
	return (o.Groups.Has(Integrations) || o.Groups.Has(Scheduler)) && o.Options.Gates.On(feature.TopologyAwareScheduling)
}

// needed reports whether the manager needs a ClusterRole of config/rbac/role.yaml.
func needed(role string, o *Options) (bool, error) {
	if on := granted[role]; on != nil {
		return on(o), nil
	}
	return false, fmt.Errorf("ClusterRole %s: internal/install does not know when the manager needs it", role)
}

// managerRights returns the bindings of the manager's ClusterRoles that are needed, the roles for job kinds, and the roles whose rules
// name single objects.
func managerRights(o *Options) ([]*unstructured.Unstructured, error) {
	roles, err := load("rbac")
	if err != nil {
		return nil, err
	}
	var objects []runtime.Object
	for _, role := range roles {
		if role.GetKind() != "ClusterRole" || !isManagerRole(role.GetName()) {
			continue
		}
		on, err := needed(role.GetName(), o)
		if err != nil {
			return nil, err
		}
		if on {
			objects = append(objects, bindManager(role.GetName(), o.namespace()))
		}
	}
	objects = append(objects, kindObjects(o)...)
	named, err := namedRoles(o)
	if err != nil {
		return nil, err
	}
	for _, role := range named {
		objects = append(objects, role, bindManager(role.Name, o.namespace()))
	}
	for _, role := range namespaceRoles(o) {
		objects = append(objects, role, bindManagerIn(role, o.namespace()))
	}
	return toUnstructured(nil, objects...)
}

// kindObjects returns the roles for job kinds, and the bindings that the manager needs.
func kindObjects(o *Options) (out []runtime.Object) {
	for _, kind := range kindRights() {
		out = append(out, kind.role)
		if o.Groups.Has(Integrations) && (kind.framework == "" || slices.Contains(o.Options.Frameworks, kind.framework)) {
			out = append(out, bindManager(kind.role.Name, o.namespace()))
		}
	}
	return out
}

// isManagerRole reports whether a ClusterRole, of the default prefix, is one of the manager's.
func isManagerRole(name string) bool { return strings.HasPrefix(name, managerPrefix) }

func bindingOf(role string) string { return strings.TrimSuffix(role, roleSuffix) + "-rolebinding" }

func bindManager(role, namespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: bindingOf(role)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: managerAccount, Namespace: namespace}},
	}
}

func bindManagerIn(role *rbacv1.Role, namespace string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: role.Namespace, Name: bindingOf(role.Name)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: managerAccount, Namespace: namespace}},
	}
}

// namedRoles returns ClusterRoles over single objects: the CRDs whose stored versions the manager shortens, a Lease of JobSets with a name of
// its own, and, if the manager issues its certificate, the objects that hold its authority. JobSets and TrainJobs have separate roles, so that objects of another controller
// are not granted.
func namedRoles(o *Options) ([]*rbacv1.ClusterRole, error) {
	var out []*rbacv1.ClusterRole
	for _, part := range []struct {
		group Group
		infix string
	}{{Queues, ""}, {JobSet, "jobset-"}, {Training, "training-"}} {
		if !o.Groups.Has(part.group) {
			continue
		}
		names, err := CrdNames(Groups{part.group: true})
		if err != nil {
			return nil, err
		}
		out = append(out, clusterRole(managerPrefix+part.infix+"crds"+roleSuffix, rbacv1.PolicyRule{
			APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions/status"}, ResourceNames: names, Verbs: []string{"update"},
		}))
	}
	if name := o.Options.JobSet.Lease.Name; o.Groups.Has(JobSet) && name != options.JobSetLease { // that one is in config/rbac/role.yaml
		out = append(out, clusterRole(managerPrefix+"jobset-lease"+roleSuffix, rbacv1.PolicyRule{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{name}, Verbs: []string{"get", "update"},
		}))
	}
	if !o.Options.Certs.Internal {
		return out, nil
	}
	objects, err := Callers(o)
	if err != nil {
		return nil, err
	}
	byRole := map[string]map[kindOfRule][]string{}
	for _, target := range certs.Targets(objects) {
		name := certificatesRole(target.Name)
		if byRole[name] == nil {
			byRole[name] = map[kindOfRule][]string{}
		}
		of := kindOfRule{target.Kind.Group, strings.ToLower(target.Kind.Kind) + "s"}
		byRole[name][of] = append(byRole[name][of], target.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(byRole)) {
		var rules []rbacv1.PolicyRule
		for _, of := range slices.SortedFunc(maps.Keys(byRole[name]), kindOfRule.compare) {
			names := byRole[name][of]
			slices.Sort(names)
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{of.group}, Resources: []string{of.plural}, ResourceNames: names, Verbs: []string{"get", "update"}})
		}
		out = append(out, clusterRole(name, rules...))
	}
	return out, nil
}

// kindOfRule is a kind as access rules name it.
type kindOfRule struct{ group, plural string }

func (r kindOfRule) compare(to kindOfRule) int {
	return cmp.Or(cmp.Compare(r.group, to.group), cmp.Compare(r.plural, to.plural))
}

// certificatesRole returns the role for an object that holds the certificate's authority.
func certificatesRole(object string) string {
	infix := ""
	switch object {
	case admission.JobSetMutatingName, admission.JobSetValidatingName:
		infix = "jobset-"
	case admission.TrainingMutatingName, admission.TrainingValidatingName:
		infix = "training-"
	}
	return managerPrefix + infix + "certificates" + roleSuffix
}

// namespaceRoles returns the roles in the manager's namespace: the Lease of its leader, its certificate, and the credentials of worker
// clusters. The API server cannot check the name of a created object.
func namespaceRoles(o *Options) []*rbacv1.Role {
	role := func(name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
		return &rbacv1.Role{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
			ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace(), Name: name}, Rules: rules,
		}
	}
	rule := func(group, resource string, names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}
	}
	secret := []string{cmp.Or(o.Options.Certs.Secret, DefaultCertSecret)}
	leader := role("kueue-leader-election-role",
		rule("coordination.k8s.io", "leases", []string{o.Options.LeaderElection.Name}, "get", "update"),
		rule("coordination.k8s.io", "leases", nil, "create"),
		rule("", "events", nil, "create", "patch")) // leader election reports changes by core/v1 events
	if elsewhere := o.Options.LeaderElection.Namespace; elsewhere != "" && elsewhere != o.Options.Namespace {
		leader.Namespace = elsewhere
	}
	out := []*rbacv1.Role{leader, role(managerPrefix+"secrets"+roleSuffix, rule("", "secrets", secret, "get"))}
	if o.Options.Certs.Internal {
		out = append(out, role(managerPrefix+"certificates-secret"+roleSuffix,
			rule("", "secrets", secret, "update", "watch"), rule("", "secrets", nil, "create")))
	}
	if runsWith(MultiKueue, feature.MultiKueue)(o) {
		out = append(out, role(managerPrefix+"multikueue-secrets"+roleSuffix,
			rule("", "secrets", nil, "get", "list", "watch"),
			rule("multicluster.x-k8s.io", "clusterprofiles", nil, "get")))
	}
	return out
}

// withdraw removes what an earlier installation made for features that are now off: bindings of the manager's roles, and the registration of
// the visibility API, without whose answers no namespace can be deleted.
func withdraw(ctx context.Context, c client.Client, wanted []*unstructured.Unstructured, o *Options) error {
	keep := map[string]bool{}
	for _, u := range wanted {
		keep[u.GetKind()+" "+u.GetName()] = true
	}
	prefix := PrefixOf(o.service())
	ours := func(name, role string, subjects []rbacv1.Subject) bool {
		return strings.HasPrefix(role, Prefixed(managerPrefix, prefix)) && name == bindingOf(role) &&
			len(subjects) == 1 && subjects[0].Name == Prefixed(managerAccount, prefix)
	}
	var gone []client.Object
	var wide rbacv1.ClusterRoleBindingList
	var narrow rbacv1.RoleBindingList
	if err := cmp.Or(c.List(ctx, &wide), c.List(ctx, &narrow, client.InNamespace(o.namespace()))); err != nil {
		return fmt.Errorf("listing bindings: %w", err)
	}
	for i := range wide.Items {
		if b := &wide.Items[i]; ours(b.Name, b.RoleRef.Name, b.Subjects) && !keep["ClusterRoleBinding "+b.Name] {
			gone = append(gone, b)
		}
	}
	for i := range narrow.Items {
		if b := &narrow.Items[i]; ours(b.Name, b.RoleRef.Name, b.Subjects) && !keep["RoleBinding "+b.Name] {
			gone = append(gone, b)
		}
	}
	api, err := unserved(ctx, c, o)
	if err != nil {
		return err
	}
	for _, b := range append(gone, api...) {
		if err := c.Delete(ctx, b); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing %s, whose feature is off: %w", b.GetName(), err)
		}
	}
	return nil
}

// unserved returns the registrations of the visibility API that lead to this manager although it does not serve it.
func unserved(ctx context.Context, c client.Client, o *Options) (out []client.Object, err error) {
	if ServesVisibility(&o.Options) {
		return nil, nil
	}
	would, err := visibility.Objects(visibility.Target{Namespace: o.namespace()})
	if err != nil {
		return nil, err
	}
	for _, u := range would {
		service, _, _ := unstructured.NestedMap(u.Object, "spec", "service")
		if u.GetKind() != "APIService" {
			continue
		}
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(u.GroupVersionKind())
		if err := c.Get(ctx, client.ObjectKeyFromObject(u), live); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("reading APIService %s: %w", u.GetName(), err)
		}
		leads, _, _ := unstructured.NestedMap(live.Object, "spec", "service")
		if leads["namespace"] == service["namespace"] && leads["name"] == Prefixed(fmt.Sprint(service["name"]), PrefixOf(o.service())) {
			out = append(out, live)
		}
	}
	return out, nil
}
