package preempt

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/workload"
)

func holder(uid string, priority int64, at workload.Instant, evicting bool) *workload.Workload {
	return &workload.Workload{UID: uid, Priority: priority, Reservation: workload.Reservation{ReservedAt: at, Evicting: evicting}}
}

func uids(h *Holders) (out []string) {
	for w := range h.All() {
		out = append(out, w.UID)
	}
	return out
}

// TestHoldersOrder is spec 10 §4.7.3, each key by itself.
func TestHoldersOrder(t *testing.T) {
	tests := map[string]struct{ first, second *workload.Workload }{
		"those being evicted": {holder("b", 9, 1, true), holder("a", 0, 9, false)},
		"lower priority":      {holder("b", -1, 1, false), holder("a", 0, 9, false)},
		"reserved later":      {holder("b", 1, 9, false), holder("a", 1, 8, false)},
		"reserved just now":   {holder("b", 1, 0, false), holder("a", 1, 9, false)},
		"UID":                 {holder("a", 1, 1, false), holder("b", 1, 1, false)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, order := range [][]*workload.Workload{{tc.first, tc.second}, {tc.second, tc.first}} {
				var h Holders
				for _, w := range order {
					h.Add(w)
				}
				if diff := cmp.Diff([]string{tc.first.UID, tc.second.UID}, uids(&h)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestHoldersEmpty(t *testing.T) {
	var h Holders
	if h.Len() != 0 || uids(&h) != nil || h.Remove(holder("a", 0, 0, false)) {
		t.Error("the zero value is not empty")
	}
	w := holder("a", 0, 0, false)
	h.SetEvicting(w, true)
	if !w.Evicting || h.Len() != 0 {
		t.Error("a workload that is not in is not marked, or put in")
	}
	for range h.All() {
		t.Error("there is one")
	}
	h.Add(w)
	h.Add(holder("b", 0, 0, false))
	for range h.All() {
		break
	}
}

// TestHoldersTwin: whatever is added, removed and moved, Holders are a sorted list.
func TestHoldersTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var h Holders
		var in []*workload.Workload
		changes := pick(rt, "changes", 5, 10, 10, 20, 20, 40, 40, 40, 40, 40, 40, 900)
		grow := pick(rt, "grow", 2, 4, 8) // of ten
		next := uint32(rapid.Uint16().Draw(rt, "seed"))
		random := func(n int) int { // drawing that much would take too long
			next = next*1664525 + 1013904223
			return int(next>>8) % n
		}
		for i := range changes {
			up := random(10) < grow
			if i < changes/2 {
				up = random(10) < 9
			}
			switch {
			case random(10) == 0 && len(in) > 0:
				w := in[random(len(in))]
				h.SetEvicting(w, !w.Evicting)
			case up || len(in) == 0:
				w := holder(fmt.Sprintf("%04d-%d", random(10000), i), int64(random(4)), workload.Instant(random(3)), random(8) == 0)
				in = append(in, w)
				h.Add(w)
			default:
				k := random(len(in))
				if !h.Remove(in[k]) || h.Remove(in[k]) {
					rt.Fatal("a workload is not in, or in twice")
				}
				in = slices.Delete(in, k, k+1)
			}
			if i%100 == 99 {
				checkHolders(rt, &h, in)
			}
		}
		checkHolders(rt, &h, in)
	})
}

func checkHolders(t *rapid.T, h *Holders, in []*workload.Workload) {
	want := slices.Clone(in)
	slices.SortFunc(want, func(a, b *workload.Workload) int {
		keys := func(w *workload.Workload) []int64 { return append([]int64{truth(w.Evicting)}, keysOf(w)...) }
		if c := slices.Compare(keys(a), keys(b)); c != 0 {
			return c
		}
		return slices.Compare([]byte(a.UID), []byte(b.UID))
	})
	if h.Len() != len(in) || !slices.Equal(want, slices.Collect(h.All())) {
		t.Fatalf("%d holders, of %d, or in another order", h.Len(), len(in))
	}
	for _, part := range []*sorted{&h.leaving, &h.staying} {
		for i, c := range part.chunks {
			if len(c) == 0 || len(c) > chunkLen || (i > 0 && part.small(i-1, i)) {
				t.Fatalf("chunk %d of %d has %d", i, len(part.chunks), len(c))
			}
		}
	}
}

// TestHoldersAllocate: churn costs no memory.
func TestHoldersAllocate(t *testing.T) {
	var h Holders
	all := make([]*workload.Workload, 5000)
	for i := range all {
		all[i] = holder(fmt.Sprintf("%05d", i*7919%5000), int64(i%10), workload.Instant(i%7), false)
		h.Add(all[i])
	}
	i := 0
	churn := func() {
		for range 100 {
			w := all[i*31%len(all)]
			h.Remove(w)
			h.Add(w)
			h.SetEvicting(w, true)
			h.SetEvicting(w, false)
			i++
		}
	}
	for range 200 {
		churn()
	}
	if n := testing.AllocsPerRun(100, churn); n > 0 {
		t.Errorf("%v allocations in 100 changes", n)
	}
}
