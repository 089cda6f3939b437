package flavor

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

func TestWants(t *testing.T) {
	type query struct {
		w       *world
		podSets []workload.PodSet
	}
	win := func(w workload.Want) workload.Want { w.Winnable = true; return w }
	// Two pod sets of 3 and 2 pods ask for 6 and 4 gpus, FR 0 or 1, and for pods, FR 2.
	gpus := func(clause uint8, amount resource.Amount) []workload.Want {
		return []workload.Want{{FR: 0, Least: amount, Clause: clause}, {FR: 1, Least: amount, Clause: clause, Offer: 1}}
	}
	pods := func(clause uint8, amount resource.Amount) []workload.Want {
		return []workload.Want{{FR: 2, Least: amount, Clause: clause}}
	}
	both := slices.Concat(gpus(0, 6), pods(1, 3), gpus(2, 4), pods(3, 2))
	tests := map[string]struct {
		edit func(*query)
		want []workload.Want
	}{
		"a clause for each pod set and group": {func(*query) {}, both},
		"the sum of a group":                  {func(q *query) { q.podSets[0].Group, q.podSets[1].Group = "g", "g" }, slices.Concat(gpus(0, 10), pods(1, 5))},
		"at the minimum count":                {func(q *query) { q.podSets[1].MinCount = 1 }, slices.Concat(gpus(0, 6), pods(1, 3), gpus(2, 2), pods(3, 1))},
		"a minimum past the count":            {func(q *query) { q.podSets[1].MinCount = 5 }, both},
		"a request of nothing":                {func(q *query) { q.podSets[1].Requests[0].Amount = 0 }, slices.Concat(gpus(0, 6), pods(1, 3), gpus(2, 0), pods(3, 2))},
		"what is not covered never comes":     {func(q *query) { q.w.Groups = nil }, nil},
		"unless that does not matter":         {func(q *query) { q.w.Groups, q.w.IgnoreUndeclared = nil, true }, nil},
		"a flavor that does not match": {func(q *query) {
			q.podSets[0].Constraints = &workload.Constraints{Selector: map[string]string{"k": "v"}}
			q.w.Groups[0].Offers[0].Flavor.Labels = map[string]string{"k": "other"}
		}, slices.Concat(gpus(0, 6)[1:], pods(1, 3), gpus(2, 4), pods(3, 2))},
		"no flavor that matches": {func(q *query) {
			q.w.Groups[0].Offers[0].Flavor.Missing, q.w.Groups[0].Offers[1].Flavor.Missing = true, true
		}, nil},
		"own quota can be won back": {func(q *query) { q.w.NoPreemption = nil }, slices.Concat(
			gpus(0, 6)[:1], []workload.Want{win(gpus(0, 6)[1])}, pods(1, 3), gpus(2, 4)[:1], []workload.Want{win(gpus(2, 4)[1])}, pods(3, 2))},
		"all that it owns": {func(q *query) {
			q.w.NoPreemption = nil
			q.podSets[0].Requests[0].Amount, q.podSets[1].Requests[0].Amount = 10, 10
		}, slices.Concat(gpus(0, 10)[:1], []workload.Want{win(gpus(0, 10)[1])}, pods(1, 3), gpus(2, 10)[:1], []workload.Want{win(gpus(2, 10)[1])}, pods(3, 2))},
		"more than there ever is": {func(q *query) { q.podSets[1].Requests[0].Amount = 21 }, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.NoPreemption = &trace.Reach{}
			w.add("gpu", flavors("a", "b"), grade{Fit, 1}, grade{Fit, 0})
			w.add("pods", flavors("p"), grade{Fit, 1})
			w.Quota.SetParent(w.mid, quota.None)
			w.recompute()
			sum := func(name string, count int32, amount resource.Amount) workload.PodSet {
				return workload.PodSet{Name: name, Count: count, Requests: []workload.Request{{Resource: w.Table.ID("gpu"), Amount: amount}}}
			}
			q := query{w, []workload.PodSet{sum("a", 3, 6), sum("b", 2, 4)}}
			tc.edit(&q)
			if diff := cmp.Diff(tc.want, w.Wants(q.podSets, nil), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestWantsTwin: a pending workload is still pending after a release that its wants pass over, at
// full and at reduced counts, with preemption and without.
func TestWantsTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld()
		drawWorld(rt, w)
		podSets := drawPodSets(rt, w)
		for i := range podSets {
			podSets[i].MinCount = int32(rapid.IntRange(0, int(podSets[i].Count)).Draw(rt, "least"))
		}
		w.NoPreemption, w.NoReclaim = nil, false
		if rapid.Bool().Draw(rt, "nobody can be preempted") {
			w.NoPreemption = &trace.Reach{}
		}
		if rapid.Bool().Draw(rt, "one cohort") {
			w.Quota.SetParent(w.mid, quota.None)
			w.Quota.Recompute()
		}
		// Victims elsewhere in the tree could give so much of each FR.
		victims := make([]resource.Amount, w.Table.Len())
		for fr := range victims {
			victims[fr] = resource.Amount(rapid.IntRange(0, 6).Draw(rt, "victims"))
		}
		w.Oracle = func(q *Question) (Mode, trace.Reach) {
			for _, e := range q.Requests.Quota {
				if w.NoPreemption != nil || e.Amount > w.Ledger.Available(w.Node, e.FR).Add(victims[e.FR]) {
					return NoCandidates, trace.Reach{}
				}
			}
			return Reclaim, trace.Reach{}
		}
		waits := func() bool {
			var a Assignment
			for _, sets := range scales(podSets) {
				if w.Assign(sets, &a); a.Mode > NoCandidates {
					return false
				}
			}
			return true
		}
		if !waits() || w.Table.Len() == 0 {
			return
		}
		wants := w.Wants(podSets, nil)
		for range rapid.IntRange(1, 4).Draw(rt, "releases") {
			fr := resource.FR(rapid.IntRange(0, w.Table.Len()-1).Draw(rt, "released"))
			amount := min(w.Quota.Usage(w.Node, fr), resource.Amount(rapid.IntRange(1, 4).Draw(rt, "amount")))
			w.Ledger.Release(w.Node, ledger.Usage{Quota: resource.Vector{{FR: fr, Amount: amount}}})
			if len(wants) > 0 && !lacks(w, wants, victims) {
				return // worth a look
			}
			if !waits() {
				rt.Fatalf("%s was released, of which there is %d now; wants %v", w.Table.Pair(fr), w.Ledger.Available(w.Node, fr), wants)
			}
		}
	})
}

// lacks reports whether there is a clause without an offer that has all it wants, victims
// included.
func lacks(w *world, wants []workload.Want, victims []resource.Amount) bool {
	type offer struct {
		clause uint8
		offer  uint16
	}
	short, met := map[offer]bool{}, map[uint8]bool{}
	for _, x := range wants {
		has := w.Ledger.Available(w.Node, x.FR)
		if x.Winnable {
			has = has.Add(victims[x.FR])
		}
		short[offer{x.Clause, x.Offer}] = short[offer{x.Clause, x.Offer}] || has < x.Least
	}
	for o, is := range short {
		met[o.clause] = met[o.clause] || !is
	}
	for _, is := range met {
		if !is {
			return true
		}
	}
	return false
}

// scales are the pod sets at all counts between the least and the full ones.
func scales(podSets []workload.PodSet) [][]workload.PodSet {
	out := [][]workload.PodSet{nil}
	for _, ps := range podSets {
		from := ps.MinCount
		if from == 0 {
			from = ps.Count
		}
		var longer [][]workload.PodSet
		for count := from; count <= ps.Count; count++ {
			for _, before := range out {
				longer = append(longer, append(slices.Clip(before), ps.Scaled(count)))
			}
		}
		out = longer
	}
	return out
}
