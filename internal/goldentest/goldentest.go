// Package goldentest compares the output of tests with files in testdata. -rewrite writes the files instead.
package goldentest

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write golden files instead of comparing them")

// Check compares a file with got, which is the whole file, and reports the lines that differ.
func Check(t testing.TB, path, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-file +now); rerun with -rewrite if it is right:\n%s", path, diff)
	}
}
