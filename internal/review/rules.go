package review

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

var (
	annotationsPath = field.NewPath("metadata", "annotations")
	elasticPath     = annotationsPath.Key(kueue.ElasticJobAnnotation)
	gatesPath       = annotationsPath.Key(kueue.AdmissionGatedByAnnotation)
)

// maxGate is the length of the longest admission gate.
const maxGate = 63

// ValidateGates checks the annotation admission-gated-by of a job or Workload: a list of domain-prefixed paths.
func ValidateGates(object metav1.Object) field.ErrorList {
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

// ValidateGatesChange only allows the removal of gates.
func ValidateGatesChange(object, old metav1.Object) field.ErrorList {
	before := lifecycle.SplitGates(old.GetAnnotations()[kueue.AdmissionGatedByAnnotation])
	for _, gate := range lifecycle.SplitGates(object.GetAnnotations()[kueue.AdmissionGatedByAnnotation]) {
		if !slices.Contains(before, gate) {
			return field.ErrorList{field.Forbidden(gatesPath, "gates cannot be added after creation, only removed: "+gate)}
		}
	}
	return nil
}

// WarnElastic warns of a job or Workload that asks for resizing while it runs, if the feature gate for that is off.
func WarnElastic(object metav1.Object, cfg *job.Config) []string {
	if !job.IsElastic(object) || cfg.ElasticJobs {
		return nil
	}
	return []string{elasticPath.String() + " is accepted, but the feature gate ElasticJobsViaWorkloadSlices is off: the job is stopped when it is resized"}
}

// NonNegative refuses an amount below zero.
func NonNegative(q *resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must not be negative")}
	}
	return nil
}

// ValidateTolerationKeys checks the keys; all other rules are in the schema.
func ValidateTolerationKeys(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range tolerations {
		if t.Key != "" {
			errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Index(i).Child("key"))...)
		}
	}
	return errs
}
