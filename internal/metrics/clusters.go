package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// SetClusters sets the source of the worker clusters: by name, whether they are connected.
func (r *Recorder) SetClusters(connected func() map[string]bool) {
	r.locked(func() { r.clusters = connected })
}

func (r *Recorder) connections() []prometheus.Metric {
	r.mu.Lock()
	clusters := r.clusters
	r.mu.Unlock()
	if clusters == nil {
		return nil
	}
	g := &gauges{Recorder: r, role: []string{r.options.role()}}
	connected := clusters()
	for _, name := range slices.Sorted(maps.Keys(connected)) {
		g.put(r.scheduler.connected, zeroOrOne(connected[name]), []string{name})
	}
	return g.out
}

// WorkerLost counts a Workload that is dispatched again, since its worker cluster is lost.
func (r *Recorder) WorkerLost(cluster string) {
	r.with(func(role []string) { r.scheduler.lost.add(1, []string{cluster}, role) })
}

// Transformed counts an evaluation of the expressions of an external framework, with its cost in units of CEL and its duration.
func (r *Recorder) Transformed(framework, phase, result string, cost uint64, took time.Duration) {
	r.with(func(role []string) {
		r.scheduler.transforms.add(1, []string{framework, phase, result}, role)
		r.scheduler.transformCost.observe(float64(cost), []string{framework, phase}, role)
		r.scheduler.transformTime.observe(took.Seconds(), []string{framework, phase}, role)
	})
}

// Suspended counts a suspension of the expressions of an external framework in a namespace.
func (r *Recorder) Suspended(framework, phase string) {
	r.with(func(role []string) { r.scheduler.suspensions.add(1, []string{framework, phase}, role) })
}
