package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/metrics"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/state"
)

// Every turn of the engine is observed with the sum of its parts, its phases only where there were cycles. A
// cohort whose decisions come to no end is logged.
func TestMeterTurn(t *testing.T) {
	o := options.Default()
	meter := metrics.New(metrics.NewOptions(&o))
	var logged []string
	meterATurn := meterTurn(meter, funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))
	meterATurn(&engine.Turn{Events: 2, Apply: 2 * time.Millisecond, Dispatch: 5 * time.Millisecond})
	meterATurn(&engine.Turn{Apply: time.Millisecond, Decide: 3 * time.Millisecond, Dispatch: time.Millisecond, Result: cycle.Result{Cycles: 1, Endless: []string{"team-a"}}})
	if len(logged) != 1 || !strings.Contains(logged[0], "without an end") || !strings.Contains(logged[0], "team-a") {
		t.Errorf("of a cohort that comes to no end it logged %q", logged)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(meter)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				counts[f.GetName()] += h.GetSampleCount()
			}
			if f.GetName() == "berth_engine_turn_duration_seconds" && m.GetHistogram().GetSampleSum() != 0.012 {
				t.Errorf("the turns took %v s, want 0.012", m.GetHistogram().GetSampleSum())
			}
		}
	}
	if counts["berth_engine_turn_duration_seconds"] != 2 || counts["berth_scheduler_phase_duration_seconds"] != 4 {
		t.Errorf("%d turns and %d phases, want 2 and 4", counts["berth_engine_turn_duration_seconds"], counts["berth_scheduler_phase_duration_seconds"])
	}
}

// A ClusterQueue shows the skips of its last cycle with any, and has no series before. spec: 10 §5.4.
func TestMeterPreemptionSkips(t *testing.T) {
	o, world := options.Default(), state.New(state.Options{Options: cycle.Defaults()})
	with := metrics.NewOptions(&o)
	with.Model = world.Publish
	meter := metrics.New(with)
	for _, name := range []string{"skips", "plain"} {
		world.Apply(state.SetQueue{Name: name})
		meter.SetClusterQueue(&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	meterATurn := meterTurn(meter, logr.Discard())
	for _, passedOver := range []bool{true, false} {
		meterATurn(&engine.Turn{Result: cycle.Result{Cycles: 1, Decisions: []cycle.Decision{{Queue: "skips", PassedOver: passedOver}, {Queue: "plain"}}}})
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(meter)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if f.GetName() == "kueue_admission_cycle_preemption_skips" {
			for _, m := range f.GetMetric() {
				got = append(got, fmt.Sprint(m.GetLabel()[0].GetValue(), " ", m.GetGauge().GetValue()))
			}
		}
	}
	if want := []string{"skips 1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
