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
		s.SetWorkload(Workload{UID: uid, Namespace: "a", Name: uid, Version: 1, LocalQueue: "main", Queueable: true, PodSets: []PodSet{{Name: uid, Count: 1}}})
	}
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"a workload of a namespace that nobody made", func() { enter("1") }, []string{"a"}},
		{"another one", func() { enter("2") }, []string{"a"}},
		{"one leaves", func() { s.DeleteWorkload("1") }, []string{"a"}},
		{"both have left", func() { s.DeleteWorkload("2") }, nil},
		{"it is made", func() { s.SetNamespace("a", map[string]string{"team": "a"}) }, []string{"a"}},
		{"a workload comes", func() { enter("3") }, []string{"a"}},
		{"and leaves", func() { s.DeleteWorkload("3") }, []string{"a"}},
		{"one stays", func() { enter("4") }, []string{"a"}},
		{"while it is deleted", func() { s.DeleteNamespace("a") }, []string{"a"}},
		{"and leaves later", func() { s.DeleteWorkload("4") }, nil},
		{"made and deleted again", func() { s.SetNamespace("a", map[string]string{"team": "a"}); s.DeleteNamespace("a") }, nil},
		{"another one takes the number", func() { s.SetNamespace("b", nil) }, []string{"b"}},
	} {
		step.do()
		if got := slices.Sorted(maps.Keys(s.namespaces)); !slices.Equal(got, step.want) || len(s.spaces.all)-len(s.spaces.free) != len(step.want) {
			t.Fatalf("%s: %v have numbers, %d of %d are free, want %v", step.what, got, len(s.spaces.free), len(s.spaces.all), step.want)
		}
	}
	if len(s.spaces.all) != 1 || s.spaces.all[0].labels != nil {
		t.Errorf("the spaces are %+v, want one without labels", s.spaces.all)
	}
}
