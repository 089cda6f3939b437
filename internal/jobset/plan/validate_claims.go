package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

var claimsPath = specPath.Child("volumeClaimPolicies")

func templatePath(policy, template int) *field.Path {
	return claimsPath.Index(policy).Child("templates").Index(template)
}

// claims checks the templates of shared volumes, except their requests.
func (v *rules) claims() {
	names := map[string]bool{}
	for i := range v.js.Spec.VolumeClaimPolicies {
		for k := range v.js.Spec.VolumeClaimPolicies[i].Templates {
			path := templatePath(i, k).Child("metadata", "name")
			name := v.js.Spec.VolumeClaimPolicies[i].Templates[k].Name
			if names[name] {
				v.errs = append(v.errs, field.Duplicate(path, name))
				continue
			}
			names[name] = true
			v.all(path, name, validation.IsDNS1123Subdomain(name))
			if claim := ClaimName(v.name, name); len(claim) > validation.DNS1123LabelMaxLength {
				v.invalid(path, name, fmt.Sprintf("the name of the claim, %s, would have more than %d characters", claim, validation.DNS1123LabelMaxLength))
			}
			v.mounted(path, name)
		}
	}
}

// mounted checks that some container mounts a volume, and that no pod has another volume of that name.
func (v *rules) mounted(path *field.Path, name string) {
	used := false
	for i := range v.js.Spec.ReplicatedJobs {
		pod := &v.js.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec
		if hasVolume(pod, name) {
			v.invalid(path, name, fmt.Sprintf("replicated job %s has a volume of that name", v.js.Spec.ReplicatedJobs[i].Name))
		}
		used = used || mounts(pod, name)
	}
	if !used {
		v.invalid(path, name, "no container of any replicated job mounts it")
	}
}

// ValidateClaims checks a new JobSet against the existing claims among ClaimNames. Only a claim with policy Retain may be
// used again, if it has the values of the template; fields that the template omits are ignored (spec: 60 §3.2).
func ValidateClaims(js *jobsetv1alpha2.JobSet, existing map[string]*corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	for i := range js.Spec.VolumeClaimPolicies {
		policy := &js.Spec.VolumeClaimPolicies[i]
		for k := range policy.Templates {
			have := existing[ClaimName(js.Name, policy.Templates[k].Name)]
			switch {
			case have == nil:
			case policy.RetentionPolicy == nil || policy.RetentionPolicy.WhenDeleted != jobsetv1alpha2.RetentionRetain:
				errs = append(errs, field.Invalid(claimsPath.Index(i).Child("retentionPolicy", "whenDeleted"), jobsetv1alpha2.RetentionDelete,
					fmt.Sprintf("PersistentVolumeClaim %s exists already; only a claim with policy Retain is used again", have.Name)))
			default:
				if what := differs(&policy.Templates[k].Spec, &have.Spec); what != "" {
					errs = append(errs, field.Invalid(templatePath(i, k).Child("spec", what), have.Name,
						"the PersistentVolumeClaim that exists has another value"))
				}
			}
		}
	}
	return errs
}

// differs returns the first field in which a claim differs from the wanted one.
func differs(want, have *corev1.PersistentVolumeClaimSpec) string {
	equal := equality.Semantic.DeepEqual
	for _, f := range []struct {
		name     string
		set, has bool
	}{
		{"accessModes", len(want.AccessModes) > 0, sameModes(want.AccessModes, have.AccessModes)},
		{"selector", want.Selector != nil, equal(want.Selector, have.Selector)},
		{"resources.requests", true, within(want.Resources.Requests, have.Resources.Requests)},
		{"resources.limits", true, within(want.Resources.Limits, have.Resources.Limits)},
		{"volumeName", want.VolumeName != "", want.VolumeName == have.VolumeName},
		{"storageClassName", want.StorageClassName != nil, equal(want.StorageClassName, have.StorageClassName)},
		{"volumeMode", want.VolumeMode != nil, equal(want.VolumeMode, have.VolumeMode)},
		{"dataSource", want.DataSource != nil, equal(want.DataSource, have.DataSource)},
		{"dataSourceRef", want.DataSourceRef != nil, equal(want.DataSourceRef, have.DataSourceRef)},
		{"volumeAttributesClassName", want.VolumeAttributesClassName != nil, equal(want.VolumeAttributesClassName, have.VolumeAttributesClassName)},
	} {
		if f.set && !f.has {
			return f.name
		}
	}
	return ""
}

func sameModes(a, b []corev1.PersistentVolumeAccessMode) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// within reports whether all wanted quantities are equal.
func within(want, have corev1.ResourceList) bool {
	for name, q := range want { //berth:unordered the answer is the same in any order
		if got, ok := have[name]; !ok || got.Cmp(q) != 0 {
			return false
		}
	}
	return true
}
