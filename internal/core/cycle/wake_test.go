package cycle

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestWake: in cohorts of two levels with lending and borrowing limits, after any sequence of arrivals, departures and edits of quota no workload
// is inadmissible that an evaluation would admit.
func TestWake(t *testing.T) {
	resources := []string{"cpu", "gpu"}
	rapid.Check(t, func(t *rapid.T) {
		w := NewWorld(Options{})
		amount := func(most int, name string) resource.Amount {
			return resource.Amount(rapid.IntRange(0, most).Draw(t, name))
		}
		cells := func() (out []quota.Cell) {
			for _, of := range resources {
				c := quota.Cell{FR: w.Table.FR("f", of), Nominal: amount(4, "nominal"), Borrow: quota.NoLimit, Lend: quota.NoLimit}
				if rapid.IntRange(0, 2).Draw(t, "limits") == 0 {
					c.Borrow = amount(3, "borrow")
				}
				if rapid.IntRange(0, 3).Draw(t, "keeps") == 0 {
					c.Lend = min(c.Nominal, amount(3, "lend"))
				}
				out = append(out, c)
			}
			return out
		}
		root, below := w.Quota.Add("root", true), w.Quota.Add("below", true)
		w.Quota.SetParent(below, root)
		w.Quota.SetQuota(below, cells())
		var queues []*Queue
		for i := range rapid.IntRange(2, 5).Draw(t, "queues") {
			q := &Queue{Name: fmt.Sprint("q", i), Node: w.Quota.Add(fmt.Sprint("q", i), false), Namespaces: []workload.Term{{}}}
			for _, of := range resources {
				q.Groups = append(q.Groups, flavor.Group{
					Resources: []resource.ID{w.Table.ID(of)},
					Offers:    []flavor.Offer{{Flavor: &flavor.Flavor{Name: "f"}, FRs: []resource.FR{w.Table.FR("f", of)}}},
				})
			}
			w.Quota.SetParent(q.Node, []quota.Node{root, below}[rapid.IntRange(0, 1).Draw(t, "parent")])
			w.Quota.SetQuota(q.Node, cells())
			w.AddQueue(q)
			w.Edited(q.Node)
			queues = append(queues, q)
		}
		var all []*workload.Workload
		for i := range rapid.IntRange(1, 60).Draw(t, "events") {
			q := queues[rapid.IntRange(0, len(queues)-1).Draw(t, "queue")]
			switch event := rapid.IntRange(0, 7).Draw(t, "event"); {
			case event < 4:
				cpu, gpu := amount(4, "cpu"), amount(4, "gpu")
				wl := &workload.Workload{
					UID: fmt.Sprintf("w%02d", i), Key: fmt.Sprintf("default/w%02d", i), Queue: q.Index, Class: 100*q.Index + int32(10*cpu+gpu), Since: workload.Instant(i),
					PodSets: []workload.PodSet{{Name: "main", Count: 1, Requests: []workload.Request{
						{Resource: w.Table.ID("cpu"), Amount: cpu}, {Resource: w.Table.ID("gpu"), Amount: gpu},
					}}},
				}
				w.Enqueue(wl)
				all = append(all, wl)
			case event < 7:
				if len(all) > 0 {
					at := rapid.IntRange(0, len(all)-1).Draw(t, "workload")
					w.Release(all[at])
					w.Dequeue(all[at])
					all = slices.Delete(all, at, at+1)
				}
			default:
				w.Quota.SetQuota(q.Node, cells())
				w.Edited(q.Node)
			}
			r := w.Step(2, 1000)
			w.SettleAdmissions(2, r.More)
			for _, q := range queues {
				for _, wl := range q.Pending.All() {
					if attempt := w.Explain(wl); len(attempt.Refusals) == 0 {
						t.Fatalf("%s would be admitted, and waits", wl.Key)
					}
				}
			}
		}
	})
}

// TestWakeOfNone: a release in a full cohort looks at no other queue, and one that leaves enough for some queue wakes it.
func TestWakeOfNone(t *testing.T) {
	for name, tc := range map[string]struct {
		least resource.Amount // as if the queues waited for so much
		woken int
	}{"enough": {8, 3}, "not enough": {9, 0}} {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(Options{})
			cohort := w.Quota.Add("cohort", true)
			var queues []*Queue
			for i := range 4 {
				queues = append(queues, addQueue(w, fmt.Sprint("q", i), cohort, 2))
			}
			small, large := enqueue(w, queues[0], "small", 1, 1), enqueue(w, queues[0], "large", 2, 7)
			for r := w.Step(1, 1000); r.More; r = w.Step(1, 1000) {
			}
			for i, q := range queues[1:] {
				enqueue(w, q, fmt.Sprint("wide", i), int32(10+i), 8)
			}
			w.Step(1, 1000)
			fr, thresholds := w.Table.FR("f", "gpu"), queues[0].tree.thresholds
			w.Release(small)
			if got := thresholds.Least(fr); got != 8 {
				t.Fatalf("the least threshold is %d, want 8", got)
			}
			thresholds.SetLeast(fr, tc.least)
			w.Release(large)
			woken := 0
			for _, q := range queues {
				woken += len(q.Pending.Released())
			}
			if woken != tc.woken {
				t.Errorf("%d queues know of the release, want %d", woken, tc.woken)
			}
		})
	}
}

// TestWakeBeyondOwnLimit: a queue at its own borrowing limit waits for releases of its own alone, and for others again once that limit is no longer in
// the way.
func TestWakeBeyondOwnLimit(t *testing.T) {
	w := NewWorld(Options{})
	cohort := w.Quota.Add("cohort", true)
	limited, lender, other := addQueue(w, "limited", cohort, 0), addQueue(w, "lender", cohort, 10), addQueue(w, "other", cohort, 0)
	fr := w.Table.FR("f", "gpu")
	w.Quota.SetQuota(limited.Node, []quota.Cell{{FR: fr, Borrow: 6, Lend: quota.NoLimit}})
	w.Edited(limited.Node)
	own, lent, more := enqueue(w, limited, "own", 1, 2), enqueue(w, lender, "lent", 2, 2), enqueue(w, lender, "more", 3, 6)
	for r := w.Step(1, 1000); r.More; r = w.Step(1, 1000) {
	}
	enqueue(w, limited, "five", 4, 5)
	enqueue(w, other, "nine", 5, 9)
	w.Step(1, 1000)
	thresholds := limited.tree.thresholds
	w.Release(lent) // two are free, and limited may use four more
	if got := thresholds.Least(fr); got != 5 {
		t.Fatalf("the least threshold is %d at first, want 5", got)
	}
	thresholds.SetLeast(fr, 9) // as if its own limit had been in the way
	w.Release(own)             // four are free
	if got := thresholds.Least(fr); got != 5 {
		t.Errorf("the least threshold is %d after its own release, want 5", got)
	}
	w.Release(more)
	if len(limited.Pending.Released()) != 1 {
		t.Error("it does not know of the release")
	}
}

// TestWakeBelowLimit: a release below a cohort at its borrowing limit wakes the other queues of that cohort.
func TestWakeBelowLimit(t *testing.T) {
	w := NewWorld(Options{})
	cohort, below := w.Quota.Add("cohort", true), w.Quota.Add("below", true)
	fr := w.Table.FR("f", "gpu")
	w.Quota.SetParent(below, cohort)
	w.Quota.SetQuota(below, []quota.Cell{{FR: fr, Borrow: 6, Lend: quota.NoLimit}})
	a, b, lender := addQueue(w, "a", below, 0), addQueue(w, "b", below, 0), addQueue(w, "lender", cohort, 10)
	first, second, lent := enqueue(w, b, "first", 1, 2), enqueue(w, b, "second", 2, 4), enqueue(w, lender, "lent", 3, 1)
	for r := w.Step(1, 1000); r.More; r = w.Step(1, 1000) {
	}
	enqueue(w, a, "four", 4, 4)
	w.Step(1, 1000)
	w.Release(lent)
	w.Release(first)
	if len(a.Pending.Released()) > 0 {
		t.Error("two are enough for it")
	}
	w.Release(second)
	if len(a.Pending.Released()) != 1 {
		t.Error("it does not know of the release")
	}
}
