package inspect

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/sim"
	"github.com/berth-project/berth/internal/state"
)

// The served record can be replayed.
func TestFlightRecord(t *testing.T) {
	s := state.New(state.Options{Options: cycle.Defaults()})
	s.Record(FlightEvents)
	e := engine.New(s, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = e.Run(ctx) }()
	e.Open()
	e.Post(state.SetNamespace{Name: "ns", Labels: nil})
	if err := e.Ask(ctx, func(*state.State) {}); err != nil { // it is answered after the step
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	Flight(e).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, FlightPath, nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	if _, steps, err := sim.Replay(rec.Body, nil); err != nil || steps == 0 {
		t.Errorf("replayed %d steps: %v", steps, err)
	}
}
