package admission

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// maxGate is the length of the longest admission gate.
const maxGate = 63

// validateGates checks the annotation admission-gated-by of a job or Workload: a list of domain-prefixed paths.
func validateGates(object metav1.Object) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for _, gate := range lifecycle.SplitGates(object.GetAnnotations()[kueue.AdmissionGatedByAnnotation]) {
		switch {
		case gate == "":
			errs = append(errs, field.Invalid(gatesPath, gate, "must not have empty entries"))
			continue
		case seen[gate]:
			errs = append(errs, field.Duplicate(gatesPath, gate))
		case len(gate) > maxGate:
			errs = append(errs, field.TooLong(gatesPath, gate, maxGate))
		default:
			errs = append(errs, validation.IsDomainPrefixedPath(gatesPath, gate)...)
		}
		seen[gate] = true
	}
	return errs
}

// validateGatesChange lets gates only disappear.
func validateGatesChange(object, old metav1.Object) field.ErrorList {
	before := lifecycle.SplitGates(old.GetAnnotations()[kueue.AdmissionGatedByAnnotation])
	for _, gate := range lifecycle.SplitGates(object.GetAnnotations()[kueue.AdmissionGatedByAnnotation]) {
		if !slices.Contains(before, gate) {
			return field.ErrorList{field.Forbidden(gatesPath, "gates cannot be added after creation, only removed: "+gate)}
		}
	}
	return nil
}
