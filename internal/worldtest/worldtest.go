// Package worldtest runs tests that draw random worlds with rapid: the same worlds in every run, unless flags say otherwise.
package worldtest

import (
	"flag"
	"strings"
	"testing"
)

// Main runs the tests of a package with 200 checks for each property and one seed. Settings such as "rapid.steps=50" change or add to that,
// and flags have the last word: for new worlds, and many of them, -rapid.seed 0 -rapid.checks 10000. It returns the exit code.
func Main(m *testing.M, settings ...string) int {
	for _, s := range append([]string{"rapid.checks=200", "rapid.seed=1"}, settings...) {
		name, value, _ := strings.Cut(s, "=")
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	return m.Run()
}
