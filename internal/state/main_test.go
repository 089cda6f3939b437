package state

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more and longer property checks than rapid does by itself, on the same
// worlds every time. Flags override that: for new worlds, and many of them,
//
//	go test ./internal/state -run TestMachine -rapid.seed 0 -rapid.checks 100000 -timeout 1h
//
// What such a run finds becomes a script in testdata.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "200", "rapid.steps": "150", "rapid.seed": "1"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
