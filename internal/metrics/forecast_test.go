package metrics

import (
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/berth-project/berth/internal/foresight"
)

// The time that forecasts took is a sum, and so a counter; what is known of the last forecast are gauges.
func TestForecastSeries(t *testing.T) {
	r := New(Options{
		Forecast:    func() *foresight.Forecast { return foresight.Empty(1) },
		Forecasting: func() time.Duration { return 3 * time.Second },
	})
	counters, gauges := 0, 0
	for _, m := range r.forecastGauges() {
		var out dto.Metric
		if err := m.Write(&out); err != nil {
			t.Fatal(err)
		}
		switch isSum := strings.Contains(m.Desc().String(), `"berth_forecast_processor_seconds_total"`); {
		case isSum && out.GetCounter().GetValue() == 3:
			counters++
		case !isSum && out.Gauge != nil:
			gauges++
		default:
			t.Errorf("%s: %s", m.Desc(), &out)
		}
	}
	if counters != 1 || gauges != 5 {
		t.Errorf("%d counters and %d gauges", counters, gauges)
	}
}
