package topology

import (
	"flag"
	"os"
	"testing"

	"github.com/berth-project/berth/internal/core/resource"
)

// TestMain runs twice as many property checks as rapid does by itself, on the same
// worlds every time. Flags override that: for new worlds, and many of them,
//
//	go test ./internal/core/topology -rapid.seed 0 -rapid.checks 10000
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "200", "rapid.seed": "1"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// The resources of the tests.
const (
	cpu resource.ID = iota
	pods
	gpu
)

func newTable() *resource.Table {
	t := resource.NewTable()
	for _, name := range []string{"cpu", "pods", "example.com/gpu"} {
		t.ID(name)
	}
	return t
}
