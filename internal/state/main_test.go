package state

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more and longer property checks than rapid does by itself; -rapid.checks
// and -rapid.steps override that.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "1000", "rapid.steps": "150"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
