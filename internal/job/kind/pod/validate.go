package pod

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
)

var (
	labelsPath      = field.NewPath("metadata", "labels")
	annotationsPath = field.NewPath("metadata", "annotations")
)

// validate checks the labels and annotations of a pod (spec: 30 §4.9).
func validate(o, old plan.Object, in *plan.Setting) field.ErrorList {
	pod := o.(*corev1.Pod)
	var errs field.ErrorList
	if value, ok := pod.Labels[kueue.ManagedLabel]; ok && value != "true" {
		errs = append(errs, field.Forbidden(labelsPath.Key(kueue.ManagedLabel), "may only be true"))
	}
	errs = append(errs, in.ValidateTopology(&pod.ObjectMeta, field.NewPath("metadata"), -1)...)
	errs = append(errs, validateGroup(pod, in.Config)...)
	if old != nil {
		errs = append(errs, validateMark(pod, old.(*corev1.Pod), in.Config)...)
		errs = append(errs, validateGroupChange(pod, old.(*corev1.Pod), in.Config)...)
	}
	return errs
}

// validateMark refuses to take the mark off a pod that may run: it would keep running, or be ungated, without quota. A pod that is
// being deleted keeps it too while it is on a node.
func validateMark(pod, old *corev1.Pod, cfg *plan.Config) field.ErrorList {
	if !marked(old, cfg) || marked(pod, cfg) || plan.PodIsOver(pod) || (pod.DeletionTimestamp != nil && pod.Spec.NodeName == "") {
		return nil
	}
	path := labelsPath.Key(kueue.ManagedLabel)
	switch value, ok := pod.Labels[kueue.ManagedLabel]; {
	case value == "true":
		path = annotationsPath.Key(kueue.PodSuspendingParentAnnotation)
	case ok:
		return nil // refused as a value
	}
	return field.ErrorList{field.Forbidden(path, "cannot be removed from a queued pod before it has ended: delete the pod instead")}
}

// groupPath is the path of the group's name.
func groupPath(pod *corev1.Pod, cfg *plan.Config) *field.Path {
	if pod.Annotations[kueue.PodGroupNameLabel] != "" && (cfg.AnnotationIdentifiers || pod.Labels[kueue.PodGroupNameLabel] == "") {
		return annotationsPath.Key(kueue.PodGroupNameLabel)
	}
	return labelsPath.Key(kueue.PodGroupNameLabel)
}

func validateGroup(pod *corev1.Pod, cfg *plan.Config) field.ErrorList {
	var errs field.ErrorList
	name, path, totalPath := cfg.GroupName(pod), groupPath(pod, cfg), annotationsPath.Key(kueue.PodGroupTotalCountAnnotation)
	total, sized := pod.Annotations[kueue.PodGroupTotalCountAnnotation]
	switch {
	case name == "" && sized:
		return field.ErrorList{field.Required(path, "must be set together with the annotation "+kueue.PodGroupTotalCountAnnotation)}
	case name == "":
		return nil
	case !sized:
		errs = append(errs, field.Required(totalPath, "must be set together with "+kueue.PodGroupNameLabel))
	default:
		if n, err := strconv.ParseInt(total, 10, 32); err != nil || n < 1 {
			errs = append(errs, field.Invalid(totalPath, total, "must be a whole number of at least 1"))
		}
	}
	for _, why := range validation.IsDNS1123Subdomain(name) {
		errs = append(errs, field.Invalid(path, name, why))
	}
	if prebuilt := cfg.PrebuiltName(pod); prebuilt != "" && prebuilt != name {
		at := labelsPath
		if pod.Annotations[kueue.PrebuiltWorkloadLabel] == prebuilt {
			at = annotationsPath
		}
		errs = append(errs, field.Invalid(at.Key(kueue.PrebuiltWorkloadLabel), prebuilt, "must be the name of the pod group, "+name))
	}
	return errs
}

// validateGroupChange refuses to move a pod to another group, and to revoke that it is not retriable.
func validateGroupChange(pod, old *corev1.Pod, cfg *plan.Config) field.ErrorList {
	var errs field.ErrorList
	was := cfg.GroupName(old)
	if was == "" {
		return nil
	}
	if name := cfg.GroupName(pod); name != was {
		errs = append(errs, field.Forbidden(groupPath(pod, cfg), "cannot change from "+strconv.Quote(was)+" to "+strconv.Quote(name)))
	}
	if old.Annotations[kueue.RetriableInGroupAnnotation] == "false" && pod.Annotations[kueue.RetriableInGroupAnnotation] != "false" {
		errs = append(errs, field.Forbidden(annotationsPath.Key(kueue.RetriableInGroupAnnotation), "cannot be taken back: false is for good"))
	}
	return errs
}

// warn returns warnings for a queued pod that has an owner, unless the framework of a parent marked it.
func warn(o, old plan.Object, cfg *plan.Config) []string {
	if o.GetLabels()[kueue.ManagedLabel] != "true" || !cfg.HasManagedOwner(o) || (old != nil && parent(o) != "") {
		return nil
	}
	return []string{labelsPath.Key(kueue.ManagedLabel).String() + ": the owner of the pod is queued already: leave the label to it"}
}

// sizes are the pods of the group of a pod that is not part of another job.
func sizes(o plan.Object, in *plan.Setting) []plan.Size {
	pod := o.(*corev1.Pod)
	total := pod.Annotations[kueue.PodGroupTotalCountAnnotation]
	n, err := strconv.ParseInt(total, 10, 32)
	if err != nil || in.GroupName(pod) == "" {
		return nil
	}
	return []plan.Size{{Path: annotationsPath.Key(kueue.PodGroupTotalCountAnnotation), What: "pods", N: int32(n)}}
}
