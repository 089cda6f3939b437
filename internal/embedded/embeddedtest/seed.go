package embeddedtest

import (
	"flag"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", 0, "what random tests draw from, to repeat a run that logged it; 0: the usual one, or a new one")

// Seed is what a random test draws from: that of -seed, else usual, else a new one. It is in the log of the test.
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
