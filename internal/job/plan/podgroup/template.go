package podgroup

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Parent returns the framework that queues the pods of a template, or "".
func Parent(t *corev1.PodTemplateSpec) string {
	return t.Annotations[kueue.PodSuspendingParentAnnotation]
}

// SetParent sets the framework that queues the pods of a template.
func SetParent(t *corev1.PodTemplateSpec, framework string) {
	SetAnnotation(t, kueue.PodSuspendingParentAnnotation, framework)
}

// SetAnnotation annotates a template.
func SetAnnotation(t *corev1.PodTemplateSpec, key, value string) {
	metav1.SetMetaDataAnnotation(&t.ObjectMeta, key, value)
}

// SetQueue copies the queue and the priority class of the owner's labels to a template.
func SetQueue(t *corev1.PodTemplateSpec, labels map[string]string) {
	for _, key := range []string{kueue.QueueNameLabel, kueue.PriorityClassLabel} {
		if value := labels[key]; value != "" {
			metav1.SetMetaDataLabel(&t.ObjectMeta, key, value)
		}
	}
}

// SameShape refuses a change of a template that changes the role of its pods. Images and the like may change.
func SameShape(t, old *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	is, err := Role(asked(&t.Spec))
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	if was, err := Role(asked(&old.Spec)); err == nil && is == was {
		return nil
	}
	return field.ErrorList{field.Forbidden(path.Child("spec"), "what its pods ask for cannot change while they are queued together")}
}

// asked returns a template's spec with the requests that its pods will have: a limit is the request where none is stated.
func asked(spec *corev1.PodSpec) *corev1.PodSpec {
	out := spec.DeepCopy()
	for _, containers := range [][]corev1.Container{out.InitContainers, out.Containers} {
		for i := range containers {
			r, requests := &containers[i].Resources, corev1.ResourceList{}
			maps.Copy(requests, r.Limits)
			maps.Copy(requests, r.Requests)
			r.Requests = requests
		}
	}
	return out
}
