package preempt

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/resource"
)

// TestCould: whoever could not, by the quick answer, has no victims by the long one.
func TestCould(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := drawSearch
		if rapid.Bool().Draw(rt, "fair") {
			draw = drawFair
		}
		_, s := draw(rt)
		for _, e := range s.Requests {
			s.Need = []resource.FR{e.FR}
			s.Requests = resource.Vector{e}
			if victims, _ := s.Targets(); len(victims) > 0 && !s.Could(e.FR, e.Amount) {
				rt.Fatalf("%d of %d could not be had, and yet has %d victims", e.Amount, e.FR, len(victims))
			}
		}
	})
}
