package resource

import (
	"fmt"
	"testing"
)

// Workloads choose names, which are kept for ever: after many of them the rest have one number. Queues and nodes get theirs all the same.
func TestRequested(t *testing.T) {
	table := NewTable()
	for i := range MaxRequested + 100 {
		table.Requested(fmt.Sprint("example.com/r", i))
	}
	if n := table.IDs(); n != MaxRequested+1 {
		t.Errorf("%d names", n)
	}
	if a, b := table.Requested("example.com/a"), table.Requested("example.com/b"); a != b || table.Name(a) != Beyond {
		t.Errorf("%s and %s", table.Name(a), table.Name(b))
	}
	if id := table.Requested("example.com/r7"); table.Name(id) != "example.com/r7" {
		t.Errorf("an early name became %s", table.Name(id))
	}
	if id := table.ID("example.com/gpu"); table.Name(id) != "example.com/gpu" || table.Requested("example.com/gpu") != id {
		t.Errorf("a name of a queue became %s", table.Name(id))
	}
}

// TestFrozenWith: a record has the names of its own measures, as they were: not of the others, which are as many as shapes of pods wait.
func TestFrozenWith(t *testing.T) {
	table := NewTable()
	cpu := table.FR("spot", "cpu")
	for fr := FR(-1); fr >= -1000; fr-- {
		table.SetMeasure(fr, Pair{"tas", fmt.Sprint("places ", -fr)})
	}
	names := table.FrozenWith([]FR{-7, -2, cpu})
	table.SetMeasure(-7, Pair{"tas", "capacity"})
	for fr, want := range map[FR]Pair{-7: {"tas", "places 7"}, -2: {"tas", "places 2"}, cpu: {"spot", "cpu"}} {
		if got := names.Pair(fr); got != want {
			t.Errorf("the name of %d is %v, want %v", fr, got, want)
		}
	}
	if got := table.Pair(-7); got.Resource != "capacity" {
		t.Errorf("the name of -7 is %v by now", got)
	}
	if n := cap(names.measures); n != 2 {
		t.Errorf("it holds %d names of measures", n)
	}
	if table.FrozenWith([]FR{cpu}) != table.Frozen() {
		t.Error("without measures it is not shared")
	}
}
