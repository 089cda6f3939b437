package wire

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/metrics"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// addMetrics creates the recorder of all components, and serves it while the manager runs.
func addMetrics(mgr ctrl.Manager, e *engine.Engine, cfg *Config) error {
	o := metrics.NewOptions(&cfg.Options)
	o.Elected, o.Build = mgr.Elected(), cfg.Build
	o.Model, o.Places = e.Model, cfg.places
	if cfg.Groups.Has(install.Scheduler) { // it is added later, and asked once the manager runs
		o.Forecast = func() *foresight.Forecast { return cfg.forecast.Last() }
		o.Forecasting = func() time.Duration { return cfg.forecast.Spent() }
	}
	cfg.meter = metrics.New(o)
	cfg.events = reconcile.NewEventBudget(cfg.meter.EventsShed)
	e.OnTurn(meterTurn(cfg.meter, cfg.Log.WithName("engine")))
	meter, log := cfg.meter, cfg.Log.WithName("metrics")
	err := mgr.Add(everywhere(func(ctx context.Context) error {
		err := ctrlmetrics.Registry.Register(meter)
		if errors.As(err, &prometheus.AlreadyRegisteredError{}) {
			log.Info("Another manager of this process serves its metrics; those of this one are not served")
			return nil
		}
		if err != nil {
			return err
		}
		defer ctrlmetrics.Registry.Unregister(meter)
		<-ctx.Done()
		return nil
	}))
	if err != nil {
		return err
	}
	return mgr.Add(&metrics.Follower{Recorder: meter, Cache: mgr.GetCache()})
}

func meterTurn(meter *metrics.Recorder, log logr.Logger) func(*engine.Turn) {
	return func(t *engine.Turn) {
		meter.ObserveTurn(t.Apply + t.Decide + t.Dispatch)
		meter.Phase(metrics.PhaseEvents, t.Apply)
		r := &t.Result
		if len(r.Endless) > 0 {
			log.Error(nil, "Workloads take quota from each other without an end. Those of the cohorts of these queues are looked at once a second. "+
				"Please report it with the flight record: berth replay --help", "queues", r.Endless)
		}
		if r.Cycles == 0 {
			return
		}
		meter.Phase(metrics.PhaseDecide, t.Decide)
		meter.Phase(metrics.PhaseDispatch, t.Dispatch)
		meter.Cycles(r.Admitting, r.Cycles-r.Admitting, t.Decide)
		for i := range r.Decisions {
			d := &r.Decisions[i]
			if d.Recomputed != "" {
				meter.Recomputed(d.Queue, string(d.Recomputed))
			}
			if d.PassedOver {
				meter.PreemptionSkips(d.Queue, 1) // a queue has one head in a cycle
			}
		}
	}
}

func written(meter *metrics.Recorder) func(time.Duration) {
	return func(took time.Duration) { meter.Phase(metrics.PhaseWrite, took) }
}

func jobCreated(meter *metrics.Recorder) func(string, client.Object, *kueue.Workload) {
	return func(kind string, job client.Object, w *kueue.Workload) {
		after := w.CreationTimestamp.Sub(job.GetCreationTimestamp().Time)
		meter.WorkloadCreated(kind, job.GetGeneration(), w.Namespace, string(w.Spec.QueueName), after)
	}
}

// ungated meters the delay until pods are ungated.
func ungated(meter *metrics.Recorder) func(w *kueue.Workload, gates []string, group bool, at time.Time) {
	return func(w *kueue.Workload, gates []string, group bool, at time.Time) {
		c := lifecycle.Condition(w, kueue.WorkloadAdmitted)
		if c == nil || w.Status.Admission == nil {
			return
		}
		for _, gate := range gates {
			meter.GateRemoved(gate, string(w.Status.Admission.ClusterQueue), group, at.Sub(c.LastTransitionTime.Time))
		}
	}
}
