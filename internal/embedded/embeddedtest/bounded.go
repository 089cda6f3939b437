package embeddedtest

import (
	"runtime"
	"testing"
	"time"
)

// Bounded runs f, and fails the test if that takes more time or memory than an input of size bytes from the network may. Fuzz targets use
// it.
func Bounded(t testing.TB, size int, f func()) {
	t.Helper()
	const free, perByte, most = 8 << 20, 2000, 10 * time.Second
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	f()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	if used, bound := after.TotalAlloc-before.TotalAlloc, uint64(free+perByte*size); used > bound {
		t.Errorf("%d bytes allocated for an input of %d, at most %d may be", used, size, bound)
	}
	if took > most {
		t.Errorf("an input of %d bytes took %s", size, took)
	}
}
