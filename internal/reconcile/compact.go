package reconcile

import (
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// maxKept and maxBytes bound how many different values are kept for sharing, and their bytes as serialized: they stay after their objects are
// deleted. Beyond it all are dropped, and later values are shared among themselves.
const (
	maxKept  = 64
	maxBytes = 4 << 20
)

// CompactWorkloads returns the transform of a cache of Workloads. It drops the managed fields, and lets equal Workloads share the specs of
// their pods, their pod sets and their charged resources: two thirds of the memory of a Workload. Objects in a cache must not be modified.
func CompactWorkloads() func(object any) (any, error) {
	var specs PodSpecs
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
			for i := range sets {
				specs.Share(&sets[i].Template.Spec)
			}
			w.Spec.PodSets = podSets.of(shape{shapeOf(&sets[0].Template.Spec), string(sets[0].Name), sets[0].Count, len(sets)}, sets, func() (bytes int) {
				for i := range sets {
					bytes += sets[i].Template.Size()
				}
				return bytes
			})
		}
		if a := w.Status.Admission; a != nil && len(a.PodSetAssignments) > 0 {
			first := &a.PodSetAssignments[0]
			a.PodSetAssignments = charges.of(charge{string(first.Name), len(a.PodSetAssignments), cpu(first.ResourceUsage)}, a.PodSetAssignments, func() (bytes int) {
				for i := range a.PodSetAssignments {
					if t := a.PodSetAssignments[i].TopologyAssignment; t != nil {
						bytes += maxBytes // equal ones are rare
					}
				}
				return bytes
			})
		}
		if all := w.Status.ResourceRequests; len(all) > 0 {
			w.Status.ResourceRequests = requests.of(charge{string(all[0].Name), len(all), cpu(all[0].Resources)}, all, func() int { return 0 })
		}
		return w, nil
	}
}

// PodSpecs lets equal specs of pods share their parts. The pods of a sweep often differ in their labels alone: the pods of a Job carry its
// name. The zero value is ready, and safe for concurrent use.
type PodSpecs struct {
	shared shared[podShape, *corev1.PodSpec]
}

// Share replaces the parts of spec by the parts of an equal spec that is kept. Neither may be modified afterwards.
func (p *PodSpecs) Share(spec *corev1.PodSpec) {
	same, kept := p.shared.findEqual(shapeOf(spec), spec)
	if kept {
		*spec = *same
		return
	}
	own := *spec // a pointer to spec itself would keep the whole pod in memory
	p.shared.keepValue(shapeOf(spec), &own, spec.Size())
}

// podShape, shape and charge are the keys under which values that may be equal are found.
type podShape struct {
	image                string
	containers           int
	milliCPU, megaMemory int64
}

type shape struct {
	pod     podShape
	name    string
	count   int32
	podSets int
}

type charge struct {
	name     string
	podSets  int
	milliCPU int64
}

func shapeOf(spec *corev1.PodSpec) podShape {
	s := podShape{containers: len(spec.Containers)}
	if s.containers > 0 {
		c := &spec.Containers[0]
		memory := c.Resources.Requests[corev1.ResourceMemory]
		s.image, s.milliCPU, s.megaMemory = c.Image, cpu(c.Resources.Requests), memory.Value()>>20
	}
	return s
}

func cpu(list corev1.ResourceList) int64 {
	q := list[corev1.ResourceCPU]
	return q.MilliValue()
}

// shared keeps one of several equal values: the last value of each key.
type shared[K comparable, T any] struct {
	mu   sync.Mutex
	kept map[K]sized[T]
	sum  int
}

type sized[T any] struct {
	value T
	bytes int
}

// of returns the kept value that is equal, or keeps this one.
func (s *shared[K, T]) of(key K, value T, bytes func() int) T {
	if same, kept := s.findEqual(key, value); kept {
		return same
	}
	s.keepValue(key, value, bytes())
	return value
}

func (s *shared[K, T]) findEqual(key K, value T) (same T, kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, kept := s.kept[key]
	return found.value, kept && reflect.DeepEqual(found.value, value)
}

func (s *shared[K, T]) keepValue(key K, value T, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes >= maxBytes {
		return
	}
	s.sum += bytes - s.kept[key].bytes
	if s.kept == nil || len(s.kept) >= maxKept || s.sum > maxBytes {
		s.kept, s.sum = map[K]sized[T]{}, bytes
	}
	s.kept[key] = sized[T]{value, bytes}
}
