package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// forecastFamilies are the series of the forecast of starts.
type forecastFamilies struct {
	age, runs, workloads, spent *prometheus.Desc
}

func (m *maker) forecast() forecastFamilies {
	return forecastFamilies{
		age:       m.gauge("berth_forecast_age_seconds", "Time since the forecast of starts was made.", nil),
		runs:      m.gauge("berth_forecast_runs", "Futures of which the forecast of starts consists.", nil),
		workloads: m.gauge("berth_forecast_workloads", "Pending Workloads by what the forecast knows of their starts: known, later than its horizon, or unknown.", nil, "start"),
		spent: m.described(Family{
			"berth_forecast_processor_seconds_total", "Time that all forecasts so far took, on one core.", Counter, m.labels(nil, nil),
		}),
	}
}

// forecastGauges are the series of the last forecast, none before the first one.
func (r *Recorder) forecastGauges() []prometheus.Metric {
	if r.options.Forecast == nil {
		return nil
	}
	last := r.options.Forecast()
	if last == nil {
		return nil
	}
	g := &gauges{Recorder: r, role: []string{r.options.role()}}
	f, n := &g.families.forecast, last.Count()
	g.put(f.age, time.Since(time.Unix(0, int64(last.At))).Seconds())
	g.put(f.runs, float64(last.Runs))
	g.putAs(prometheus.CounterValue, f.spent, r.options.Forecasting().Seconds())
	for start, count := range map[string]int{"known": n.Known, "later": n.Later, "unknown": n.Unknown} {
		g.put(f.workloads, float64(count), []string{start})
	}
	return g.out
}
