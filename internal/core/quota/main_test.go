package quota

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs twice as many property checks as rapid does by itself, on the same
// worlds every time. Flags override that: for new worlds, and many of them,
//
//	go test ./internal/core/quota -rapid.seed 0 -rapid.checks 10000
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "200", "rapid.seed": "1"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
