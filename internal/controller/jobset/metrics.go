package jobset

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/plan/jobset"
)

// metrics counts what happens to JobSets (spec: 60 §5.4). Series go with their JobSet.
type metrics struct {
	failed, completed, restarts *prometheus.CounterVec
}

// registerMetrics adds the metrics to those of the process, or takes them from there.
func registerMetrics() (*metrics, error) {
	m := &metrics{}
	for _, c := range []struct {
		to         **prometheus.CounterVec
		name, help string
	}{
		{&m.failed, "jobset_failed_total", "JobSets that failed"},
		{&m.completed, "jobset_completed_total", "JobSets that completed"},
		{&m.restarts, "jobset_restarts_total", "Restarts of JobSets and of single Jobs of them"},
	} {
		*c.to = prometheus.NewCounterVec(prometheus.CounterOpts{Name: c.name, Help: c.help}, []string{"jobset_name", "namespace"})
		err := ctrlmetrics.Registry.Register(*c.to)
		if known, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
			*c.to = known.ExistingCollector.(*prometheus.CounterVec)
		} else if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// count counts what a plan did, after its status was written.
func (m *metrics) count(key types.NamespacedName, p *plan.Plan) {
	switch p.Finished {
	case jobsetv1alpha2.TerminalStateFailed:
		m.failed.WithLabelValues(key.Name, key.Namespace).Inc()
	case jobsetv1alpha2.TerminalStateCompleted:
		m.completed.WithLabelValues(key.Name, key.Namespace).Inc()
	}
	if p.Restarted > 0 {
		m.restarts.WithLabelValues(key.Name, key.Namespace).Add(float64(p.Restarted))
	}
}

// forget drops the series of a JobSet that is gone.
func (m *metrics) forget(key types.NamespacedName) {
	for _, v := range []*prometheus.CounterVec{m.failed, m.completed, m.restarts} {
		v.DeleteLabelValues(key.Name, key.Namespace)
	}
}
