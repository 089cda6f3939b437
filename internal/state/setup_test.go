package state

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestOrderOfSetup: however the same objects arrive, the same is decided.
func TestOrderOfSetup(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(rt)
		for range rapid.IntRange(0, 12).Draw(rt, "workloads") {
			m.submit(rt)
			if rapid.IntRange(0, 2).Draw(rt, "running") == 0 {
				m.reservedOutside(rt)
			}
		}
		a := m.rebuilt(nil)
		b := m.rebuilt(func(calls []func(*State)) {
			copy(calls, rapid.Permutation(calls).Draw(rt, "order"))
		})
		if diff := gocmp.Diff(a.Dump(), b.Dump()); diff != "" {
			rt.Fatalf("the worlds differ:\n%s", diff)
		}
		for now := workload.Instant(100); now < 104; now++ {
			if diff := gocmp.Diff(decisions(a, now), decisions(b, now)); diff != "" {
				rt.Fatalf("the decisions differ:\n%s", diff)
			}
			if diff := gocmp.Diff(a.Dump(), b.Dump()); diff != "" {
				rt.Fatalf("the worlds differ after a step:\n%s", diff)
			}
			for _, uid := range slices.Sorted(maps.Keys(m.objects)) {
				wl, def := a.records[uid].wl, m.objects[uid].def
				def.Version, def.Reserved, def.Held, def.Placed = def.Version+uint64(now), false, nil, nil
				switch {
				case wl.Evicting:
				case wl.Reserved && rapid.IntRange(0, 2).Draw(rt, "ends") == 0:
					def.Queueable = false
				default:
					continue
				}
				a.Apply(SetWorkload(def))
				b.Apply(SetWorkload(def))
			}
		}
	})
}

func decisions(s *State, now workload.Instant) []string {
	return texts(s.Step(now, math.MaxInt).Decisions)
}

func texts(decisions []cycle.Decision) []string {
	var out []string
	for _, d := range decisions {
		text := d.Attempt.String()
		evict := slices.Clone(d.Evict)
		slices.SortFunc(evict, func(a, b preempt.Victim) int { return cmp.Compare(a.Workload.UID, b.Workload.UID) })
		for _, v := range evict {
			text += "told: " + v.Workload.UID + "\n"
		}
		out = append(out, text)
	}
	return out
}
