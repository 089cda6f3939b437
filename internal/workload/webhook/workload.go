package webhook

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/review"
	"github.com/berth-project/berth/internal/workload/plan/convert"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

var (
	podSetsPath     = field.NewPath("spec", "podSets")
	statusPath      = field.NewPath("status")
	admissionPath   = statusPath.Child("admission")
	checksPath      = statusPath.Child("admissionChecks")
	reclaimablePath = statusPath.Child("reclaimablePods")
	parentPath      = field.NewPath("metadata", "labels").Key(kueue.ConcurrentAdmissionParentLabel)
	boostPath       = field.NewPath("metadata", "annotations").Key(kueue.PriorityBoostAnnotation)
)

// defaultWorkload drops minimum counts if partial admission is off. The pod sets of a Workload with a quota reservation may not change any more:
// every update of it would be refused, such as the removal of its finalizer.
func (s *server) defaultWorkload(_ context.Context, _ *admission.Request, object client.Object) error {
	if w := object.(*kueue.Workload); !s.jobs.PartialAdmission && !lifecycle.IsReserved(w) {
		for i := range w.Spec.PodSets {
			w.Spec.PodSets[i].MinCount = nil
		}
	}
	return nil
}

// validateWorkload checks a Workload, or its status (spec: 10 §3).
func (s *server) validateWorkload(_ context.Context, _ *admission.Request, object, oldObject client.Object) error {
	w := object.(*kueue.Workload)
	old, update := oldObject.(*kueue.Workload)
	errs := s.validatePodSets(w)
	errs = append(errs, validateResourceNames(w, old)...)
	errs = append(errs, validateSizes(w, old)...)
	errs = append(errs, s.validateAnnotations(w)...)
	wasBroken := update && lifecycle.IsReserved(old) && old.Status.Admission == nil
	errs = append(errs, validateAdmission(w, wasBroken)...)
	errs = append(errs, metav1validation.ValidateConditions(w.Status.Conditions, statusPath.Child("conditions"))...)
	errs = append(errs, s.validateReclaimable(w, old)...)
	for i := range w.Status.AdmissionChecks {
		errs = append(errs, validatePodSetUpdates(w, &w.Status.AdmissionChecks[i], checksPath.Index(i).Child("podSetUpdates"))...)
	}
	if update {
		errs = append(errs, s.validateWorkloadChange(w, old)...)
	}
	return review.Refuse(errs)
}

// validateSlices checks that the form of slices with one layer is complete (spec: 20 §3).
func validateSlices(r *kueue.PodSetTopologyRequest, at *field.Path) field.ErrorList {
	switch {
	case r == nil:
	case r.PodSetSliceRequiredTopology != nil && r.PodSetSliceSize == nil:
		return field.ErrorList{field.Required(at.Child("podSetSliceSize"), "must be set together with podSetSliceRequiredTopology")}
	case r.PodSetSliceSize != nil && r.PodSetSliceRequiredTopology == nil:
		return field.ErrorList{field.Forbidden(at.Child("podSetSliceSize"), "may only be set together with podSetSliceRequiredTopology")}
	case r.PodSetSliceSize != nil && *r.PodSetSliceSize < 1:
		return field.ErrorList{field.Invalid(at.Child("podSetSliceSize"), *r.PodSetSliceSize, "must be at least 1")}
	}
	return nil
}

func (s *server) validatePodSets(w *kueue.Workload) field.ErrorList {
	var errs field.ErrorList
	var withMinimum int
	for i := range w.Spec.PodSets {
		set, at := &w.Spec.PodSets[i], podSetsPath.Index(i)
		if set.MinCount != nil {
			withMinimum++
			if job.IsElastic(w) {
				errs = append(errs, field.Forbidden(at.Child("minCount"), "may not be set on an elastic workload"))
			}
		}
		if s.SliceSize {
			errs = append(errs, validateSlices(set.TopologyRequest, at.Child("topologyRequest"))...)
		}
		template := at.Child("template")
		if s.PodSetMetadata {
			errs = append(errs, metav1validation.ValidateLabels(set.Template.Labels, template.Child("metadata", "labels"))...)
			errs = append(errs, apivalidation.ValidateAnnotations(set.Template.Annotations, template.Child("metadata", "annotations"))...)
		}
		spec := &set.Template.Spec
		for j := range spec.InitContainers {
			errs = append(errs, s.validateResources(&spec.InitContainers[j].Resources, template.Child("spec", "initContainers").Index(j).Child("resources"))...)
		}
		for j := range spec.Containers {
			errs = append(errs, s.validateResources(&spec.Containers[j].Resources, template.Child("spec", "containers").Index(j).Child("resources"))...)
		}
		if spec.Resources != nil {
			errs = append(errs, s.validateResources(spec.Resources, template.Child("spec", "resources"))...)
		}
	}
	if withMinimum > 1 {
		errs = append(errs, field.Invalid(podSetsPath, withMinimum, "at most one pod set may have minCount"))
	}
	return errs
}

// validateResourceNames bounds the number of different resources, unless there were too many before.
func validateResourceNames(w, old *kueue.Workload) field.ErrorList {
	n := countResources(w)
	if n <= convert.MaxResources || (old != nil && countResources(old) > convert.MaxResources) {
		return nil
	}
	return field.ErrorList{field.Invalid(podSetsPath, n, fmt.Sprintf("the pods may request at most %d different resources", convert.MaxResources))}
}

// validateSizes bounds what is kept of the pods, unless it was too much before.
func validateSizes(w, old *kueue.Workload) field.ErrorList {
	if err := convert.TooLarge(w.Spec.PodSets); err != nil && (old == nil || convert.TooLarge(old.Spec.PodSets) == nil) {
		return field.ErrorList{err}
	}
	return nil
}

func countResources(w *kueue.Workload) int {
	names := map[corev1.ResourceName]bool{}
	add := func(lists ...corev1.ResourceList) {
		for _, list := range lists {
			for name := range list { //berth:unordered a set
				names[name] = true
			}
		}
	}
	for i := range w.Spec.PodSets {
		spec := &w.Spec.PodSets[i].Template.Spec
		add(spec.Overhead)
		for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for j := range containers {
				add(containers[j].Resources.Requests, containers[j].Resources.Limits)
			}
		}
		if spec.Resources != nil {
			add(spec.Resources.Requests, spec.Resources.Limits)
		}
	}
	return len(names)
}

// validateResources reserves the resource pods for Berth's own count, and refuses negative amounts.
func (s *server) validateResources(r *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name   string
		values corev1.ResourceList
	}{{"requests", r.Requests}, {"limits", r.Limits}} {
		at := path.Child(list.name)
		if _, ok := list.values[corev1.ResourcePods]; ok {
			errs = append(errs, field.Invalid(at.Key(string(corev1.ResourcePods)), corev1.ResourcePods, "is counted by Berth itself and may not be requested"))
		}
		if !s.NonNegative {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(list.values)) {
			q := list.values[name]
			errs = append(errs, review.NonNegative(&q, at.Key(string(name)))...)
		}
	}
	return errs
}

func (s *server) validateAnnotations(w *kueue.Workload) field.ErrorList {
	var errs field.ErrorList
	if s.jobs.AdmissionGatedBy {
		errs = append(errs, review.ValidateGates(w)...)
	}
	if text, ok := w.Annotations[kueue.PriorityBoostAnnotation]; ok && s.PriorityBoost {
		if _, err := strconv.ParseInt(text, 10, 32); err != nil {
			errs = append(errs, field.Invalid(boostPath, text, fmt.Sprintf("must be a whole number from %d to %d", math.MinInt32, math.MaxInt32)))
		}
	}
	return errs
}

// validateAdmission checks a reservation. An admission without one is not checked; a Workload that was broken already
// is allowed, so that it can be repaired.
func validateAdmission(w *kueue.Workload, wasBroken bool) field.ErrorList {
	if !lifecycle.IsReserved(w) {
		return nil
	}
	if w.Status.Admission == nil {
		if wasBroken {
			return nil
		}
		return field.ErrorList{field.Required(admissionPath, "must be set while quota is reserved")}
	}
	var errs field.ErrorList
	for i, a := range w.Status.Admission.PodSetAssignments {
		at := admissionPath.Child("podSetAssignments").Index(i)
		if !hasPodSet(w, a.Name) {
			errs = append(errs, field.NotFound(at.Child("name"), a.Name))
		}
		if a.Count == nil || *a.Count == 0 {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(a.ResourceUsage)) {
			q := a.ResourceUsage[name]
			amount := q.Value()
			if name == corev1.ResourceCPU {
				amount = q.MilliValue()
			}
			if amount%int64(*a.Count) != 0 {
				errs = append(errs, field.Invalid(at.Child("resourceUsage").Key(string(name)), q.String(), fmt.Sprintf("must be a multiple of the count, %d", *a.Count)))
			}
		}
	}
	return errs
}

func hasPodSet(w *kueue.Workload, name kueue.PodSetReference) bool {
	return slices.ContainsFunc(w.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == name })
}

// validateReclaimable checks names and counts. Where pod sets may shrink, an unchanged count that is too large
// passes: its pod set shrank.
func (s *server) validateReclaimable(w, old *kueue.Workload) field.ErrorList {
	var errs field.ErrorList
	for i, r := range w.Status.ReclaimablePods {
		at := slices.IndexFunc(w.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == r.Name })
		path := reclaimablePath.Key(string(r.Name))
		switch {
		case at < 0:
			errs = append(errs, field.NotFound(reclaimablePath.Index(i).Child("name"), r.Name))
		case r.Count > w.Spec.PodSets[at].Count:
			if old != nil && s.mayShrink(w) && slices.Contains(old.Status.ReclaimablePods, r) {
				continue
			}
			errs = append(errs, field.Invalid(path.Child("count"), r.Count, fmt.Sprintf("must not exceed the count of the pod set, %d", w.Spec.PodSets[at].Count)))
		}
	}
	return errs
}

func validatePodSetUpdates(w *kueue.Workload, check *kueue.AdmissionCheckState, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range check.PodSetUpdates {
		u, at := &check.PodSetUpdates[i], path.Index(i)
		if !hasPodSet(w, u.Name) {
			errs = append(errs, field.NotFound(at.Child("name"), u.Name))
		}
		errs = append(errs, metav1validation.ValidateLabels(u.Labels, at.Child("labels"))...)
		errs = append(errs, apivalidation.ValidateAnnotations(u.Annotations, at.Child("annotations"))...)
		errs = append(errs, metav1validation.ValidateLabels(u.NodeSelector, at.Child("nodeSelector"))...)
		errs = append(errs, review.ValidateTolerationKeys(u.Tolerations, at.Child("tolerations"))...)
	}
	return errs
}

// validateWorkloadChange checks immutable fields, most of them while quota is reserved.
func (s *server) validateWorkloadChange(w, old *kueue.Workload) field.ErrorList {
	var errs field.ErrorList
	if s.jobs.AdmissionGatedBy {
		errs = append(errs, review.ValidateGatesChange(w, old)...)
	}
	if lifecycle.IsReserved(old) {
		if lifecycle.IsParent(w) != lifecycle.IsParent(old) {
			errs = append(errs, field.Forbidden(parentPath, "cannot change while quota is reserved: a parent holds none itself"))
		}
		errs = append(errs, s.validatePodSetsFixed(w, old)...)
		if lifecycle.IsReserved(w) {
			errs = append(errs, s.validateReclaimableGrows(w, old)...)
		}
	}
	if cluster := w.Status.ClusterName; cluster != "" && old.Status.ClusterName == "" &&
		!slices.Contains(old.Status.NominatedClusterNames, cluster) &&
		(!s.jobs.ElasticJobs || w.Annotations[kueue.WorkloadSliceReplacementForAnnotation] == "") {
		errs = append(errs, field.Invalid(statusPath.Child("clusterName"), cluster, "must have been one of nominatedClusterNames"))
	}
	if w.Status.Admission != nil && old.Status.Admission != nil &&
		!equality.Semantic.DeepEqual(withoutTopology(w.Status.Admission), withoutTopology(old.Status.Admission)) {
		errs = append(errs, field.Forbidden(admissionPath, "cannot change except for its topology: remove it first"))
	}
	return append(errs, validateUpdatesFixed(w, old)...)
}

// mayShrink reports whether counts of pod sets may decrease while quota is reserved: for any Workload with the feature
// gate ElasticJobsViaWorkloadSlices, else for Workloads that were elastic before the gate was turned off.
func (s *server) mayShrink(w *kueue.Workload) bool { return s.jobs.ElasticJobs || job.IsElastic(w) }

// validatePodSetsFixed allows counts to shrink where they may, and nothing else to change.
func (s *server) validatePodSetsFixed(w, old *kueue.Workload) field.ErrorList {
	wanted, before := w.Spec.DeepCopy().PodSets, old.Spec.DeepCopy().PodSets
	if s.mayShrink(w) && len(wanted) == len(before) {
		for i := range wanted {
			if wanted[i].Count < before[i].Count {
				wanted[i].Count = before[i].Count
			}
		}
	}
	if equality.Semantic.DeepEqual(wanted, before) {
		return nil
	}
	return field.ErrorList{field.Forbidden(podSetsPath, "cannot change while quota is reserved")}
}

// validateReclaimableGrows refuses to revoke reclaimable pods.
func (s *server) validateReclaimableGrows(w, old *kueue.Workload) field.ErrorList {
	var errs field.ErrorList
	for _, before := range old.Status.ReclaimablePods {
		path := reclaimablePath.Key(string(before.Name))
		at := slices.IndexFunc(w.Status.ReclaimablePods, func(r kueue.ReclaimablePod) bool { return r.Name == before.Name })
		switch {
		case chain.ScaledDown(w, before.Name) || (s.mayShrink(w) && shrank(w, old, before.Name)):
		case at < 0:
			errs = append(errs, field.Required(path, "cannot be removed while quota is reserved"))
		case w.Status.ReclaimablePods[at].Count < before.Count:
			errs = append(errs, field.Invalid(path.Child("count"), w.Status.ReclaimablePods[at].Count,
				fmt.Sprintf("cannot be less than %d, what it was, while quota is reserved", before.Count)))
		}
	}
	return errs
}

func shrank(w, old *kueue.Workload, name kueue.PodSetReference) bool {
	count := func(x *kueue.Workload) int32 {
		for _, s := range x.Spec.PodSets {
			if s.Name == name {
				return s.Count
			}
		}
		return 0
	}
	return count(w) < count(old)
}

func withoutTopology(a *kueue.Admission) *kueue.Admission {
	out := a.DeepCopy()
	for i := range out.PodSetAssignments {
		out.PodSetAssignments[i].TopologyAssignment, out.PodSetAssignments[i].DelayedTopologyRequest = nil, nil
	}
	return out
}

// validateUpdatesFixed refuses changes of the pod set updates of a check that stays Ready.
func validateUpdatesFixed(w, old *kueue.Workload) field.ErrorList {
	var errs field.ErrorList
	for i, c := range w.Status.AdmissionChecks {
		at := slices.IndexFunc(old.Status.AdmissionChecks, func(b kueue.AdmissionCheckState) bool { return b.Name == c.Name })
		if at < 0 || c.State != kueue.CheckStateReady || old.Status.AdmissionChecks[at].State != kueue.CheckStateReady {
			continue
		}
		if !equality.Semantic.DeepEqual(c.PodSetUpdates, old.Status.AdmissionChecks[at].PodSetUpdates) {
			errs = append(errs, field.Forbidden(checksPath.Index(i).Child("podSetUpdates"), "cannot change while the check is Ready"))
		}
	}
	return errs
}
