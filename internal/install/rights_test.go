package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/visibility"
)

// managerRoles are the rules of what is installed for the manager, and whether they are bound.
func managerRoles(t *testing.T, o Options) (rules map[string][]rbacv1.PolicyRule, bound map[string]bool) {
	t.Helper()
	objects, err := Manifests(o)
	if err != nil {
		t.Fatal(err)
	}
	rules, bound = map[string][]rbacv1.PolicyRule{}, map[string]bool{}
	for _, u := range objects {
		switch u.GetKind() {
		case "ClusterRole":
			var role rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role); err != nil {
				t.Fatal(err)
			}
			if isManagerRole(role.Name) {
				rules[role.Name] = role.Rules
			}
		case "ClusterRoleBinding", "RoleBinding":
			if isManagerRole(u.GetName()) {
				bound[u.GetName()] = true
			}
		}
	}
	return rules, bound
}

func everything() Options {
	o := options.Default()
	for _, f := range options.Frameworks() {
		o.Frameworks = append(o.Frameworks, f.Name)
	}
	o.Dashboard.Address = ":8080"
	groups, _ := ParseGroups("") // valid
	return Options{Options: o, Groups: groups}
}

// TestRightsAreNarrow: no ClusterRole of the manager lists or changes more than it needs: Secrets and ConfigMaps of all namespaces, and
// cluster configuration that it does not name.
func TestRightsAreNarrow(t *testing.T) {
	allowed := map[string][]string{
		"secrets": {"create", "get"}, "configmaps": {"create", "delete", "get", "patch"}, "leases": {"create"},
		"mutatingwebhookconfigurations": nil, "validatingwebhookconfigurations": nil, "apiservices": nil,
		"customresourcedefinitions": {"get", "list", "watch"}, "customresourcedefinitions/status": nil,
	}
	rules, _ := managerRoles(t, everything())
	if len(rules) < 20 {
		t.Fatalf("there are %d roles", len(rules))
	}
	for name, of := range rules {
		for _, rule := range of {
			if all := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs); slices.Contains(all, "*") {
				t.Errorf("%s allows everything: %+v", name, rule)
			}
			for _, resource := range rule.Resources {
				verbs, narrow := allowed[resource]
				if !narrow || len(rule.ResourceNames) > 0 {
					continue
				}
				for _, verb := range rule.Verbs {
					if !slices.Contains(verbs, verb) {
						t.Errorf("%s may %s all %s", name, verb, resource)
					}
				}
			}
		}
	}
}

// TestRightsByFeature: roles of disabled features are not bound.
func TestRightsByFeature(t *testing.T) {
	_, all := managerRoles(t, everything())
	without := func(change func(*Options)) []string {
		o := everything()
		change(&o)
		_, bound := managerRoles(t, o)
		var gone []string
		for name := range all {
			if !bound[name] {
				gone = append(gone, strings.TrimSuffix(strings.TrimPrefix(name, managerPrefix), "-rolebinding"))
			}
		}
		slices.Sort(gone)
		return gone
	}
	some := []string{"batch/job", "pod", "ray.io/rayjob", "ray.io/raycluster", "ray.io/rayservice"}
	var others []string
	for _, f := range options.Frameworks() {
		if !slices.Contains(some, f.Name) {
			others = append(others, "framework-"+strings.ToLower(f.GVK.Kind))
		}
	}
	slices.Sort(others)
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"everything":         {func(*Options) {}, "[]"},
		"no training":        {func(o *Options) { delete(o.Groups, Training) }, "[training training-certificates training-crds training-secrets]"},
		"no JobSets":         {func(o *Options) { delete(o.Groups, JobSet) }, "[jobset jobset-certificates jobset-crds]"},
		"no queues":          {func(o *Options) { delete(o.Groups, Queues) }, "[crds queues storage]"},
		"no worker clusters": {func(o *Options) { delete(o.Groups, MultiKueue) }, "[multikueue multikueue-secrets]"},
		"their gate is off":  {func(o *Options) { o.Options.Gates = o.Options.Gates.With(feature.MultiKueue, false) }, "[multikueue multikueue-secrets]"},
		"no elastic jobs": {func(o *Options) {
			o.Options.Gates = o.Options.Gates.With(feature.ElasticJobsViaWorkloadSlices, false)
		}, "[elastic]"},
		"no dashboard":         {func(o *Options) { o.Options.Dashboard.Address = "" }, "[dashboard]"},
		"others' certificates": {func(o *Options) { o.Options.Certs.Internal = false }, "[certificates certificates-secret jobset-certificates training-certificates]"},
		"some kinds":           {func(o *Options) { o.Options.Frameworks = some }, fmt.Sprint(others)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(without(tc.change)); got != tc.want {
				t.Errorf("without are\n%s, want\n%s", got, tc.want)
			}
		})
	}
	for _, f := range options.Frameworks() {
		if role := frameworkPrefix + strings.ToLower(f.GVK.Kind); !all[role+"-rolebinding"] {
			t.Errorf("there is no role %s for %s", role, f.Name)
		}
	}
	o := everything()
	if _, err := needed("kueue-manager-surprise-role", &o); err == nil {
		t.Error("a role of no known feature is accepted")
	}
}

// TestWithdraw: installing again removes bindings of an earlier installation whose features are now off, and no others.
func TestWithdraw(t *testing.T) {
	cfg := embeddedtest.ConfigOf(t, embeddedtest.Start(t))
	c, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, o := t.Context(), everything()
	others := bindManager("kueue-manager-other-role", "elsewhere")
	others.Name = "somebody-elses"
	for _, b := range []*rbacv1.ClusterRoleBinding{bindManager("kueue-manager-training-secrets-role", "berth-system"), bindManager("kueue-manager-role", "berth-system"), others} {
		if err := c.Create(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	served, err := visibility.Objects(visibility.Target{Namespace: "berth-system"})
	if err != nil {
		t.Fatal(err)
	}
	foreign := map[string]bool{}
	for _, u := range served {
		if u.GetKind() != "APIService" {
			continue
		}
		if len(foreign) == 0 { // of an installation in another namespace
			foreign[u.GetName()] = true
			if err := unstructured.SetNestedField(u.Object, "elsewhere", "spec", "service", "namespace"); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Create(ctx, u); err != nil {
			t.Fatal(err)
		}
	}
	delete(o.Groups, Training)
	o.Options.Gates = o.Options.Gates.With(feature.VisibilityOnDemand, false)
	wanted, err := Manifests(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := withdraw(ctx, c, wanted, &o); err != nil {
		t.Fatal(err)
	}
	var left rbacv1.ClusterRoleBindingList
	if err := c.List(ctx, &left); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range left.Items {
		if len(b.Subjects) == 1 && b.Subjects[0].Name == managerAccount {
			names = append(names, b.Name)
		}
	}
	if want := []string{"kueue-manager-rolebinding", "somebody-elses"}; !slices.Equal(names, want) {
		t.Errorf("bindings are %q, want %q", names, want)
	}
	for _, u := range served {
		if u.GetKind() != "APIService" {
			continue
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(u), u.DeepCopy()); client.IgnoreNotFound(err) != nil || (err == nil) != foreign[u.GetName()] {
			t.Errorf("APIService %s: %v", u.GetName(), err)
		}
	}
}
