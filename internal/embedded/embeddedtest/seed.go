package embeddedtest

import (
	"flag"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", 0, "what random tests draw from, to repeat a run that logged it; 0: the usual one, or a new one")

// Seed returns the seed of a random test: -seed, else usual, else a new one. The test logs it.
func Seed(t testing.TB, usual uint64) uint64 {
	t.Helper()
	drawn := *seed
	if drawn == 0 {
		drawn = usual
	}
	if drawn == 0 {
		drawn = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", drawn)
	return drawn
}
