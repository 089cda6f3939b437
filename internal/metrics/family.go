package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options"
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

// Type is the type of a family.
type Type string

// Types of families.
const (
	Gauge     Type = "gauge"
	Counter   Type = "counter"
	Histogram Type = "histogram"
)

// Family describes a family of series.
type Family struct {
	Name, Help string
	Type       Type
	// Labels are its labels, of which the custom ones and the role come last.
	Labels []string
}

// Families returns all families that a configuration can enable, without custom labels, in the order of their definition.
func Families() []Family {
	var m maker
	m.families(&Options{
		Metrics: options.Metrics{ClusterQueueResources: true, LocalQueues: labels.Everything()},
		Cohorts: true, Hashes: true, Unadmitted: true, CreationLatency: true, FairSharing: true, UsageSharing: true, Topologies: true,
	})
	return m.table
}

type maker struct {
	custom  customLabels
	descs   []*prometheus.Desc
	vectors []vector
	table   []Family
}

type kinds = []configv1beta2.MetricSourceKind

// labels returns the label set of a family: its own, the custom ones, and the role.
func (m *maker) labels(from kinds, own []string) []string {
	return slices.Concat(own, m.custom.names(from...), []string{roleLabel})
}

// described is a family whose series are computed at each scrape.
func (m *maker) described(f Family) *prometheus.Desc {
	d := prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
	m.descs, m.table = append(m.descs, d), append(m.table, f)
	return d
}

func (m *maker) gauge(name, help string, from kinds, own ...string) *prometheus.Desc {
	return m.described(Family{name, help, Gauge, m.labels(from, own)})
}

// counter is a family of counters; a nil one counts nothing.
type counter struct{ vec *prometheus.CounterVec }

func (m *maker) counter(name, help string, from kinds, own ...string) *counter {
	f := Family{name, help, Counter, m.labels(from, own)}
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, f.Labels)
	m.vectors, m.table = append(m.vectors, c), append(m.table, f)
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
	f := Family{name, help, Histogram, m.labels(from, own)}
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, f.Labels)
	m.vectors, m.table = append(m.vectors, h), append(m.table, f)
	return &histogram{h}
}

// observe adds an observation in seconds. Negative values, of clocks that disagree, count as 0.
func (h *histogram) observe(seconds float64, labels ...[]string) {
	if h != nil {
		h.vec.WithLabelValues(slices.Concat(labels...)...).Observe(max(seconds, 0))
	}
}
