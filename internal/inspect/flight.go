package inspect

import (
	"net/http"

	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/sim"
	"github.com/berth-project/berth/internal/state"
)

// FlightPath is the path of the record of the engine's decisions, for users that may read it.
const FlightPath = "/debug/flight-record"

// FlightEvents is the least number of events in the record.
const FlightEvents = 5000

// Flight serves the last events and decisions of the engine, up to its last turn, for berth replay.
func Flight(e *engine.Engine) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var from *state.Snapshot
		var events []state.Event
		if record := e.Model().Record(); record != nil {
			from, events = record.Contents()
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		if err := sim.WriteRecord(w, from, events); err != nil {
			panic(http.ErrAbortHandler) // the answer is incomplete: the client must notice
		}
	})
}
