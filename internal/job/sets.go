package job

import (
	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Sets tells how the pods of a kind that serves are queued: in groups, each with a Workload that is made before its pods
// are. What becomes of the pods of a group is decided like that of any other (spec: 30 §4.9, StatefulSet and
// LeaderWorkerSet).
type Sets struct {
	// Owner names the object that a pod of the kind belongs to, or is empty.
	Owner func(*corev1.Pod) string
	// Parts are the groups that the object wants.
	Parts func(owner Object, in *Setting) ([]Part, error)
	// Place says which group a pod is in, by the name of the part, and as what. An empty name: it is not known yet.
	Place func(owner Object, pod *corev1.Pod) (part, role string)
	// Fast groups are admitted before all pods are there, and Index is the label that numbers their pods.
	Fast  bool
	Index string
	// Frees opens the gates of pods whose object is gone, or the StatefulSet that they belong to.
	Frees bool
}

// Part is one group of an object.
type Part struct {
	// Name is that by which its Workload is named.
	Name string
	// Number is its place among several, nil if there is but one.
	Number *int32
	// PodSets are those of its Workload, and Total how many pods it has. None: it asks not to run. Parts may share them.
	PodSets []kueue.PodSet
	Total   int32
}
