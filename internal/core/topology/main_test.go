package topology

import (
	"os"
	"testing"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/worldtest"
)

func TestMain(m *testing.M) { os.Exit(worldtest.Main(m)) }

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
