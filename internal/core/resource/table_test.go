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
