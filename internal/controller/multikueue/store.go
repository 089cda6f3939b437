package multikueue

import (
	"maps"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// store is what a worker holds of one kind with our origin, as its watch says and as our own writes left it. Objects in it must not be
// changed.
type store struct {
	gvk     schema.GroupVersionKind
	newItem func() client.Object
	newList func() client.ObjectList

	mu      sync.RWMutex
	objects map[types.NamespacedName]client.Object
}

func (s *store) get(key types.NamespacedName) client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[key]
}

// each visits all objects. What it visits was there at one time.
func (s *store) each(visit func(types.NamespacedName, client.Object)) {
	s.mu.RLock()
	all := make(map[types.NamespacedName]client.Object, len(s.objects))
	maps.Copy(all, s.objects)
	s.mu.RUnlock()
	for key, o := range all {
		visit(key, o)
	}
}

// replace takes the result of a list in the place of everything, and returns what is gone since.
func (s *store) replace(items []client.Object) (lost []client.Object) {
	next := make(map[types.NamespacedName]client.Object, len(items))
	for _, o := range items {
		next[client.ObjectKeyFromObject(o)] = o
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.objects {
		if next[key] == nil {
			lost = append(lost, o)
		}
	}
	s.objects = next
	return lost
}

// put takes what a write of ours returned, unless a watch has brought something newer.
func (s *store) put(o client.Object) {
	o.SetManagedFields(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	if old := s.objects[key]; old == nil || version(o) >= version(old) {
		s.objects[key] = o
	}
}

// drop forgets an object that we deleted, if it is still that one.
func (s *store) drop(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	if old := s.objects[key]; old != nil && old.GetUID() == o.GetUID() {
		delete(s.objects, key)
	}
}

// event takes an event of the watch.
func (s *store) event(kind watch.EventType, o client.Object) {
	o.SetManagedFields(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	old := s.objects[key]
	switch {
	case old != nil && version(old) > version(o):
	case kind == watch.Deleted:
		delete(s.objects, key)
	default:
		s.objects[key] = o
	}
}

// version orders the states of an object.
func version(o client.Object) uint64 {
	n, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return n
}
