package worker

import (
	"os"
	"runtime/debug"
)

// thriftyGC is how much the heap may grow between two collections, in percent of what is alive, while there are workers. What they hold of ours is
// several times what a manager has of its own cluster, and mostly stays as it is: letting the heap double only because of that, as is usual,
// costs more memory than collecting earlier costs time. docs/performance.md has both.
const thriftyGC = 50

// thrift has garbage collected earlier from the first worker on, unless GOGC says what is wanted.
func (f *Fleet) thrift() {
	f.thrifty.Do(func() {
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(thriftyGC)
		}
	})
}
