package worker

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/reconcile"
)

// Store has the objects of one kind in a worker cluster, as the watch and our own writes returned them. They must not be modified.
type Store struct {
	gvk     schema.GroupVersionKind
	queues  bool // all queues of the cluster, with any origin
	newList func() client.ObjectList
	// compact drops unused fields of an object and shares equal parts with others. Nil: objects are kept whole.
	compact func(any) (any, error)

	// workload returns the name of the Workload of an object, for kinds with several objects of one Workload. Nil for other kinds.
	workload func(client.Object) string

	mu        sync.RWMutex
	objects   map[types.NamespacedName]client.Object
	byName    map[types.NamespacedName]map[types.NamespacedName]bool // by Workload
	deletions map[types.NamespacedName]deletion
	creations map[types.NamespacedName]time.Time // when a creation without an answer was sent
	// mutations reports changes of stored objects in tests (KUBE_CACHE_MUTATION_DETECTOR). Nil: no detection.
	mutations cache.MutationDetector
}

type deletion struct {
	asked  types.UID // UID of the object that we asked to delete: it may be deleted at any time, also if the request was not answered
	others time.Time // when others deleted the object
}

// deletedFor is how long a deletion by others counts: longer than the largest pause before the object is created again.
const deletedFor = 6 * time.Minute

// maybeCreated is how long a creation without an answer counts: the call has ended by then.
const maybeCreated = callTimeout + slow

// setCreating notes that we ask to create an object, or that there was an answer.
func (s *Store) setCreating(key types.NamespacedName, asked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.creations, key); !asked {
		return
	}
	maps.DeleteFunc(s.creations, func(_ types.NamespacedName, sent time.Time) bool { return time.Since(sent) >= maybeCreated })
	if s.creations == nil {
		s.creations = map[types.NamespacedName]time.Time{}
	}
	s.creations[key] = time.Now()
}

// Creating reports whether we asked to create an object, and do not know yet whether it exists.
func (s *Store) Creating(key types.NamespacedName) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sent, ok := s.creations[key]
	return ok && time.Since(sent) < maybeCreated
}

// setDeleting notes that we ask to delete an object, or that the request was refused.
func (s *Store) setDeleting(o client.Object, asked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	switch {
	case asked && s.deletions == nil:
		s.deletions = map[types.NamespacedName]deletion{key: {asked: o.GetUID()}}
	case asked:
		s.deletions[key] = deletion{asked: o.GetUID()}
	case s.deletions[key].asked == o.GetUID():
		delete(s.deletions, key)
	}
}

// Deleting reports whether we asked to delete an object.
func (s *Store) Deleting(o client.Object) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	d, ok := s.deletions[client.ObjectKeyFromObject(o)]
	return ok && d.asked == o.GetUID()
}

// DeletedByOthers reports whether others deleted the object of a name a while ago.
func (s *Store) DeletedByOthers(key types.NamespacedName) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return time.Since(s.deletions[key].others) < deletedFor
}

func (s *Store) noteDeleted(o client.Object) {
	key := client.ObjectKeyFromObject(o)
	asked := s.deletions[key].asked == o.GetUID()
	delete(s.deletions, key)
	if asked {
		return
	}
	maps.DeleteFunc(s.deletions, func(_ types.NamespacedName, d deletion) bool {
		return d.asked == "" && time.Since(d.others) >= deletedFor
	})
	if s.deletions == nil {
		s.deletions = map[types.NamespacedName]deletion{}
	}
	s.deletions[key] = deletion{others: time.Now()}
}

// forgetDeletion drops the deletion of an earlier object of a name, now that the present one is known.
func (s *Store) forgetDeletion(key types.NamespacedName, now client.Object) {
	if d, ok := s.deletions[key]; ok && (now == nil || d.asked != now.GetUID()) {
		delete(s.deletions, key)
	}
}

// Of returns the objects of a Workload.
func (s *Store) Of(workload types.NamespacedName) []client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]client.Object, 0, len(s.byName[workload]))
	for key := range s.byName[workload] {
		out = append(out, s.objects[key])
	}
	return out
}

func (s *Store) set(key types.NamespacedName, old, o client.Object) {
	if s.objects == nil { // no list has succeeded yet
		s.objects, s.byName = map[types.NamespacedName]client.Object{}, map[types.NamespacedName]map[types.NamespacedName]bool{}
	}
	if o == nil {
		delete(s.objects, key)
	} else {
		s.objects[key] = o
		s.forgetDeletion(key, o)
		s.detectMutations(o)
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

// Get returns one object, nil if it does not exist.
func (s *Store) Get(key types.NamespacedName) client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[key]
}

// Each visits a snapshot of all objects.
func (s *Store) Each(visit func(types.NamespacedName, client.Object)) {
	s.mu.RLock()
	all := make(map[types.NamespacedName]client.Object, len(s.objects))
	maps.Copy(all, s.objects)
	s.mu.RUnlock()
	for key, o := range all {
		visit(key, o)
	}
}

// replace takes the result of a list, and returns the objects that are not in it.
func (s *Store) replace(items []client.Object) (lost []client.Object) {
	next := make(map[types.NamespacedName]client.Object, len(items))
	for _, o := range items {
		next[client.ObjectKeyFromObject(o)] = o
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.objects {
		s.forgetDeletion(key, next[key])
		if next[key] == nil {
			lost = append(lost, o)
		}
	}
	s.objects, s.byName = next, map[types.NamespacedName]map[types.NamespacedName]bool{}
	for key, o := range next {
		s.index(key, o, true)
		s.detectMutations(o)
	}
	return lost
}

func (s *Store) detectMutations(o client.Object) {
	if s.mutations != nil {
		s.mutations.AddObject(o)
	}
}

func (s *Store) trim(o client.Object) {
	o.SetManagedFields(nil)
	if s.compact != nil {
		_, _ = s.compact(o) // modifies the object and never fails
	}
}

// Put takes the result of our own write, unless the watch has returned something newer.
func (s *Store) Put(o client.Object) {
	s.trim(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	if old := s.objects[key]; old == nil || !reconcile.IsOlder(o.GetResourceVersion(), old.GetResourceVersion()) {
		s.set(key, old, o)
	}
}

func (s *Store) drop(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	if old := s.objects[key]; old != nil && old.GetUID() == o.GetUID() {
		s.set(key, old, nil)
	}
	if s.deletions[key].asked == o.GetUID() {
		delete(s.deletions, key)
	}
}

func (s *Store) event(kind watch.EventType, o client.Object) {
	s.trim(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	old := s.objects[key]
	switch {
	case old != nil && reconcile.IsOlder(o.GetResourceVersion(), old.GetResourceVersion()):
	case kind == watch.Deleted:
		if old != nil && old.GetUID() == o.GetUID() {
			s.noteDeleted(o)
		}
		s.set(key, old, nil)
	default:
		s.set(key, old, o)
	}
}
