package order

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs ten times as many checks as rapid does by itself.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
