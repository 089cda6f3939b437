package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// SetClusters says how it can be looked up which worker clusters there are, and which of them can be reached.
func (r *Recorder) SetClusters(connected func() map[string]bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clusters = connected
}

// connections say of every worker cluster whether it can be reached.
func (r *Recorder) connections() []prometheus.Metric {
	r.mu.Lock()
	look := r.clusters
	r.mu.Unlock()
	if look == nil {
		return nil
	}
	g := &gauges{Recorder: r, role: []string{r.options.role()}}
	now := look()
	for _, name := range slices.Sorted(maps.Keys(now)) {
		value := 0.0
		if now[name] {
			value = 1
		}
		g.put(r.scheduler.connected, value, []string{name})
	}
	return g.out
}

// WorkerLost counts a Workload that is sent again, since the worker cluster that it was on is lost.
func (r *Recorder) WorkerLost(cluster string) {
	r.with(func(role []string) { r.scheduler.lost.add(1, []string{cluster}, role) })
}

// Transformed counts an evaluation of the expressions of an external framework: what it cost, in units of CEL, and how long it took.
func (r *Recorder) Transformed(framework, phase, result string, cost uint64, took time.Duration) {
	r.with(func(role []string) {
		r.scheduler.transforms.add(1, []string{framework, phase, result}, role)
		r.scheduler.transformCost.observe(float64(cost), []string{framework, phase}, role)
		r.scheduler.transformTime.observe(took.Seconds(), []string{framework, phase}, role)
	})
}

// Suspended counts a phase of an external framework whose expressions are not evaluated for a while in a namespace.
func (r *Recorder) Suspended(framework, phase string) {
	r.with(func(role []string) { r.scheduler.suspensions.add(1, []string{framework, phase}, role) })
}
