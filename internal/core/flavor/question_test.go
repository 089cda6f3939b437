package flavor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// listen has every question written down.
func (w *world) listen() *[]string {
	asked := &[]string{}
	oracle := w.Oracle
	names := func(frs []resource.FR) string {
		var out []string
		for _, fr := range frs {
			p := w.Table.Pair(fr)
			out = append(out, p.Flavor+"/"+p.Resource)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	w.Oracle = func(q *Question) (Mode, trace.Reach) {
		text := fmt.Sprintf("%s; short %s", q.Requests.Quota.Format(w.Table), names(q.Short))
		if all := names(q.Need); all != names(q.Short) {
			text += "; in all " + all
		}
		*asked = append(*asked, text)
		return oracle(q)
	}
	return asked
}

// TestAsked: the oracle is asked about a flavor only if its answer can make a difference.
func TestAsked(t *testing.T) {
	one, two, three := "f1/gpu=10; short f1/gpu", "f2/gpu=10; short f2/gpu", "f3/gpu=10; short f3/gpu"
	short := func(n int) string {
		return fmt.Sprintf("main: gpu in flavor f%d: 10 more needed (10 requested, 0 available)", n)
	}
	reach := func(n int) string { return short(n) + ", and no workload may be preempted for it" }
	tests := map[string]struct {
		policy   Fungibility
		edit     func(*world)
		flavors  []grade
		asked    []string
		want     string
		refusals []string
		borrows  bool // the queue owns less than it asks for
	}{
		"nothing is better": {
			flavors: []grade{{Reclaim, 0}, {Reclaim, 0}, {Preempt, 0}}, asked: []string{one}, want: "f1 reclaim 0", refusals: []string{short(2), short(3)},
		},
		"reclaiming is better": {
			flavors: []grade{{Preempt, 0}, {Reclaim, 0}, {Reclaim, 0}}, asked: []string{one, two}, want: "f2 reclaim 0", refusals: []string{short(3)},
		},
		"but the policy forbids it": {
			edit:    func(w *world) { w.NoReclaim = true },
			flavors: []grade{{Preempt, 0}, {Preempt, 0}}, asked: []string{one}, want: "f1 preempt 0", refusals: []string{short(2)},
		},
		"not to borrow is better": {
			edit:    func(w *world) { w.NoReclaim = true },
			flavors: []grade{{Preempt, 1}, {Preempt, 0}}, asked: []string{one, two}, want: "f2 preempt 0",
		},
		"no candidates": {
			flavors: []grade{{NoCandidates, 0}, {Preempt, 0}}, asked: []string{one, two}, want: "f2 preempt 0", refusals: []string{reach(1)},
		},
		"nowhere": {
			flavors: []grade{{NoCandidates, 0}, {NoCandidates, 0}}, asked: []string{one, two}, want: "f1 no candidates 2", refusals: []string{reach(1), reach(2)},
		},
		"what fits leaves no question": {
			flavors: []grade{{Preempt, 0}, {NoFit, 0}, {Fit, 1}}, want: "f3 fit 1",
			refusals: []string{short(1), "main: gpu in flavor f2: 10 requested, at most 0 can ever be had here"},
		},
		"what fits by borrowing is enough, though not preferred": {
			policy:  Fungibility{PreemptionOverBorrowing: true},
			flavors: []grade{{Preempt, 0}, {Fit, 1}}, want: "f2 fit 1", refusals: []string{short(1)},
		},
		"what fits by borrowing, and is preferred all the same": {
			policy:  Fungibility{TryNextWhenBorrowing: true},
			flavors: []grade{{Preempt, 0}, {Fit, 1}, {Reclaim, 0}}, want: "f2 fit 1", refusals: []string{short(1), short(3)},
		},
		"what fits by borrowing, and is not": {
			policy:  Fungibility{TryNextWhenBorrowing: true, PreemptionOverBorrowing: true},
			flavors: []grade{{Preempt, 0}, {Fit, 1}, {Reclaim, 0}}, asked: []string{one, three}, want: "f3 reclaim 0",
		},
		"content with preemption": {
			policy:  Fungibility{StopWhenPreempting: true},
			flavors: []grade{{Preempt, 0}, {Fit, 0}}, asked: []string{one}, want: "f1 preempt 0",
		},
		"content with preemption, but nobody can go": {
			policy:  Fungibility{StopWhenPreempting: true},
			flavors: []grade{{NoCandidates, 0}, {Fit, 0}}, asked: []string{one}, want: "f2 fit 0", refusals: []string{reach(1)},
		},
		"fungibility is off": {
			policy:  Fungibility{Off: true, StopWhenPreempting: true},
			flavors: []grade{{Reclaim, 2}, {Reclaim, 0}}, asked: []string{one}, want: "f1 reclaim 2", refusals: []string{short(2)},
		},
		"more than it owns is borrowed": {
			policy:  Fungibility{PreemptionOverBorrowing: true},
			edit:    func(w *world) { w.PreemptsWhileBorrowing = true },
			flavors: []grade{{Reclaim, 1}, {Reclaim, 1}}, asked: []string{one}, want: "f1 reclaim 1", refusals: []string{short(2)}, borrows: true,
		},
		"nobody can be preempted": {
			edit:    func(w *world) { w.NoPreemption, w.NoReclaim = &trace.Reach{Within: "Never"}, true },
			flavors: []grade{{Reclaim, 0}, {Fit, 0}}, want: "f2 fit 0", refusals: []string{reach(1)},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Policy = tc.policy
			w.add("gpu", flavors("f1", "f2", "f3")[:len(tc.flavors)], tc.flavors...)
			if tc.borrows {
				w.cells[w.mid] = w.cells[w.Node]
				delete(w.cells, w.Node)
			}
			if tc.edit != nil {
				tc.edit(w)
			}
			w.recompute()
			asked := w.listen()
			a := w.assign(podSet("main", w.ask("gpu")))
			r := a.PodSets[0].Resources[0]
			if got := fmt.Sprintf("%s %s %d", w.Table.Pair(r.FR).Flavor, r.Mode, r.Level); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if diff := cmp.Diff(append([]string{}, tc.asked...), *asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.refusals, texts(a)); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
		})
	}
}

// TestQuestion: one question is about all that is short of a flavor, with the flavors picked
// before. spec: 10 §6 #30.
func TestQuestion(t *testing.T) {
	free, won, never := grade{Fit, 0}, grade{Preempt, 0}, grade{NoFit, 0}
	tests := map[string]struct {
		acc, gpu grade // of one flavor for both, or of a flavor each
		groups   bool  // a resource group each
		sets     int   // of pods, with half of the requests each, when more than one
		asked    []string
	}{
		"both are short":          {acc: won, gpu: won, asked: []string{"f/acc=10 f/gpu=10; short f/acc f/gpu"}},
		"one fits":                {acc: free, gpu: won, asked: []string{"f/acc=10 f/gpu=10; short f/gpu"}},
		"one never does":          {acc: won, gpu: never},
		"in turn":                 {acc: won, gpu: won, groups: true, asked: []string{"c/acc=10; short c/acc", "c/acc=10 g/gpu=10; short g/gpu; in all c/acc g/gpu"}},
		"the first fits":          {acc: free, gpu: won, groups: true, asked: []string{"c/acc=10 g/gpu=10; short g/gpu"}},
		"two pod sets":            {acc: won, gpu: won, sets: 2, asked: []string{"f/acc=5 f/gpu=5; short f/acc f/gpu", "f/acc=10 f/gpu=10; short f/acc f/gpu"}},
		"two pod sets, one short": {acc: won, gpu: free, sets: 2, asked: []string{"f/acc=5 f/gpu=5; short f/acc", "f/acc=10 f/gpu=10; short f/acc"}},
		"two groups, of both": {acc: won, gpu: won, groups: true, sets: 2, asked: []string{
			"c/acc=5; short c/acc", "c/acc=5 g/gpu=5; short g/gpu; in all c/acc g/gpu",
			"c/acc=10 g/gpu=5; short c/acc; in all c/acc g/gpu", "c/acc=10 g/gpu=10; short g/gpu; in all c/acc g/gpu",
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			if tc.groups {
				w.add("acc", flavors("c"), tc.acc)
				w.add("gpu", flavors("g"), tc.gpu)
			} else {
				w.Groups = []Group{{
					Resources: []resource.ID{w.Table.ID("acc"), w.Table.ID("gpu")},
					Offers:    []Offer{{&Flavor{Name: "f"}, []resource.FR{w.offer("f", "acc", tc.acc), w.offer("f", "gpu", tc.gpu)}}},
				}}
			}
			w.recompute()
			asked := w.listen()
			podSets := []workload.PodSet{podSet("a", w.ask("acc"), w.ask("gpu"))}
			if tc.sets == 2 {
				for i := range podSets[0].Requests {
					podSets[0].Requests[i].Amount = 5
				}
				podSets = append(podSets, podSets[0])
				podSets[1].Name = "b"
			}
			a := w.assign(podSets...)
			if diff := cmp.Diff(append([]string{}, tc.asked...), *asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if tc.asked == nil {
				if got := len(a.Refusals); got != 2 || a.Mode != NoFit {
					t.Errorf("%s, with %d refusals, not one for each resource", a.Mode, got)
				}
				return
			}
			if last := w.question; !last.Requests.Equal(a.Usage) || !slices.Equal(last.Need, a.Needs(nil)) {
				t.Errorf("the last question was about %v and %v of an assignment of %v and %v", last.Requests, last.Need, a.Usage, a.Needs(nil))
			}
		})
	}
}
