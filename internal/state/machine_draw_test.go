package state

import (
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/workload"
)

// drawMinRun draws a minimum run time; a step takes 1.
func drawMinRun(t *rapid.T) workload.Instant {
	return rapid.SampledFrom([]workload.Instant{0, 0, 3, 10, 1000}).Draw(t, "minimum")
}

// drawBound draws how long a workload runs at most.
func drawBound(t *rapid.T) workload.Instant {
	return rapid.SampledFrom([]workload.Instant{0, 30, 8, 100, 1000}).Draw(t, "bound")
}

// lqNames are the names of LocalQueues.
func (m *machine) lqNames() map[string]bool {
	names := map[string]bool{}
	for _, lq := range m.lqs {
		names[lq.Name] = true
	}
	return names
}
