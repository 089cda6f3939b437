package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/plan/job"
)

var (
	labelsPath      = field.NewPath("metadata", "labels")
	annotationsPath = field.NewPath("metadata", "annotations")
)

// validate checks what labels and annotations say about a pod (spec: 30 §4.9).
func validate(o, old plan.Object, in *plan.Setting) field.ErrorList {
	pod := o.(*corev1.Pod)
	var errs field.ErrorList
	if value, ok := pod.Labels[kueue.ManagedLabel]; ok && value != "true" {
		errs = append(errs, field.Forbidden(labelsPath.Key(kueue.ManagedLabel), "may only be true"))
	}
	errs = append(errs, in.ValidateTopology(&pod.ObjectMeta, field.NewPath("metadata"), -1)...)
	return append(errs, validateGroup(pod, old)...)
}

// validateGroup refuses new members of groups: pods that are queued are queued one by one.
func validateGroup(pod *corev1.Pod, old plan.Object) field.ErrorList {
	if old != nil || pod.Labels[kueue.ManagedLabel] != "true" || parent(pod) != "" {
		return nil
	}
	var errs field.ErrorList
	if _, ok := pod.Labels[kueue.PodGroupNameLabel]; ok {
		errs = append(errs, field.Forbidden(labelsPath.Key(kueue.PodGroupNameLabel), "pod groups are not integrated by this version"))
	}
	for _, key := range []string{kueue.PodGroupNameLabel, kueue.PodGroupTotalCountAnnotation} {
		if _, ok := pod.Annotations[key]; ok {
			errs = append(errs, field.Forbidden(annotationsPath.Key(key), "pod groups are not integrated by this version"))
		}
	}
	return errs
}
