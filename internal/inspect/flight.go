package inspect

import (
	"net/http"

	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/sim"
	"github.com/berth-project/berth/internal/state"
)

// FlightPath is where the metrics server gives out the record of the engine's decisions,
// to whom the API server lets read that path.
const FlightPath = "/debug/flight-record"

// FlightEvents is how many events the record goes back at least.
const FlightEvents = 5000

// Flight serves what the engine was told and decided of late, for berth replay.
func Flight(e *engine.Engine) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		type record struct {
			from   *state.Snapshot
			events []state.Event
		}
		answer, err := e.Read(r.Context(), "", func(s *state.State) any {
			from, events := s.Recorded()
			return record{from, events}
		})
		if err != nil {
			unanswered(w, err)
			return
		}
		recorded, _ := answer.(record)
		w.Header().Set("Content-Type", "application/x-ndjson")
		if err := sim.WriteRecord(w, recorded.from, recorded.events); err != nil {
			panic(http.ErrAbortHandler) // half of it is out: the reader has to notice
		}
	})
}
