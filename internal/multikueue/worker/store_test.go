package worker

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// detector records the objects that it gets.
type detector map[types.UID]bool

func (d detector) AddObject(o any)     { d[o.(client.Object).GetUID()] = true }
func (d detector) Run(<-chan struct{}) {}

// TestStoreIsWatchedForMutations: the mutation detector gets every shared object, from lists, watches and writes.
func TestStoreIsWatchedForMutations(t *testing.T) {
	found := detector{}
	s := &Store{mutations: found}
	named := func(name string) client.Object {
		return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	}
	s.replace([]client.Object{named("listed")})
	s.Put(named("written"))
	s.event(watch.Added, named("added"))
	s.event(watch.Modified, named("modified"))
	s.Each(func(_ types.NamespacedName, o client.Object) {
		if !found[o.GetUID()] {
			t.Errorf("%s is shared, and nothing finds who changes it", o.GetName())
		}
	})
	if len(found) != 4 {
		t.Errorf("it looks at %v", found)
	}
}

// TestUnlistedStore: a kind that the worker cluster does not serve, or may not be listed there, has a usable store.
func TestUnlistedStore(t *testing.T) {
	job := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "job", UID: "u"}}
	key, of := client.ObjectKeyFromObject(job), types.NamespacedName{Namespace: "n", Name: "of job"}
	for name, use := range map[string]func(*Store){
		"created":         func(s *Store) { s.Put(job) },
		"watched":         func(s *Store) { s.event(watch.Added, job) },
		"deleted, listed": func(s *Store) { s.drop(job); s.event(watch.Deleted, job); s.replace([]client.Object{job}) },
	} {
		s := &Store{workload: func(o client.Object) string { return "of " + o.GetName() }}
		if use(s); s.Get(key) != job || len(s.Of(of)) != 1 {
			t.Errorf("%s: the store has %v", name, s.objects)
		}
	}
}
