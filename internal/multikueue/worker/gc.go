package worker

import (
	"os"
	"runtime/debug"
)

// gcPercent is the heap growth between two garbage collections, in percent of the live heap, while there are worker clusters. Their objects
// are several times more than the manager's own, and mostly long-lived, so the default of 100 costs more memory than earlier collections
// cost time. Figures are in docs/performance.md.
const gcPercent = 50

// tuneGC sets gcPercent at the first worker cluster, unless GOGC is set.
func (f *Fleet) tuneGC() {
	f.gcOnce.Do(func() {
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(gcPercent)
		}
	})
}
