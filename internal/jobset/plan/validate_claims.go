package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// ValidateClaims checks a new JobSet against the existing claims among ClaimNames, while no JobSet of its name exists. Only a claim with policy
// Retain may be used again, if it has the values of the template; fields that the template omits are ignored (spec: 60 §3.2). The message about a
// claim that is being deleted is one that reconcile.IsRefused takes for temporary.
func ValidateClaims(js *jobsetv1alpha2.JobSet, existing map[string]*corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	for i := range js.Spec.VolumeClaimPolicies {
		policy := &js.Spec.VolumeClaimPolicies[i]
		for k := range policy.Templates {
			have := existing[ClaimName(js.Name, policy.Templates[k].Name)]
			if have == nil {
				continue
			}
			if err := notReusable(js, i, k, have); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// notReusable returns why a claim that exists cannot be used again for a template, or nil.
func notReusable(js *jobsetv1alpha2.JobSet, policy, template int, have *corev1.PersistentVolumeClaim) (err *field.Error) {
	p := &js.Spec.VolumeClaimPolicies[policy]
	if p.RetentionPolicy == nil || p.RetentionPolicy.WhenDeleted != jobsetv1alpha2.RetentionRetain {
		err = field.Invalid(claimsPath.Index(policy).Child("retentionPolicy", "whenDeleted"), jobsetv1alpha2.RetentionDelete,
			fmt.Sprintf("PersistentVolumeClaim %s exists already; only a claim with policy Retain is used again", have.Name))
	} else if what := differs(&p.Templates[template].Spec, &have.Spec); what != "" {
		err = field.Invalid(templatePath(policy, template).Child("spec", what), have.Name, "the PersistentVolumeClaim that exists has another value")
	}
	if err != nil && isLeaving(js, have) {
		err.Detail = fmt.Sprintf("PersistentVolumeClaim %s is being deleted; create the JobSet when it is gone", have.Name)
	}
	return err
}

// isLeaving reports whether a claim is being deleted, or will be with the earlier JobSet of the name that controls it.
func isLeaving(js *jobsetv1alpha2.JobSet, claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return claim.DeletionTimestamp != nil || (owner != nil && owner.Kind == jobsetv1alpha2.KindJobSet && owner.Name == js.Name)
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
