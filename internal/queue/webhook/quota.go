package webhook

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/placement/plan/nodequota"
	"github.com/berth-project/berth/internal/review"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Limits of a ClusterQueue over all of its groups, and of one group.
const (
	maxFlavors        = 256
	maxResources      = 256
	maxCells          = 512
	maxVariantFlavors = 16
)

// leastWeight is the largest positive weight that is refused.
var leastWeight = resource.MustParse("1n")

var specPath = field.NewPath("spec")

func (o Options) validateClusterQueue(_ context.Context, _ *admission.Request, object, oldObject client.Object) error {
	cq := object.(*kueue.ClusterQueue)
	old, _ := oldObject.(*kueue.ClusterQueue)
	errs := validateQuotas(cq.Spec.ResourceGroups, limits{
		parent: cq.Spec.CohortName != "", parentField: "cohortName", bounded: true,
		lendAtMostNominal: cq.Annotations[nodequota.Annotation] == "", // a quota that follows nodes may fall below it
	})
	errs = append(errs, validateShare(cq.Annotations)...)
	errs = append(errs, validateBackfill(cq)...)
	errs = append(errs, validatePolicies(&cq.Spec)...)
	errs = append(errs, validateWeight(cq.Spec.FairSharing)...)
	if cq.Spec.NamespaceSelector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(cq.Spec.NamespaceSelector,
			metav1validation.LabelSelectorValidationOptions{}, specPath.Child("namespaceSelector"))...)
	}
	errs = append(errs, o.validateOnFlavors(cq, old)...)
	return review.Refuse(append(errs, validateConcurrentAdmission(cq, old)...))
}

func validateCohort(_ context.Context, _ *admission.Request, object, _ client.Object) error {
	cohort := object.(*kueue.Cohort)
	errs := validateQuotas(cohort.Spec.ResourceGroups, limits{parent: cohort.Spec.ParentName != "", parentField: "parentName"})
	errs = append(errs, validateShare(cohort.Annotations)...)
	if value := cohort.Annotations[nodequota.Annotation]; value != "" && cohort.Spec.ParentName != "" {
		errs = append(errs, field.Invalid(shareField, value, "must be absent while spec.parentName is set: the quota of nodes belongs to the root of a tree"))
	}
	return review.Refuse(append(errs, validateWeight(cohort.Spec.FairSharing)...))
}

// shareField is the annotation of the share of nodes that quota follows.
var shareField = field.NewPath("metadata", "annotations").Key(nodequota.Annotation)

func validateShare(annotations map[string]string) field.ErrorList {
	if _, err := nodequota.ShareOf(annotations); err != nil {
		return field.ErrorList{field.Invalid(shareField, annotations[nodequota.Annotation], err.Error())}
	}
	return nil
}

// backfillField is the annotation by which a ClusterQueue reserves starts.
var backfillField = field.NewPath("metadata", "annotations").Key(berthv1alpha1.BackfillKey)

func validateBackfill(cq *kueue.ClusterQueue) field.ErrorList {
	value := cq.Annotations[berthv1alpha1.BackfillKey]
	starts, err := convert.Backfill(cq)
	if err != nil {
		return field.ErrorList{field.Invalid(backfillField, value, err.Error())}
	}
	if starts == cycle.NoBackfill {
		return nil
	}
	without := func(set bool, name, why string) field.ErrorList {
		if !set {
			return nil
		}
		return field.ErrorList{field.Invalid(backfillField, value, "must be absent while spec."+name+" is set: "+why)}
	}
	checks, scope := cq.Spec.AdmissionChecksStrategy, cq.Spec.AdmissionScope
	return slices.Concat(
		without(checks != nil && len(checks.AdmissionChecks) > 0, "admissionChecksStrategy", "no end of a Workload is known that waits for its checks"),
		without(scope != nil && scope.AdmissionMode == kueue.UsageBasedAdmissionFairSharing, "admissionScope", "the order by past usage changes with every admission"),
		without(cq.Spec.ConcurrentAdmissionPolicy != nil, "concurrentAdmissionPolicy", "the variants of a job have no common start"),
	)
}

// limits are the differences between the quotas of a ClusterQueue and of a Cohort.
type limits struct {
	parent            bool   // it has one
	parentField       string // the field that names it
	lendAtMostNominal bool
	bounded           bool // the number of its flavors and resources
}

// validateQuotas checks resource groups: each resource and each flavor belongs to one group, and the resources of a flavor
// are the covered ones, in their order.
func validateQuotas(groups []kueue.ResourceGroup, l limits) field.ErrorList {
	var errs field.ErrorList
	path := specPath.Child("resourceGroups")
	resources, flavors := map[corev1.ResourceName]bool{}, map[kueue.ResourceFlavorReference]bool{}
	for i := range groups {
		g, at := &groups[i], path.Index(i)
		for j, name := range g.CoveredResources {
			errs = append(errs, validateResourceName(name, at.Child("coveredResources").Index(j))...)
			if resources[name] {
				errs = append(errs, field.Duplicate(at.Child("coveredResources").Index(j), name))
			}
			resources[name] = true
		}
		for j := range g.Flavors {
			f, flavorAt := &g.Flavors[j], at.Child("flavors").Index(j)
			if flavors[f.Name] {
				errs = append(errs, field.Duplicate(flavorAt.Child("name"), f.Name))
			}
			flavors[f.Name] = true
			errs = append(errs, validateFlavorQuotas(f, g.CoveredResources, flavorAt, l)...)
		}
		if cells := len(g.CoveredResources) * len(g.Flavors); l.bounded && cells > maxCells {
			errs = append(errs, field.Invalid(at, cells, fmt.Sprintf("has too many pairs of flavor and resource: at most %d in one group", maxCells)))
		}
	}
	if l.bounded && len(flavors) > maxFlavors {
		errs = append(errs, field.Invalid(path, len(flavors), fmt.Sprintf("names too many flavors: at most %d over all groups", maxFlavors)))
	}
	if l.bounded && len(resources) > maxResources {
		errs = append(errs, field.Invalid(path, len(resources), fmt.Sprintf("covers too many resources: at most %d over all groups", maxResources)))
	}
	return errs
}

func validateResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, why := range validation.IsQualifiedName(string(name)) {
		errs = append(errs, field.Invalid(path, name, why))
	}
	return errs
}

func validateFlavorQuotas(f *kueue.FlavorQuotas, covered []corev1.ResourceName, path *field.Path, l limits) field.ErrorList {
	var errs field.ErrorList
	for k := range f.Resources {
		q, at := &f.Resources[k], path.Child("resources").Index(k)
		if k < len(covered) && q.Name != covered[k] {
			errs = append(errs, field.Invalid(at.Child("name"), q.Name, fmt.Sprintf("must be %s: the resources of a flavor follow coveredResources", covered[k])))
		}
		errs = append(errs, review.NonNegative(&q.NominalQuota, at.Child("nominalQuota"))...)
		for _, limit := range []struct {
			name  string
			value *resource.Quantity
		}{{"borrowingLimit", q.BorrowingLimit}, {"lendingLimit", q.LendingLimit}} {
			if limit.value == nil {
				continue
			}
			errs = append(errs, review.NonNegative(limit.value, at.Child(limit.name))...)
			if !l.parent {
				errs = append(errs, field.Invalid(at.Child(limit.name), limit.value.String(), "must be absent unless spec."+l.parentField+" is set"))
			}
		}
		if l.lendAtMostNominal && q.LendingLimit != nil && q.LendingLimit.Cmp(q.NominalQuota) > 0 {
			errs = append(errs, field.Invalid(at.Child("lendingLimit"), q.LendingLimit.String(), "must not exceed nominalQuota"))
		}
	}
	return errs
}

func validateWeight(f *kueue.FairSharing) field.ErrorList {
	if f == nil || f.Weight == nil {
		return nil
	}
	path := specPath.Child("fairSharing", "weight")
	if f.Weight.Sign() > 0 && f.Weight.Cmp(leastWeight) <= 0 {
		return field.ErrorList{field.Invalid(path, f.Weight.String(), "must be 0 or greater than 1n")}
	}
	return review.NonNegative(f.Weight, path)
}

// validatePolicies checks combinations of preemption and fungibility policies that make no sense.
func validatePolicies(spec *kueue.ClusterQueueSpec) field.ErrorList {
	var errs field.ErrorList
	if p := spec.Preemption; p != nil && p.BorrowWithinCohort != nil && p.ReclaimWithinCohort == kueue.ReclaimNever &&
		p.BorrowWithinCohort.Policy != "" && p.BorrowWithinCohort.Policy != kueue.BorrowWithinCohortNever {
		errs = append(errs, field.Invalid(specPath.Child("preemption", "borrowWithinCohort", "policy"), p.BorrowWithinCohort.Policy,
			"must be Never while reclaimWithinCohort is Never"))
	}
	if f := spec.FlavorFungibility; f != nil && f.Preference != nil &&
		(f.WhenCanBorrow != kueue.TryNextFlavor || f.WhenCanPreempt != kueue.TryNextFlavor) {
		errs = append(errs, field.Invalid(specPath.Child("flavorFungibility", "preference"), *f.Preference,
			"needs whenCanBorrow and whenCanPreempt to be TryNextFlavor"))
	}
	return errs
}

func flavorNames(cq *kueue.ClusterQueue) map[kueue.ResourceFlavorReference]bool {
	names := map[kueue.ResourceFlavorReference]bool{}
	for _, g := range cq.Spec.ResourceGroups {
		for _, f := range g.Flavors {
			names[f.Name] = true
		}
	}
	return names
}

// validateOnFlavors checks that admission checks are for flavors of the queue. Unless the gate is on, errors of the old object remain
// allowed while its flavors do not change, so that such a queue can be edited at all.
func (o Options) validateOnFlavors(cq, old *kueue.ClusterQueue) field.ErrorList {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	var errs field.ErrorList
	flavors := flavorNames(cq)
	tolerant := old != nil && !o.StrictOnFlavors && maps.Equal(flavorNames(old), flavors)
	path := specPath.Child("admissionChecksStrategy", "admissionChecks")
	for i, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		for j, name := range rule.OnFlavors {
			if !flavors[name] && (!tolerant || !hasRule(old, rule.Name, name)) {
				errs = append(errs, field.Invalid(path.Index(i).Child("onFlavors").Index(j), name, "must be a flavor of this ClusterQueue"))
			}
		}
	}
	return errs
}

func hasRule(cq *kueue.ClusterQueue, check kueue.AdmissionCheckReference, flavor kueue.ResourceFlavorReference) bool {
	return cq.Spec.AdmissionChecksStrategy != nil &&
		slices.ContainsFunc(cq.Spec.AdmissionChecksStrategy.AdmissionChecks, func(r kueue.AdmissionCheckStrategyRule) bool {
			return r.Name == check && slices.Contains(r.OnFlavors, flavor)
		})
}

// validateConcurrentAdmission checks the policy for trying several flavors at once.
func validateConcurrentAdmission(cq, old *kueue.ClusterQueue) field.ErrorList {
	path := specPath.Child("concurrentAdmissionPolicy")
	p := cq.Spec.ConcurrentAdmissionPolicy
	var errs field.ErrorList
	if old != nil && !samePolicy(p, old.Spec.ConcurrentAdmissionPolicy) {
		errs = append(errs, field.Forbidden(path, "cannot change; create another ClusterQueue instead"))
	}
	if p == nil {
		return errs
	}
	groups := specPath.Child("resourceGroups")
	if len(cq.Spec.ResourceGroups) != 1 {
		errs = append(errs, field.Invalid(groups, len(cq.Spec.ResourceGroups), "must have exactly one entry with concurrentAdmissionPolicy"))
	} else if n := len(cq.Spec.ResourceGroups[0].Flavors); n > maxVariantFlavors {
		errs = append(errs, field.TooMany(groups.Index(0).Child("flavors"), n, maxVariantFlavors))
	}
	if cq.Spec.QueueingStrategy == kueue.StrictFIFO {
		errs = append(errs, field.Invalid(specPath.Child("queueingStrategy"), cq.Spec.QueueingStrategy, "must not be StrictFIFO with concurrentAdmissionPolicy"))
	}
	if c := p.Migration.Constraints; c != nil {
		at := path.Child("migration", "constraints")
		if p.Migration.Mode != kueue.TryPreferredFlavors {
			errs = append(errs, field.Forbidden(at, "may only be set with mode TryPreferredFlavors"))
		}
		if c.LastAcceptableFlavorName != "" && !flavorNames(cq)[c.LastAcceptableFlavorName] {
			errs = append(errs, field.Invalid(at.Child("lastAcceptableFlavorName"), c.LastAcceptableFlavorName, "must be a flavor of this ClusterQueue"))
		}
	}
	return errs
}

func samePolicy(a, b *kueue.ConcurrentAdmissionPolicy) bool {
	if a == nil || b == nil {
		return a == b
	}
	last := func(p *kueue.ConcurrentAdmissionPolicy) kueue.ResourceFlavorReference {
		if p.Migration.Constraints == nil {
			return ""
		}
		return p.Migration.Constraints.LastAcceptableFlavorName
	}
	return a.Migration.Mode == b.Migration.Mode && last(a) == last(b)
}

// validateResourceFlavor checks the labels, taints and tolerations, which are set on pods and compared with nodes.
func validateResourceFlavor(_ context.Context, _ *admission.Request, object, _ client.Object) error {
	flavor := object.(*kueue.ResourceFlavor)
	errs := metav1validation.ValidateLabels(flavor.Spec.NodeLabels, specPath.Child("nodeLabels"))
	type taint struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[taint]bool{}
	for i, t := range flavor.Spec.NodeTaints {
		at := specPath.Child("nodeTaints").Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		for _, why := range validation.IsValidLabelValue(t.Value) {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, why))
		}
		if seen[taint{t.Key, t.Effect}] {
			errs = append(errs, field.Duplicate(at, t.Key+":"+string(t.Effect)))
		}
		seen[taint{t.Key, t.Effect}] = true
	}
	return review.Refuse(append(errs, review.ValidateTolerationKeys(flavor.Spec.Tolerations, specPath.Child("tolerations"))...))
}
