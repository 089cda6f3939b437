package cli

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/go-logr/logr"
)

// TestMemory: the limit of a container bounds the heap, unless the environment sets another limit.
func TestMemory(t *testing.T) {
	t.Cleanup(func() { debug.SetMemoryLimit(math.MaxInt64) })
	for name, tc := range map[string]struct {
		text, env string
		want      int64
	}{
		"a limit":              {"1073741824\n", "", 966367641},
		"none":                 {"max\n", "", math.MaxInt64},
		"none, as version 1":   {"9223372036854771712\n", "", math.MaxInt64},
		"nonsense":             {"a lot", "", math.MaxInt64},
		"the environment wins": {"1073741824\n", "1GiB", math.MaxInt64},
		"no such file":         {"", "", math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(math.MaxInt64)
			t.Setenv("GOMEMLIMIT", tc.env)
			file := filepath.Join(t.TempDir(), "memory.max")
			if tc.text != "" {
				if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			limitMemory(logr.Discard(), []string{"/does/not/exist", file})
			if got := debug.SetMemoryLimit(-1); got != tc.want {
				t.Errorf("the limit is %d, want %d", got, tc.want)
			}
		})
	}
}
