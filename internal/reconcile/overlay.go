package reconcile

import (
	"container/list"
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

const (
	// Believed is how long a write is believed without a read of the API server. Caches lag behind for a much shorter time.
	Believed = 30 * time.Second
	// kept is how long an entry is kept for [Resolve], which asks the API server about writes that are older than Believed.
	kept = 10 * time.Minute
	// most is how many objects an overlay keeps; the oldest writes are dropped first.
	most = 1 << 16
)

// Versioned is what an Overlay reads of an object. Every client.Object is Versioned.
type Versioned interface {
	GetUID() types.UID
	GetResourceVersion() string
	GetDeletionTimestamp() *metav1.Time
}

// Overlay remembers writes of this process until a cache shows them. A plan that reads only the cache would repeat them, or give to a
// second object the room that a write gave to the first. It is safe for concurrent use. The contract is the same for every user:
//
//   - An entry is about one object, by UID. It holds the object as the API server returned it (Created, Updated), a deletion (Deleted), or
//     a write without an answer (Wrote). A later write replaces an earlier one. An older version never replaces a newer one, and only a
//     read of the API server revokes a deletion.
//   - Versions are compared by [IsOlder]. An entry ends when the cache shows its version or a later one; a deletion, when the cache shows a
//     deletion timestamp; a write without an answer, when the cache shows a version after the one that the write was pinned to. Any entry
//     ends when the cache shows that the object is gone: by Gone, or by a List without the object after the cache has shown it once.
//   - Readers get the newer one of cache and write: Newest for an object, List for a collection with the objects that were created in it.
//     IsBehind is for readers that wait for the cache instead. Event handlers call Saw and Gone to end entries early.
//   - A write is believed for 30 s. After that, and at once for a write without an answer, Resolve asks the API server; all other readers
//     believe the cache. So an object that was created and deleted without any event does not stay; who decided with an object that only
//     List added decides again after Believed, as no event may come.
//   - Memory is bounded: 65,536 objects, each for at most 10 minutes.
//   - Every entry can be lost at any time, for example in a restart. A write that must not happen twice needs a guard of its own: a
//     resource version that it is pinned to, or a fixed name.
//
// An overlay keeps the objects that it is given and returns them without a copy, except from Resolve: do not change them.
type Overlay[T Versioned] struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[types.UID]*list.Element
	order   list.List // of *entry[T], the oldest first
}

// entry is the last write of an object.
type entry[T Versioned] struct {
	object T
	at     time.Time
	// unshown: created, and the cache has not shown any version of it.
	unshown bool
	deleted bool
	// unsure: the write got no answer, and object is the version before it.
	unsure bool
}

// NewOverlay returns an overlay without entries.
func NewOverlay[T Versioned](now func() time.Time) *Overlay[T] {
	return &Overlay[T]{now: now, entries: map[types.UID]*list.Element{}}
}

// IsOlder reports whether resource version a came before b; both are of one kind of resource. Kubernetes compares them as integers of any
// size. If one of them is no integer, as in other API servers, neither is older.
func IsOlder(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// Created notes an object as the API server returned it when it was created, or read since.
func (o *Overlay[T]) Created(object T) { o.note(&entry[T]{object: object, unshown: true}) }

// Updated notes an object as the API server returned it from a write.
func (o *Overlay[T]) Updated(object T) { o.note(&entry[T]{object: object}) }

// Deleted notes that the API server accepted the deletion of an object. Readers get the object as given, with its deletion timestamp.
func (o *Overlay[T]) Deleted(object T) { o.note(&entry[T]{object: object, deleted: true}) }

// Wrote notes the result of a write that is pinned to the resource version of base: next as the API server returned it, or err. An error
// that leaves open whether the write was made is an entry as well.
func (o *Overlay[T]) Wrote(base, next T, err error) {
	switch {
	case err == nil:
		o.Updated(next)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsInvalid(err): // it was not made
	default:
		o.note(&entry[T]{object: base, unsure: true})
	}
}

func (o *Overlay[T]) note(e *entry[T]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e.at = o.now()
	if element := o.entries[e.object.GetUID()]; element != nil {
		old := element.Value.(*entry[T])
		if !e.deleted && (old.deleted || IsOlder(e.object.GetResourceVersion(), old.object.GetResourceVersion())) {
			return
		}
		e.unshown = e.unshown || old.unshown
		o.remove(element)
	}
	o.entries[e.object.GetUID()] = o.order.PushBack(e)
	for oldest := o.order.Front(); oldest != nil; oldest = o.order.Front() {
		if o.order.Len() <= most && e.at.Sub(oldest.Value.(*entry[T]).at) < kept {
			return
		}
		o.remove(oldest)
	}
}

func (o *Overlay[T]) remove(element *list.Element) {
	delete(o.entries, element.Value.(*entry[T]).object.GetUID())
	o.order.Remove(element)
}

// Saw ends the entry of an object that the cache has caught up with.
func (o *Overlay[T]) Saw(shown T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.about(shown)
}

// Gone ends the entry of an object that the cache has seen deleted.
func (o *Overlay[T]) Gone(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if element := o.entries[uid]; element != nil {
		o.remove(element)
	}
}

// Len returns how many objects have an entry.
func (o *Overlay[T]) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.order.Len()
}

// IsBehind reports whether the cache shows an object as it was before its last write.
func (o *Overlay[T]) IsBehind(shown T) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current(shown) != nil
}

// Newest returns an object as the cache shows it or, if that is newer, as it was written.
func (o *Overlay[T]) Newest(shown T) T {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.current(shown); e != nil {
		return e.object
	}
	return shown
}

// List returns the objects of a collection as Newest does, then the objects that were created in it and that the cache does not show yet,
// in the order of their writes. belongs reports whether a created object is of this collection; nil: all are. shown does not change.
func (o *Overlay[T]) List(shown []T, belongs func(T) bool) []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.order.Len() == 0 {
		return shown
	}
	out := make([]T, len(shown), len(shown)+o.order.Len())
	written := map[types.UID]bool{}
	for i, s := range shown {
		out[i] = s
		if e := o.current(s); e != nil {
			out[i], written[s.GetUID()] = e.object, true
		}
	}
	now := o.now()
	for element := o.order.Front(); element != nil; {
		e, this := element.Value.(*entry[T]), element
		element = element.Next()
		switch {
		case written[e.object.GetUID()] || (belongs != nil && !belongs(e.object)):
		case !e.unshown || !e.isBelieved(now):
			o.remove(this)
		case !e.deleted:
			out = append(out, e.object)
		}
	}
	return out
}

// Resolve is Newest for readers that must not act on an old state: it asks the API server about a write that had no answer, or that the
// cache has not shown for 30 s. A missing object gets a deletion timestamp. The caller may change the returned object, unless it is
// shown.
func Resolve[T client.Object](ctx context.Context, o *Overlay[T], live client.Reader, shown T) (T, error) {
	o.mu.Lock()
	e := o.about(shown)
	certain := e != nil && !e.unsure && e.isBelieved(o.now())
	o.mu.Unlock()
	switch {
	case e == nil:
		return shown, nil
	case certain:
		return e.object.DeepCopyObject().(T), nil
	}
	object := reflect.New(reflect.TypeOf(shown).Elem()).Interface().(T)
	object.GetObjectKind().SetGroupVersionKind(shown.GetObjectKind().GroupVersionKind())
	err := live.Get(ctx, client.ObjectKeyFromObject(shown), object)
	if client.IgnoreNotFound(err) != nil {
		return shown, fmt.Errorf("reading %s: %w", client.ObjectKeyFromObject(shown), err)
	}
	o.forget(e)
	if err != nil || object.GetUID() != shown.GetUID() {
		object = shown.DeepCopyObject().(T)
		object.SetDeletionTimestamp(new(metav1.NewTime(o.now())))
		o.Deleted(object)
	} else {
		o.Updated(object)
	}
	return o.Newest(shown).DeepCopyObject().(T), nil
}

// forget ends one entry, but not an entry that replaced it.
func (o *Overlay[T]) forget(e *entry[T]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if element := o.entries[e.object.GetUID()]; element != nil && element.Value == e {
		o.remove(element)
	}
}

// current returns the entry to use instead of the cached object, nil for none. The lock must be held.
func (o *Overlay[T]) current(shown T) *entry[T] {
	e := o.about(shown)
	if e == nil || e.isBelieved(o.now()) {
		return e
	}
	o.remove(o.entries[shown.GetUID()])
	return nil
}

// about returns the entry of an object of which the cache shows an older version, nil for none. The lock must be held.
func (o *Overlay[T]) about(shown T) *entry[T] {
	element := o.entries[shown.GetUID()]
	if element == nil {
		return nil
	}
	e := element.Value.(*entry[T])
	if e.unshown = false; !e.isNewer(shown) {
		o.remove(element)
		return nil
	}
	return e
}

// isNewer reports whether the cache shows the object as it was before the write, or may have been.
func (e *entry[T]) isNewer(shown T) bool {
	is, was := shown.GetResourceVersion(), e.object.GetResourceVersion()
	switch {
	case e.deleted:
		return shown.GetDeletionTimestamp() == nil
	case e.unsure:
		return is == was || IsOlder(is, was)
	}
	return IsOlder(is, was)
}

func (e *entry[T]) isBelieved(now time.Time) bool { return now.Sub(e.at) < Believed }

// newestAttempts bounds how often OnNewest calls write.
const newestAttempts = 4

// OnNewest is for writers without memory: it runs write on a Workload as the cache shows it and, as long as that ends in a conflict,
// on the Workload as the API server has it. Another Workload of the same name counts as not found. The Workload may be the cache's own:
// write must not modify it.
func OnNewest(ctx context.Context, cache, live client.Reader, key types.NamespacedName, uid types.UID, write func(*kueue.Workload) error) error {
	var w kueue.Workload
	err := cache.Get(ctx, key, &w, client.UnsafeDisableDeepCopy)
	for range newestAttempts {
		if err != nil {
			return err
		}
		if w.UID != uid {
			return apierrors.NewNotFound(kueue.GroupVersion.WithResource("workloads").GroupResource(), key.Name)
		}
		if err = write(&w); !apierrors.IsConflict(err) {
			return err
		}
		w = kueue.Workload{}
		err = live.Get(ctx, key, &w)
	}
	return err
}
