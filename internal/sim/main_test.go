package sim

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more property checks than rapid does by itself, on the same scripts every
// time. Flags override that: for new scripts, and many of them,
//
//	go test ./internal/sim -run TestMixtures -rapid.seed 0 -rapid.checks 100000 -timeout 1h
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "200", "rapid.seed": "1"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
