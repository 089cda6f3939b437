package job

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Sets describes how the pods of a serving kind are queued: in groups, each with a Workload that is made before its pods. The pods
// of a group are decided about like those in any other (spec: 30 §4.9, StatefulSet and LeaderWorkerSet).
type Sets struct {
	// Owner returns the object that a pod belongs to, or "".
	Owner func(*corev1.Pod) string
	// Parts are the groups that the object wants.
	Parts func(owner Object, in *Setting) ([]Part, error)
	// Place returns the group of a pod, by the name of the part, and its role. An empty part: not known yet.
	Place func(owner Object, pod *corev1.Pod) (part, role string)
	// Index is the label that numbers the pods of a group, which is therefore admitted before all of them exist. Empty: there is none.
	Index string
	// Frees reports that pods are ungated when their object, or what makes them, is deleted.
	Frees bool
	// Makers are the objects that control the pods: the owner itself, or objects that its controller makes.
	Makers *PodMakers
}

// PodMakers describes the objects of a kind that control pods.
type PodMakers struct {
	GVK schema.GroupVersionKind
	New func() Object
	// Template is the pod template.
	Template func(Object) *corev1.PodTemplateSpec
	// Outdated reports whether a pod is of a revision that is being replaced. A gated pod holds that up: its controller replaces it only
	// once it runs.
	Outdated func(Object, *corev1.Pod) bool
}

// Of returns the reference of a pod to its controller; nil if that is of another kind.
func (m *PodMakers) Of(pod *corev1.Pod) *metav1.OwnerReference {
	if ref := metav1.GetControllerOf(pod); ref != nil && ref.Kind == m.GVK.Kind {
		return ref
	}
	return nil
}

// Part is one group of an object.
type Part struct {
	// Name is the input of the name of its Workload.
	Name string
	// Number is the index of the group; nil if there is only one.
	Number *int32
	// PodSets are the pod sets of its Workload, Total is its number of pods. No pod sets: it is scaled to zero. Parts may share
	// them.
	PodSets []kueue.PodSet
	Total   int32
}
