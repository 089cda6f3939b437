package order

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/berth-project/berth/internal/core/workload"
)

// TestBehind holds Behind against the whole line.
func TestBehind(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var p Pending
		p.Share(&Patterns{})
		for i := range r.IntN(40) {
			p.Add(&workload.Workload{
				UID: fmt.Sprint(i), Class: int32(r.IntN(8)), Priority: int64(r.IntN(3)), Since: workload.Instant(r.IntN(20)),
			}, false)
		}
		all := p.All()
		if len(all) == 0 {
			continue
		}
		without, n := all[r.IntN(len(all))], r.IntN(45)
		want := slices.DeleteFunc(slices.Clone(all), func(w *workload.Workload) bool { return w == without })
		want = want[:min(n, len(want))]
		if got := p.Behind(without, n, nil); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d of %d, want %d, in the order of the line", seed, len(got), len(all), len(want))
		}
	}
}
