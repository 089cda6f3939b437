// Package flags reads the values of flags that have a grammar: quotas, taints and tolerations. spec: 70 §4.9.
package flags

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

var (
	flavorName    = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,252}$`)
	quantityWords = regexp.MustCompile(`^[a-zA-Z0-9_]+$`)
)

// quotas are the flavors of the quota flags, in the order of their first use.
type quotas struct {
	flavors []kueue.FlavorQuotas
}

// ResourceGroups makes resource groups from --nominal-quota, --borrowing-limit and --lending-limit. spec: 70 §4.9.
func ResourceGroups(nominal, borrowing, lending []string) ([]kueue.ResourceGroup, error) {
	var q quotas
	for _, f := range []struct {
		flag    string
		entries []string
		set     func(*kueue.ResourceQuota, resource.Quantity)
	}{
		{"nominal-quota", nominal, func(r *kueue.ResourceQuota, v resource.Quantity) { r.NominalQuota = v }},
		{"borrowing-limit", borrowing, func(r *kueue.ResourceQuota, v resource.Quantity) { r.BorrowingLimit = &v }},
		{"lending-limit", lending, func(r *kueue.ResourceQuota, v resource.Quantity) { r.LendingLimit = &v }},
	} {
		for _, entry := range f.entries {
			if err := q.add(f.flag, entry, f.set); err != nil {
				return nil, err
			}
		}
	}
	return q.groups()
}

// add reads one entry, FLAVOR:RESOURCE=QUANTITY;RESOURCE=QUANTITY.
func (q *quotas) add(flag, entry string, set func(*kueue.ResourceQuota, resource.Quantity)) error {
	name, list, found := strings.Cut(entry, ":")
	if !found {
		return fmt.Errorf("--%s %q: must be FLAVOR:RESOURCE=QUANTITY;RESOURCE=QUANTITY, and a comma begins another flavor", flag, entry)
	}
	if !flavorName.MatchString(name) {
		return fmt.Errorf("--%s %q: %q is no name of a flavor: it takes lower-case letters, digits, dots and hyphens", flag, entry, name)
	}
	var named []corev1.ResourceName
	var amounts []resource.Quantity
	for pair := range strings.SplitSeq(strings.TrimSuffix(list, ";"), ";") {
		key, value, _ := strings.Cut(pair, "=")
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			return fmt.Errorf("--%s %q: %q is no RESOURCE=QUANTITY: %s", flag, entry, pair, wrong[0])
		}
		if !quantityWords.MatchString(value) {
			return fmt.Errorf("--%s %q: the quantity %q of %s must be of letters and digits, as in 500m for a half", flag, entry, value, key)
		}
		amount, err := resource.ParseQuantity(value)
		if err != nil {
			return fmt.Errorf("--%s %q: the quantity %q of %s: %w", flag, entry, value, key, err)
		}
		if slices.Contains(named, corev1.ResourceName(key)) {
			return fmt.Errorf("--%s %q: %s is named twice", flag, entry, key)
		}
		named, amounts = append(named, corev1.ResourceName(key)), append(amounts, amount)
	}
	flavor := q.flavor(name, named)
	if !sameSet(resourcesOf(flavor), named) {
		return fmt.Errorf("--%s %q: the flavor %s has the resources %s elsewhere: name the same each time", flag, entry, name, join(resourcesOf(flavor)))
	}
	for i := range named {
		at := slices.IndexFunc(flavor.Resources, func(r kueue.ResourceQuota) bool { return r.Name == named[i] })
		set(&flavor.Resources[at], amounts[i])
	}
	return nil
}

// flavor finds a flavor, or adds it with zero quota of the resources.
func (q *quotas) flavor(name string, resources []corev1.ResourceName) *kueue.FlavorQuotas {
	at := slices.IndexFunc(q.flavors, func(f kueue.FlavorQuotas) bool { return string(f.Name) == name })
	if at < 0 {
		fresh := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(name)}
		for _, r := range resources {
			fresh.Resources = append(fresh.Resources, kueue.ResourceQuota{Name: r, NominalQuota: resource.MustParse("0")})
		}
		at, q.flavors = len(q.flavors), append(q.flavors, fresh)
	}
	return &q.flavors[at]
}

// groups puts flavors with the same resources into one group. A resource can be in one group only.
func (q *quotas) groups() ([]kueue.ResourceGroup, error) {
	var out []kueue.ResourceGroup
next:
	for _, flavor := range q.flavors {
		resources := resourcesOf(&flavor)
		for i := range out {
			covered := out[i].CoveredResources
			if sameSet(covered, resources) {
				// The API requires the same order of resources in every flavor of a group.
				slices.SortFunc(flavor.Resources, func(a, b kueue.ResourceQuota) int {
					return slices.Index(covered, a.Name) - slices.Index(covered, b.Name)
				})
				out[i].Flavors = append(out[i].Flavors, flavor)
				continue next
			}
			for _, r := range resources {
				if slices.Contains(covered, r) {
					return nil, fmt.Errorf("the flavors %s and %s share the resource %s but not all: give them the same resources, or none in common (%s; %s)",
						out[i].Flavors[0].Name, flavor.Name, r, join(covered), join(resources))
				}
			}
		}
		out = append(out, kueue.ResourceGroup{CoveredResources: resources, Flavors: []kueue.FlavorQuotas{flavor}})
	}
	return out, nil
}

func resourcesOf(f *kueue.FlavorQuotas) []corev1.ResourceName {
	out := make([]corev1.ResourceName, 0, len(f.Resources))
	for _, r := range f.Resources {
		out = append(out, r.Name)
	}
	return out
}

func sameSet(a, b []corev1.ResourceName) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func join(names []corev1.ResourceName) string {
	var out []string
	for _, n := range names {
		out = append(out, string(n))
	}
	return strings.Join(out, ", ")
}
