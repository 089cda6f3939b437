package worker

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/reconcile"
)

// Store is what a worker holds of one kind with our origin, as its watch says and as our own writes left it. Objects in it must not be
// changed.
type Store struct {
	gvk     schema.GroupVersionKind
	queues  bool // it has the worker's queues, all of them, not what bears our origin
	newList func() client.ObjectList
	// compact, if it is set, leaves out of an object what nobody asks for, and has it share with others what is the same.
	compact func(any) (any, error)

	// workload names the Workload of an object, of kinds of which several may have the same. Nil for all others.
	workload func(client.Object) string

	mu      sync.RWMutex
	objects map[types.NamespacedName]client.Object
	byName  map[types.NamespacedName]map[types.NamespacedName]bool // what belongs to a Workload
	// doomed are objects that we asked to be deleted. It may happen at any time from then on, even if the answer was not waited for.
	doomed map[types.UID]bool
	// strayed are the names of objects that somebody else deleted, and when that was seen: for as long as strayedFor.
	strayed map[types.NamespacedName]time.Time
}

// strayedFor is how long it is remembered that an object was deleted by others: longer than it takes until it is created again.
const strayedFor = 6 * time.Minute

// doom notes that the deletion of an object is asked for, or that it was refused.
func (s *Store) doom(o client.Object, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doomed == nil {
		s.doomed = map[types.UID]bool{}
	}
	if on {
		s.doomed[o.GetUID()] = true
	} else {
		delete(s.doomed, o.GetUID())
	}
}

// Doomed says whether we asked for the deletion of an object.
func (s *Store) Doomed(o client.Object) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.doomed[o.GetUID()]
}

// Strayed says whether an object was there a while ago that is not now, and that we did not ask to be deleted.
func (s *Store) Strayed(key types.NamespacedName) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return time.Since(s.strayed[key]) < strayedFor
}

// stray notes that an object was deleted by others.
func (s *Store) stray(key types.NamespacedName) {
	maps.DeleteFunc(s.strayed, func(_ types.NamespacedName, at time.Time) bool { return time.Since(at) >= strayedFor })
	if s.strayed == nil {
		s.strayed = map[types.NamespacedName]time.Time{}
	}
	s.strayed[key] = time.Now()
}

// Of are the objects of a Workload.
func (s *Store) Of(workload types.NamespacedName) []client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]client.Object, 0, len(s.byName[workload]))
	for key := range s.byName[workload] {
		out = append(out, s.objects[key])
	}
	return out
}

// set keeps an object in the place of another, nil for none.
func (s *Store) set(key types.NamespacedName, old, o client.Object) {
	if o == nil {
		delete(s.objects, key)
	} else {
		s.objects[key] = o
		delete(s.strayed, key)
	}
	s.index(key, old, false)
	s.index(key, o, true)
}

func (s *Store) index(key types.NamespacedName, o client.Object, add bool) {
	if s.workload == nil || o == nil {
		return
	}
	of := types.NamespacedName{Namespace: key.Namespace, Name: s.workload(o)}
	switch {
	case !add:
		if delete(s.byName[of], key); len(s.byName[of]) == 0 {
			delete(s.byName, of)
		}
	case s.byName[of] == nil:
		s.byName[of] = map[types.NamespacedName]bool{key: true}
	default:
		s.byName[of][key] = true
	}
}

// Get is one object, nil if it is not there.
func (s *Store) Get(key types.NamespacedName) client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[key]
}

// Each visits all objects. What it visits was there at one time.
func (s *Store) Each(visit func(types.NamespacedName, client.Object)) {
	s.mu.RLock()
	all := make(map[types.NamespacedName]client.Object, len(s.objects))
	maps.Copy(all, s.objects)
	s.mu.RUnlock()
	for key, o := range all {
		visit(key, o)
	}
}

// replace takes the result of a list in the place of everything, and returns what is gone since.
func (s *Store) replace(items []client.Object) (lost []client.Object) {
	next := make(map[types.NamespacedName]client.Object, len(items))
	for _, o := range items {
		next[client.ObjectKeyFromObject(o)] = o
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.objects {
		if now := next[key]; now == nil || now.GetUID() != o.GetUID() {
			delete(s.doomed, o.GetUID())
		}
		if next[key] == nil {
			lost = append(lost, o)
		}
	}
	s.objects, s.byName = next, map[types.NamespacedName]map[types.NamespacedName]bool{}
	for key, o := range next {
		s.index(key, o, true)
	}
	return lost
}

// trim makes an object small before it is kept.
func (s *Store) trim(o client.Object) {
	o.SetManagedFields(nil)
	if s.compact != nil {
		_, _ = s.compact(o) // it changes the object itself, and never fails
	}
}

// Put takes what a write of ours returned, unless a watch has brought something newer.
func (s *Store) Put(o client.Object) {
	s.trim(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	if old := s.objects[key]; old == nil || !reconcile.IsOlder(o.GetResourceVersion(), old.GetResourceVersion()) {
		s.set(key, old, o)
	}
}

// drop forgets an object that we deleted, if it is still that one.
func (s *Store) drop(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	if old := s.objects[key]; old != nil && old.GetUID() == o.GetUID() {
		s.set(key, old, nil)
	}
	delete(s.doomed, o.GetUID())
}

// event takes an event of the watch.
func (s *Store) event(kind watch.EventType, o client.Object) {
	s.trim(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	old := s.objects[key]
	switch {
	case old != nil && reconcile.IsOlder(o.GetResourceVersion(), old.GetResourceVersion()):
	case kind == watch.Deleted:
		if old != nil && old.GetUID() == o.GetUID() && !s.doomed[o.GetUID()] {
			s.stray(key)
		}
		s.set(key, old, nil)
		delete(s.doomed, o.GetUID())
	default:
		s.set(key, old, o)
	}
}
