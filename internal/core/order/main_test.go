package order

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more property checks than rapid does by itself, on the same worlds
// every time. Flags override that: for new worlds, and many of them,
//
//	go test ./internal/core/order -rapid.seed 0 -rapid.checks 10000
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "200", "rapid.steps": "50", "rapid.seed": "1"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
