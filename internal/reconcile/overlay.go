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
	// believed is how long a write is believed without a look at the API server. It is much longer than caches lag behind.
	believed = 30 * time.Second
	// kept is how long a write is kept at the longest, for [Resolve], which asks the API server about writes that are older than believed.
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

// Overlay remembers writes of this process until a cache shows them. A plan that is made of the cache alone would make them again, or give
// to another object what one of them gave away. It is safe for concurrent use. The contract is the same for every user:
//
//   - An entry is about one object, by its UID: how the API server returned it from a write (Created, Updated), that it is being deleted
//     (Deleted), or that a write ended without an answer (Wrote). A later write replaces an earlier one, but an older version never
//     replaces a newer one, and nothing but a look at the API server revokes a deletion.
//   - An entry ends when the cache shows its version or a later one, see [IsOlder]; a deletion, when the cache shows a deletion timestamp;
//     a write without an answer, when the cache shows a version after the one that it was pinned to; and each when the cache shows
//     that the object is gone (Gone, or List without it once it was shown).
//   - Readers get the newer of cache and write: Newest one object, List a collection, with what was created in it. IsBehind is for readers
//     that wait for the cache instead. Event handlers call Saw and Gone, so that nothing is kept for longer than necessary.
//   - A write is believed for 30 s. After that, and at once about a write without an answer, Resolve asks the API server; readers
//     without it believe the cache. So nothing that the cache missed, as an object that came and went unseen, stays.
//   - Memory is bounded: 65,536 objects, each for 10 minutes at the longest.
//   - All of it can be lost at any time, as in a restart. What must not happen twice needs a guard of its own: a resource version that the
//     write is pinned to, or a name that is fixed.
//
// Objects are not copied: they must not be changed once they were given to an overlay, nor those that it returns, except from Resolve.
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
	// unshown: it was created, and the cache has not shown any version of it.
	unshown bool
	deleted bool
	// unsure: there was no answer, and object is what was written over.
	unsure bool
}

// NewOverlay returns an overlay without entries.
func NewOverlay[T Versioned](now func() time.Time) *Overlay[T] {
	return &Overlay[T]{now: now, entries: map[types.UID]*list.Element{}}
}

// IsOlder reports whether one resource version came before another one of the same kind of resource. Kubernetes compares them as integers of
// any size; of versions that are none, as other API servers may have them, neither is older.
func IsOlder(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// Created notes an object as the API server returned it when it was created, or read since.
func (o *Overlay[T]) Created(object T) { o.note(&entry[T]{object: object, unshown: true}) }

// Updated notes an object as the API server returned it from a write.
func (o *Overlay[T]) Updated(object T) { o.note(&entry[T]{object: object}) }

// Deleted notes an object that the API server was asked to delete, and accepted. It has the deletion timestamp that readers are to see.
func (o *Overlay[T]) Deleted(object T) { o.note(&entry[T]{object: object, deleted: true}) }

// Wrote notes how a write over base ended that is pinned to the resource version of base: next is what the API server returned, or err says
// that the write was refused, or leaves open whether it was made.
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

// Len is how many objects have an entry.
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

// List returns the objects of a collection as Newest does, and those that were created in it and that the cache does not show yet, in the
// order of their writes. Nil for belongs is that all objects of the overlay are of this collection. shown does not change.
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

// Resolve is Newest for readers that must not take an old state for the present one: about a write that had no answer, or that the cache
// has not shown for long, it asks the API server. An object that is gone has a deletion timestamp. What it returns may be changed.
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

// forget ends one entry, but none that replaced it.
func (o *Overlay[T]) forget(e *entry[T]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if element := o.entries[e.object.GetUID()]; element != nil && element.Value == e {
		o.remove(element)
	}
}

// current is the entry that an object is to be taken from instead of the cache, nil for none. The lock must be held.
func (o *Overlay[T]) current(shown T) *entry[T] {
	e := o.about(shown)
	if e == nil || e.isBelieved(o.now()) {
		return e
	}
	o.remove(o.entries[shown.GetUID()])
	return nil
}

// about is the entry of an object of which the cache shows an older version, nil for none. The lock must be held.
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

func (e *entry[T]) isBelieved(now time.Time) bool { return now.Sub(e.at) < believed }

// newestAttempts are how often an object that turns out newer is read again.
const newestAttempts = 4

// OnNewest is for writers that remember nothing: it runs write on a Workload as the cache shows it and, as long as that ends in a conflict,
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
