package feed

import (
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// maxKept bounds how many different values are kept to be shared. When there are more all are forgotten, and those to come
// are shared among themselves.
const maxKept = 64

// Compact makes the transform of a cache of Workloads. It leaves out who set which field, and lets Workloads share their pod
// sets and what they are charged where these are the same, as they are in a sweep of a thousand: that is two thirds of what
// a Workload takes. Objects in a cache are not to be modified anyway.
func Compact() func(object any) (any, error) {
	var podSets shared[shape, []kueue.PodSet]
	var charges shared[charge, []kueue.PodSetAssignment]
	var requests shared[charge, []kueue.PodSetRequest]
	return func(object any) (any, error) {
		w, ok := object.(*kueue.Workload)
		if !ok {
			return object, nil
		}
		w.ManagedFields = nil
		if sets := w.Spec.PodSets; len(sets) > 0 {
			w.Spec.PodSets = podSets.of(shapeOf(sets), sets)
		}
		if a := w.Status.Admission; a != nil && len(a.PodSetAssignments) > 0 {
			first := &a.PodSetAssignments[0]
			a.PodSetAssignments = charges.of(charge{string(first.Name), len(a.PodSetAssignments), cpu(first.ResourceUsage)}, a.PodSetAssignments)
		}
		if all := w.Status.ResourceRequests; len(all) > 0 {
			w.Status.ResourceRequests = requests.of(charge{string(all[0].Name), len(all), cpu(all[0].Resources)}, all)
		}
		return w, nil
	}
}

// shape and charge are what is looked at first to find values that may be the same.
type shape struct {
	name, image          string
	count                int32
	podSets, containers  int
	milliCPU, megaMemory int64
}

type charge struct {
	name     string
	podSets  int
	milliCPU int64
}

func shapeOf(sets []kueue.PodSet) shape {
	first := &sets[0]
	s := shape{name: string(first.Name), count: first.Count, podSets: len(sets), containers: len(first.Template.Spec.Containers)}
	if s.containers > 0 {
		c := &first.Template.Spec.Containers[0]
		memory := c.Resources.Requests[corev1.ResourceMemory]
		s.image, s.milliCPU, s.megaMemory = c.Image, cpu(c.Resources.Requests), memory.Value()>>20
	}
	return s
}

func cpu(list corev1.ResourceList) int64 {
	q := list[corev1.ResourceCPU]
	return q.MilliValue()
}

// shared keeps one of several equal values, the last one that was seen for a key.
type shared[K comparable, T any] struct {
	mu   sync.Mutex
	kept map[K]T
}

func (s *shared[K, T]) of(key K, value T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if same, ok := s.kept[key]; ok && reflect.DeepEqual(same, value) {
		return same
	}
	if s.kept == nil || len(s.kept) >= maxKept {
		s.kept = map[K]T{}
	}
	s.kept[key] = value
	return value
}
