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
		lines := int32(1 + r.IntN(4))
		for number := range lines {
			p.SetStanding(number, Standing(r.IntN(3)))
		}
		for i := range r.IntN(40) {
			class := int32(r.IntN(8))
			p.Add(&workload.Workload{
				UID: fmt.Sprint(i), Class: class, Line: class % lines, Priority: int64(r.IntN(3)), Since: workload.Instant(r.IntN(20)),
			}, false)
		}
		all := p.All()
		if len(all) == 0 {
			continue
		}
		if r.IntN(2) == 0 {
			p.Prioritize(all[r.IntN(len(all))])
			all = p.All()
		}
		without, n := all[r.IntN(len(all))], r.IntN(45)
		want := slices.DeleteFunc(slices.Clone(all), func(w *workload.Workload) bool { return w == without })
		want = want[:min(n, len(want))]
		if got := p.Behind(without, n, nil); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d of %d, want %d, in the order of the line", seed, len(got), len(all), len(want))
		}
		p.SetInadmissible(without, nil)
		p.SetInadmissibleAlone(all[0])
		first := slices.DeleteFunc(slices.Clone(all), p.IsAlone)
		slices.SortFunc(first, Compare)
		if got := p.First(n); !slices.Equal(got, first[:min(n, len(first))]) {
			t.Fatalf("seed %d: First gives %d of %d, want %d, in the order of Compare", seed, len(got), len(first), min(n, len(first)))
		}
	}
}
