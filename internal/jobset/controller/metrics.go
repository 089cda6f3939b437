package controller

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// metrics counts events of JobSets (spec: 60 §5.4). The series of a JobSet are deleted with it.
type metrics struct {
	failed, completed, restarts *prometheus.CounterVec
	ready                       *prometheus.HistogramVec
	standing                    *prometheus.GaugeVec

	mu sync.Mutex
	// phases are the last phases of JobSets, and starts the start times for which the time to be ready was observed.
	phases map[types.NamespacedName]string
	starts map[types.NamespacedName]time.Time
}

// phases are the values of a label: standing has a series for each, also without a JobSet.
var phases = []string{plan.PhaseSuspended, plan.PhaseRunning, plan.PhaseRestarting, plan.PhaseCompleted, plan.PhaseFailed}

// Metric describes a metric of JobSets.
type Metric struct {
	Name, Type, Help string
	Labels           []string
}

var (
	failedMetric    = Metric{"jobset_failed_total", "counter", "JobSets that failed.", ofOne}
	completedMetric = Metric{"jobset_completed_total", "counter", "JobSets that completed.", ofOne}
	restartsMetric  = Metric{"jobset_restarts_total", "counter", "Restarts of JobSets and of single Jobs of them.", ofOne}
	readyMetric     = Metric{
		"jobset_time_to_ready_seconds", "histogram", "Time from the creation, the resume or the restart of a JobSet until all its Jobs are ready.", []string{"namespace"},
	}
	standingMetric = Metric{"jobset_jobsets", "gauge", "JobSets that are run here, by phase: " + strings.Join(phases, ", ") + ".", []string{"phase"}}

	ofOne = []string{"jobset_name", "namespace"}
)

// Metrics returns all metrics of JobSets.
func Metrics() []Metric {
	return []Metric{completedMetric, failedMetric, standingMetric, restartsMetric, readyMetric}
}

// registerMetrics registers the metrics in the process, or returns the registered ones.
func registerMetrics() (*metrics, error) {
	m := &metrics{phases: map[types.NamespacedName]string{}, starts: map[types.NamespacedName]time.Time{}}
	for _, c := range []struct {
		to **prometheus.CounterVec
		of Metric
	}{{&m.failed, failedMetric}, {&m.completed, completedMetric}, {&m.restarts, restartsMetric}} {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: c.of.Name, Help: c.of.Help}, c.of.Labels)
		if err := register(vec, c.to); err != nil {
			return nil, err
		}
	}
	ready := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: readyMetric.Name, Help: readyMetric.Help, Buckets: prometheus.ExponentialBuckets(1, 2, 13), // to more than an hour
	}, readyMetric.Labels)
	if err := register(ready, &m.ready); err != nil {
		return nil, err
	}
	standing := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: standingMetric.Name, Help: standingMetric.Help}, standingMetric.Labels)
	if err := register(standing, &m.standing); err != nil {
		return nil, err
	}
	for _, phase := range phases {
		m.standing.WithLabelValues(phase).Set(0)
	}
	return m, nil
}

// register registers a metric in the process, or returns the registered one in to.
func register[T prometheus.Collector](vec T, to *T) error {
	*to = vec
	err := ctrlmetrics.Registry.Register(vec)
	if known, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		*to = known.ExistingCollector.(T)
		return nil
	}
	return err
}

func (m *metrics) saw(js *jobsetv1alpha2.JobSet) {
	m.move(client.ObjectKeyFromObject(js), plan.Phase(js))
}

// move counts a JobSet in another phase; "" is none.
func (m *metrics) move(key types.NamespacedName, phase string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.phases[key]
	if before == phase {
		return
	}
	if before != "" {
		m.standing.WithLabelValues(before).Dec()
	}
	delete(m.phases, key)
	if phase != "" {
		m.standing.WithLabelValues(phase).Inc()
		m.phases[key] = phase
	}
}

// count counts the results of a plan, after its status was written.
func (m *metrics) count(key types.NamespacedName, p *plan.Plan, now time.Time) {
	switch p.Finished {
	case jobsetv1alpha2.TerminalStateFailed:
		m.failed.WithLabelValues(key.Name, key.Namespace).Inc()
	case jobsetv1alpha2.TerminalStateCompleted:
		m.completed.WithLabelValues(key.Name, key.Namespace).Inc()
	}
	if p.Restarted > 0 {
		m.restarts.WithLabelValues(key.Name, key.Namespace).Add(float64(p.Restarted))
	}
	if p.ReadySince.IsZero() {
		return
	}
	m.mu.Lock()
	known := m.starts[key].Equal(p.ReadySince) // a pod was unready for a while
	m.starts[key] = p.ReadySince
	m.mu.Unlock()
	if !known {
		m.ready.WithLabelValues(key.Namespace).Observe(now.Sub(p.ReadySince).Seconds())
	}
}

func (m *metrics) forget(key types.NamespacedName) {
	for _, v := range []*prometheus.CounterVec{m.failed, m.completed, m.restarts} {
		v.DeleteLabelValues(key.Name, key.Namespace)
	}
	m.move(key, "")
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.starts, key)
}
