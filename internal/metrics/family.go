package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
)

// Names of labels that several families have.
const (
	queueLabel      = "cluster_queue"
	preemptingLabel = "preempting_cluster_queue"
	preemptedLabel  = "preempted_cluster_queue"
	cohortLabel     = "cohort"
	nameLabel       = "name"
	namespaceLabel  = "namespace"
	statusLabel     = "status"
	reasonLabel     = "reason"
	causeLabel      = "underlying_cause"
	classLabel      = "priority_class"
	flavorLabel     = "flavor"
	resourceLabel   = "resource"
	resultLabel     = "result"
	roleLabel       = "replica_role"
)

// Buckets of histograms, in seconds.
var (
	// waitBuckets are 1, 2.5 and then 5 doubling, 14 in all. longBuckets continue to 81920.
	waitBuckets     = append([]float64{1}, prometheus.ExponentialBuckets(2.5, 2, 13)...)
	longBuckets     = append([]float64{1}, prometheus.ExponentialBuckets(2.5, 2, 16)...)
	creationBuckets = prometheus.ExponentialBuckets(0.01, 2, 11)
	phaseBuckets    = prometheus.ExponentialBuckets(0.00001, 4, 11)
	turnBuckets     = []float64{0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.5}
)

// vector is a family of counters or histograms whose series can be dropped.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

type maker struct {
	custom  customLabels
	descs   []*prometheus.Desc
	vectors []vector
}

type kinds = []configv1beta2.MetricSourceKind

// labels returns the label set of a family: its own, the custom ones, and the role.
func (m *maker) labels(from kinds, own []string) []string {
	return slices.Concat(own, m.custom.names(from...), []string{roleLabel})
}

func (m *maker) gauge(name, help string, from kinds, own ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, m.labels(from, own), nil)
	m.descs = append(m.descs, d)
	return d
}

// counter is a family of counters; a nil one counts nothing.
type counter struct{ vec *prometheus.CounterVec }

func (m *maker) counter(name, help string, from kinds, own ...string) *counter {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, m.labels(from, own))
	m.vectors = append(m.vectors, c)
	return &counter{c}
}

func (c *counter) add(n float64, labels ...[]string) {
	if c != nil {
		c.vec.WithLabelValues(slices.Concat(labels...)...).Add(n)
	}
}

// histogram is a family of histograms; a nil one observes nothing.
type histogram struct{ vec *prometheus.HistogramVec }

func (m *maker) histogram(name, help string, buckets []float64, from kinds, own ...string) *histogram {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, m.labels(from, own))
	m.vectors = append(m.vectors, h)
	return &histogram{h}
}

// observe adds an observation in seconds. Negative values, of clocks that disagree, count as 0.
func (h *histogram) observe(seconds float64, labels ...[]string) {
	if h != nil {
		h.vec.WithLabelValues(slices.Concat(labels...)...).Observe(max(seconds, 0))
	}
}
