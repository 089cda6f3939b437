package order

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// measured are figures with bounds, which count how often a measure is asked for. The one of 0 is quota.
type measured struct {
	amounts, bounds map[resource.FR]resource.Amount
	asked           int
}

func (m *measured) Available(fr resource.FR) resource.Amount {
	if fr < 0 {
		m.asked++
	}
	return m.amounts[fr]
}

func (m *measured) AtMost(fr resource.FR) resource.Amount { return m.bounds[fr] }

func (m *measured) Winnable(*workload.Workload, resource.FR, resource.Amount) bool { return false }

// TestMeasuredInTurn: of many measures that were released as many are asked for as it takes to find the first workload in line that one of
// them helps.
func TestMeasuredInTurn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := &measured{amounts: map[resource.FR]resource.Amount{}, bounds: map[resource.FR]resource.Amount{}}
		var line Pending
		n := rapid.IntRange(1, 20).Draw(rt, "workloads")
		all := make([]*workload.Workload, n)
		wants := map[*workload.Workload][]workload.Want{}
		for i := range n {
			all[i] = &workload.Workload{UID: fmt.Sprint("w", i), Class: int32(i), Priority: rapid.Int64Range(0, 3).Draw(rt, "priority")}
			line.Add(all[i], false)
			fr := resource.FR(rapid.IntRange(-8, 0).Draw(rt, "on"))
			wants[all[i]] = []workload.Want{{FR: fr, Least: resource.Amount(rapid.IntRange(1, 3).Draw(rt, "least"))}}
			line.SetInadmissible(all[i], wants[all[i]])
		}
		line.fileTried(now)
		for fr := resource.FR(-8); fr <= 0; fr++ {
			now.amounts[fr] = resource.Amount(rapid.IntRange(0, 3).Draw(rt, "amount"))
			now.bounds[fr] = now.amounts[fr] + resource.Amount(rapid.IntRange(0, 2).Draw(rt, "more"))
		}
		for fr := resource.FR(-8); fr <= 0; fr++ {
			line.Release(fr, now)
		}
		for fr := resource.FR(-8); fr <= 0; fr++ {
			if rapid.Bool().Draw(rt, "taken") {
				now.amounts[fr] = 0
			}
		}
		slices.SortFunc(all, Compare)
		for _, w := range all {
			want := wants[w][0]
			if now.amounts[want.FR] < want.Least {
				continue
			}
			now.asked = 0
			if got, _ := line.Next(now); got != w {
				rt.Fatalf("the next is %v, want %s", got, w.UID)
			}
			line.Wake(w)
			line.Remove(w)
		}
		if got, _ := line.Next(now); got != nil {
			rt.Fatalf("the next is %s, want none", got.UID)
		}
	})

	const many = 1000
	now := &measured{amounts: map[resource.FR]resource.Amount{}, bounds: map[resource.FR]resource.Amount{}}
	var line Pending
	all := make([]*workload.Workload, many)
	for i := range many {
		all[i] = &workload.Workload{UID: fmt.Sprintf("w%04d", i), Class: int32(i)}
		line.Add(all[i], false)
		line.SetInadmissible(all[i], []workload.Want{{FR: resource.FR(-1 - i), Least: 2}})
	}
	line.fileTried(now)
	for i := range many {
		now.amounts[resource.FR(-1-i)], now.bounds[resource.FR(-1-i)] = 2, 2
		line.Release(resource.FR(-1-i), now)
	}
	now.amounts[-1] = 1
	now.asked = 0
	if got, _ := line.Next(now); got != all[1] || now.asked > 5 {
		t.Errorf("the next is %v, and %d measures were asked for", got, now.asked)
	}
}
