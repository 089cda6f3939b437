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
	fr := w.Table.FR("f", "gpu")
	w.Release(small)
	if got := queues[0].tree.thresholds.Least(fr); got != 8 {
		t.Fatalf("the least threshold is %d, want 8", got)
	}
	for _, q := range queues {
		if len(q.Pending.Released()) > 0 {
			t.Errorf("%s has a release to deal with", q.Name)
		}
	}
	w.Release(large)
	for _, q := range queues[1:] {
		if len(q.Pending.Released()) != 1 {
			t.Errorf("%s does not know of the release", q.Name)
		}
	}
}
