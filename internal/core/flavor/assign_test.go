package flavor

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestSearch is the table of spec 10 §4.6.4 (example 18) and its last sentence.
func TestSearch(t *testing.T) {
	defaults := Fungibility{}
	tryTry := Fungibility{TryNextWhenBorrowing: true}
	tryTryOver := Fungibility{TryNextWhenBorrowing: true, PreemptionOverBorrowing: true}
	rows := map[string]struct {
		flavors [2]grade
		want    map[Fungibility]string
	}{
		"fit 1, fit 0":           {[2]grade{{Fit, 1}, {Fit, 0}}, map[Fungibility]string{defaults: "f1", tryTry: "f2", tryTryOver: "f2"}},
		"reclaim 0, fit 1":       {[2]grade{{Reclaim, 0}, {Fit, 1}}, map[Fungibility]string{defaults: "f2", tryTry: "f2", tryTryOver: "f1"}},
		"preempt 0, reclaim 1":   {[2]grade{{Preempt, 0}, {Reclaim, 1}}, map[Fungibility]string{defaults: "f2", tryTry: "f2", tryTryOver: "f1"}},
		"reclaim 0, reclaim 0":   {[2]grade{{Reclaim, 0}, {Reclaim, 0}}, map[Fungibility]string{defaults: "f1", tryTry: "f1", tryTryOver: "f1"}},
		"no candidates 0, fit 2": {[2]grade{{NoCandidates, 0}, {Fit, 2}}, map[Fungibility]string{defaults: "f2", tryTry: "f2", tryTryOver: "f2"}},
		"no candidates 0, no fit": {
			[2]grade{{NoCandidates, 0}, {NoFit, 0}},
			map[Fungibility]string{defaults: "f1", tryTry: "f1", tryTryOver: "f1"},
		},
		"reclaim 0, fit 1, content with preemption": {
			[2]grade{{Reclaim, 0}, {Fit, 1}},
			map[Fungibility]string{{StopWhenPreempting: true}: "f1"},
		},
		"off: content with the first fit":    {[2]grade{{Fit, 2}, {Fit, 0}}, map[Fungibility]string{{Off: true, TryNextWhenBorrowing: true}: "f1"}},
		"off: never content with preemption": {[2]grade{{Reclaim, 0}, {Fit, 1}}, map[Fungibility]string{{Off: true, StopWhenPreempting: true}: "f2"}},
		"off: mode before level":             {[2]grade{{Preempt, 0}, {Reclaim, 2}}, map[Fungibility]string{{Off: true, PreemptionOverBorrowing: true}: "f2"}},
		"off: level is nothing":              {[2]grade{{Reclaim, 2}, {Reclaim, 0}}, map[Fungibility]string{{Off: true}: "f1"}},
	}
	for name, row := range rows {
		for policy, want := range row.want {
			t.Run(fmt.Sprintf("%s/%+v", name, policy), func(t *testing.T) {
				w := newWorld()
				w.Policy = policy
				gpu := w.Table.ID("gpu")
				g := Group{Resources: []resource.ID{gpu}}
				for i, grd := range row.flavors {
					flavor := fmt.Sprint("f", i+1)
					g.Offers = append(g.Offers, Offer{Flavor: &Flavor{Name: flavor}, FRs: []resource.FR{w.offer(flavor, "gpu", grd)}})
				}
				w.Groups = []Group{g}
				w.recompute()
				a := w.assign(podSet("main", workload.Request{Resource: gpu, Amount: 10}))
				if len(a.PodSets) != 1 {
					t.Fatalf("no flavor: %v", a.Refusals)
				}
				if got := w.Table.Pair(a.PodSets[0].Resources[0].FR).Flavor; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
	}
}

// TestWorstResource: a flavor is as good as the resource it is worst for, in the order
// in which flavors are compared.
func TestWorstResource(t *testing.T) {
	over := Fungibility{PreemptionOverBorrowing: true}
	tests := map[string]struct {
		policy     Fungibility
		a, b, want grade
	}{
		"borrowing beats preemption":  {Fungibility{}, grade{Fit, 1}, grade{Reclaim, 0}, grade{Reclaim, 0}},
		"preemption beats borrowing":  {over, grade{Fit, 1}, grade{Reclaim, 0}, grade{Fit, 1}},
		"nobody to preempt":           {over, grade{Fit, 2}, grade{NoCandidates, 0}, grade{NoCandidates, 0}},
		"once no fit, always no fit":  {Fungibility{}, grade{NoFit, 0}, grade{Fit, 0}, grade{NoFit, 0}},
		"no fit in the second":        {Fungibility{}, grade{Fit, 0}, grade{NoFit, 1}, grade{NoFit, 1}},
		"farther of two that borrow":  {Fungibility{}, grade{Fit, 1}, grade{Fit, 2}, grade{Fit, 2}},
		"a victim of one's own queue": {Fungibility{}, grade{Reclaim, 2}, grade{Preempt, 0}, grade{Preempt, 0}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.policy.worst(tc.a, tc.b); got != tc.want {
				t.Errorf("worst = %v, want %v", got, tc.want)
			}
			if got := tc.policy.worst(tc.b, tc.a); got != tc.want {
				t.Errorf("worst, the other way round = %v, want %v", got, tc.want)
			}
		})
	}
}

// TestCheck is the decision of spec 10 §4.6.3 for one flavor-resource, up to the oracle.
func TestCheck(t *testing.T) {
	type setting struct {
		nominal, inCohort, used, borrow resource.Amount
		asked                           resource.Amount
		whileBorrowing                  bool
	}
	tests := map[string]struct {
		setting
		want   grade
		reason trace.Reason
	}{
		"fits":                        {setting{nominal: 10, borrow: -1, asked: 10}, grade{Fit, 0}, ""},
		"borrows":                     {setting{nominal: 4, inCohort: 6, borrow: -1, asked: 10}, grade{Fit, 1}, ""},
		"more than there is":          {setting{nominal: 4, inCohort: 5, borrow: -1, asked: 10}, grade{NoFit, 0}, trace.ExceedsMaxQuota},
		"more than may be borrowed":   {setting{nominal: 4, inCohort: 60, borrow: 5, asked: 10}, grade{NoFit, 0}, trace.ExceedsMaxQuota},
		"own quota in use":            {setting{nominal: 10, used: 1, borrow: -1, asked: 10}, grade{NoCandidates, 2}, trace.WaitingForQuota},
		"larger than its own":         {setting{nominal: 4, inCohort: 6, used: 1, borrow: -1, asked: 10}, grade{NoFit, 2}, trace.WaitingForQuota},
		"larger, may while borrowing": {setting{nominal: 4, inCohort: 6, used: 1, borrow: -1, asked: 10, whileBorrowing: true}, grade{NoCandidates, 2}, trace.WaitingForQuota},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			fr := w.Table.FR("f", "gpu")
			w.cells[w.Node] = []quota.Cell{{FR: fr, Nominal: tc.nominal, Borrow: tc.borrow, Lend: quota.NoLimit}}
			w.cells[w.mid] = []quota.Cell{{FR: fr, Nominal: tc.inCohort, Borrow: quota.NoLimit, Lend: quota.NoLimit}}
			w.used = w.used.Plus(fr, tc.used)
			w.PreemptsWhileBorrowing = tc.whileBorrowing
			w.recompute()
			got, reason := w.check(fr, tc.asked)
			if got != tc.want || reason != tc.reason {
				t.Errorf("check = %v, %q, want %v, %q", got, reason, tc.want, tc.reason)
			}
		})
	}
}

// TestReason is spec 10 §4.6.7: alternatives report the least severe reason, resources
// of one flavor the most severe.
func TestReason(t *testing.T) {
	missing := &Flavor{Name: "missing", Missing: true}
	tests := map[string]struct {
		offers func(*world) Offer
		want   trace.Reason
	}{
		"only a missing flavor": {func(w *world) Offer {
			return Offer{missing, []resource.FR{w.offer("missing", "cpu", grade{Fit, 0}), w.offer("missing", "gpu", grade{Fit, 0})}}
		}, trace.NoMatchingFlavor},
		"too large": {func(w *world) Offer {
			return Offer{&Flavor{Name: "a"}, []resource.FR{w.offer("a", "cpu", grade{NoFit, 0}), w.offer("a", "gpu", grade{Fit, 0})}}
		}, trace.ExceedsMaxQuota},
		"borrowed by others, and too large": {func(w *world) Offer {
			fr := w.Table.FR("b", "gpu")
			w.cells[w.mid] = append(w.cells[w.mid], quota.Cell{FR: fr, Nominal: 10, Borrow: -1, Lend: -1})
			w.used = w.used.Plus(fr, 1)
			return Offer{&Flavor{Name: "b"}, []resource.FR{w.offer("b", "cpu", grade{NoFit, 0}), fr}}
		}, trace.ExceedsMaxQuota},
		"borrowed by others": {func(w *world) Offer {
			fr := w.Table.FR("c", "gpu")
			w.cells[w.mid] = append(w.cells[w.mid], quota.Cell{FR: fr, Nominal: 10, Borrow: -1, Lend: -1})
			w.used = w.used.Plus(fr, 1)
			return Offer{&Flavor{Name: "c"}, []resource.FR{w.offer("c", "cpu", grade{Fit, 0}), fr}}
		}, trace.WaitingForQuota},
	}
	ask := func(t *testing.T, names ...string) *Assignment {
		w := newWorld()
		cpu, gpu := w.Table.ID("cpu"), w.Table.ID("gpu")
		g := Group{Resources: []resource.ID{cpu, gpu}}
		for _, name := range names {
			g.Offers = append(g.Offers, tests[name].offers(w))
		}
		w.Groups = []Group{g}
		w.recompute()
		a := w.assign(podSet("main", workload.Request{Resource: cpu, Amount: 10}, workload.Request{Resource: gpu, Amount: 10}))
		if a.Mode != NoFit || len(a.Usage.Quota) > 0 || len(a.PodSets) > 0 {
			t.Fatalf("got %v", a)
		}
		return a
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if a := ask(t, name); a.Reason != tc.want || len(a.Refusals) == 0 {
				t.Errorf("reason %q, want %q; refusals %v", a.Reason, tc.want, a.Refusals)
			}
		})
	}
	if a := ask(t, "only a missing flavor", "too large", "borrowed by others"); a.Reason != trace.WaitingForQuota {
		t.Errorf("of three alternatives %q was reported, want the least severe", a.Reason)
	}
	if a := ask(t); a.Reason != trace.NoMatchingFlavor {
		t.Errorf("without any flavor %q was reported", a.Reason)
	}
}

// TestRequests is spec 10 §4.2: pods, zeros, and resources that no group covers.
func TestRequests(t *testing.T) {
	type got struct {
		Mode  Mode
		Usage string
		Given string // every resource that got a flavor
	}
	tests := map[string]struct {
		ignore   bool
		requests map[string]resource.Amount
		want     got
	}{
		"pods are counted":            {false, map[string]resource.Amount{"gpu": 2}, got{Fit, "f/gpu=2 f/pods=3", "gpu pods"}},
		"pods are not requested":      {false, map[string]resource.Amount{"gpu": 2, "pods": 9}, got{Fit, "f/gpu=2 f/pods=3", "gpu pods"}},
		"pods even without a request": {false, nil, got{Fit, "f/pods=3", "pods"}},
		"zero of something covered":   {false, map[string]resource.Amount{"gpu": 0}, got{Fit, "f/pods=3", "gpu pods"}},
		"zero of something uncovered": {false, map[string]resource.Amount{"lic": 0}, got{Fit, "f/pods=3", "pods"}},
		"uncovered":                   {false, map[string]resource.Amount{"gpu": 1, "lic": 1}, got{NoFit, "", ""}},
		"uncovered and to be ignored": {true, map[string]resource.Amount{"gpu": 1, "lic": 1}, got{Fit, "f/gpu=1 f/pods=3", "gpu pods"}},
		"more than there is":          {false, map[string]resource.Amount{"gpu": 11}, got{NoFit, "", ""}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.IgnoreUndeclared = tc.ignore
			g := Group{Resources: []resource.ID{w.Table.ID("gpu"), w.Table.ID("pods")}}
			g.Offers = []Offer{{&Flavor{Name: "f"}, []resource.FR{w.offer("f", "gpu", grade{Fit, 0}), w.offer("f", "pods", grade{Fit, 0})}}}
			w.Groups = []Group{g}
			w.recompute()
			ps := workload.PodSet{Name: "main", Count: 3}
			for _, name := range []string{"gpu", "lic", "pods"} {
				if amount, ok := tc.requests[name]; ok {
					ps.Requests = append(ps.Requests, workload.Request{Resource: w.Table.ID(name), Amount: amount})
				}
			}
			a := w.assign(ps)
			have := got{a.Mode, a.Usage.Quota.Format(w.Table), ""}
			for _, ps := range a.PodSets {
				for i, r := range ps.Resources {
					if i > 0 {
						have.Given += " "
					}
					have.Given += w.Table.Pair(r.FR).Resource
				}
			}
			if diff := cmp.Diff(tc.want, have); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
