package state

import (
	"maps"
	"slices"
	"testing"
)

// TestSpaces: a namespace has a number for as long as it exists or some workload is in it, and
// then leaves the number to another one, with nothing of its own.
func TestSpaces(t *testing.T) {
	s := New(Options{Options: immediately()})
	enter := func(uid string) {
		s.Apply(SetWorkload(Workload{UID: uid, Namespace: "a", Name: uid, Version: 1, LocalQueue: "main", Queueable: true, PodSets: []PodSet{{Name: uid, Count: 1}}}))
	}
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"a workload of a namespace that nobody made", func() { enter("1") }, []string{"a"}},
		{"another one", func() { enter("2") }, []string{"a"}},
		{"one leaves", func() { s.Apply(DeleteWorkload("1")) }, []string{"a"}},
		{"both have left", func() { s.Apply(DeleteWorkload("2")) }, nil},
		{"it is made", func() { s.Apply(SetNamespace{Name: "a", Labels: map[string]string{"team": "a"}}) }, []string{"a"}},
		{"a workload comes", func() { enter("3") }, []string{"a"}},
		{"and leaves", func() { s.Apply(DeleteWorkload("3")) }, []string{"a"}},
		{"one stays", func() { enter("4") }, []string{"a"}},
		{"while it is deleted", func() { s.Apply(DeleteNamespace("a")) }, []string{"a"}},
		{"and leaves later", func() { s.Apply(DeleteWorkload("4")) }, nil},
		{"made and deleted again", func() {
			s.Apply(SetNamespace{Name: "a", Labels: map[string]string{"team": "a"}})
			s.Apply(DeleteNamespace("a"))
		}, nil},
		{"another one takes the number", func() { s.Apply(SetNamespace{Name: "b", Labels: nil}) }, []string{"b"}},
	} {
		step.do()
		if got := slices.Sorted(maps.Keys(s.namespaces)); !slices.Equal(got, step.want) || len(s.spaces.All)-len(s.spaces.Free) != len(step.want) {
			t.Fatalf("%s: %v have numbers, %d of %d are free, want %v", step.what, got, len(s.spaces.Free), len(s.spaces.All), step.want)
		}
	}
	if len(s.spaces.All) != 1 || s.spaces.All[0].labels != nil {
		t.Errorf("the spaces are %+v, want one without labels", s.spaces.All)
	}
}

// TestShapes: a shape is kept for as long as a definition or a class is of it, and a class
// for as long as somebody is in it.
func TestShapes(t *testing.T) {
	s := New(Options{Options: immediately()})
	version := uint64(0)
	set := func(uid, podSet string, reserved bool) {
		version++
		s.Apply(SetWorkload(Workload{
			UID: uid, Namespace: "a", Name: uid, Version: version, LocalQueue: "main", Queueable: true, Reserved: reserved, Queue: "gone",
			PodSets: []PodSet{{Name: podSet, Count: 1}},
		}))
	}
	for _, step := range []struct {
		what            string
		do              func()
		shapes, classes int
	}{
		{"one", func() { set("1", "x", false) }, 1, 1},
		{"another one of the same", func() { set("2", "x", false) }, 1, 1},
		{"the same again", func() { set("2", "x", false) }, 1, 1},
		{"it becomes another", func() { set("2", "y", false) }, 2, 2},
		{"it holds quota", func() { set("2", "y", true) }, 2, 2},
		{"and asks for something else meanwhile", func() { set("2", "z", true) }, 3, 2},
		{"and for something else again", func() { set("2", "x", true) }, 2, 2},
		{"then has its place by that", func() { set("2", "x", false) }, 1, 1},
		{"one leaves", func() { s.Apply(DeleteWorkload("1")) }, 1, 1},
		{"both have left", func() { s.Apply(DeleteWorkload("2")) }, 0, 0},
	} {
		step.do()
		if len(s.shapes) != step.shapes || len(s.classes) != step.classes {
			t.Fatalf("%s: %d shapes and %d classes, want %d and %d", step.what, len(s.shapes), len(s.classes), step.shapes, step.classes)
		}
	}
}
