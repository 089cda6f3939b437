package cycle

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Scenarios of whole cycles are scripts of package state; these tests are about the rest.

// addQueue makes an open queue of n gpus, alone or below a cohort.
func addQueue(w *World, name string, parent quota.Node, n resource.Amount) *Queue {
	gpu, fr := w.Table.ID("gpu"), w.Table.FR("f", "gpu")
	q := &Queue{
		Name: name, Node: w.Quota.Add(name, false), Namespaces: []workload.Term{{}},
		Groups: []flavor.Group{{
			Resources: []resource.ID{gpu},
			Offers:    []flavor.Offer{{Flavor: &flavor.Flavor{Name: "f"}, FRs: []resource.FR{fr}}},
		}},
	}
	w.Quota.SetParent(q.Node, parent)
	w.Quota.SetQuota(q.Node, []quota.Cell{{FR: fr, Nominal: n, Borrow: quota.NoLimit, Lend: quota.NoLimit}})
	w.AddQueue(q)
	w.Edited(q.Node)
	return q
}

func enqueue(w *World, q *Queue, name string, class int32, gpus resource.Amount) *workload.Workload {
	wl := &workload.Workload{UID: name, Key: "default/" + name, Queue: q.Index, Class: class, PodSets: []workload.PodSet{{
		Name: "main", Count: 1, Requests: []workload.Request{{Resource: w.Table.ID("gpu"), Amount: gpus}},
	}}}
	w.Enqueue(wl)
	return wl
}

func verdicts(r Result) (out []string) {
	for _, d := range r.Decisions {
		out = append(out, d.Workload.UID+" "+string(d.Attempt.Verdict))
	}
	return out
}

// TestCompare is the order of heads, spec 10 §4.5 step 4.
func TestCompare(t *testing.T) {
	head := func(level int, priority int64, since workload.Instant, queue, uid string) *entry {
		return &entry{
			q: &Queue{Name: queue}, wl: &workload.Workload{UID: uid, Priority: priority, Since: since},
			got: flavor.Assignment{Level: level},
		}
	}
	inOrder := []*entry{
		head(0, 1, 9, "z", "1"),
		head(0, 0, 1, "z", "1"),
		head(1, 9, 1, "z", "1"),
		head(1, 9, 2, "a", "2"),
		head(1, 9, 2, "b", "1"),
		head(2, 9, 0, "a", "0"),
	}
	shuffled := []*entry{inOrder[3], inOrder[0], inOrder[5], inOrder[2], inOrder[4], inOrder[1]}
	slices.SortFunc(shuffled, NewWorld(Defaults()).compare)
	for i := range inOrder {
		if shuffled[i] != inOrder[i] {
			t.Errorf("place %d is taken by %+v of %s", i, shuffled[i].wl, shuffled[i].q.Name)
		}
	}
}

// TestEditOfAnotherTree: pending workloads are evaluated again after an edit of its own tree,
// and not for one elsewhere.
func TestEditOfAnotherTree(t *testing.T) {
	o := Defaults()
	o.EditWindow = 0
	w := NewWorld(o)
	a := addQueue(w, "a", quota.None, 1)
	b := addQueue(w, "b", quota.None, 1)
	a.Strict = true
	enqueue(w, a, "large", 1, 2)
	enqueue(w, b, "larger", 2, 3)
	want := []string{"large waits", "larger waits"}
	if diff := cmp.Diff(want, verdicts(w.Step(1, 10))); diff != "" {
		t.Fatalf("first looks (-want +got):\n%s", diff)
	}
	w.Edited(b.Node)
	if diff := cmp.Diff([]string{"larger waits"}, verdicts(w.Step(2, 10))); diff != "" {
		t.Errorf("after an edit of b (-want +got):\n%s", diff)
	}
	w.Edited(a.Node, b.Node)
	if diff := cmp.Diff(want, verdicts(w.Step(3, 10))); diff != "" {
		t.Errorf("after an edit of everything (-want +got):\n%s", diff)
	}
}

// TestNothingToDo: without an event a step costs no cycle, and a budget of none is kept.
func TestNothingToDo(t *testing.T) {
	w := NewWorld(Defaults())
	q := addQueue(w, "q", quota.None, 4)
	enqueue(w, q, "a", 1, 3)
	enqueue(w, q, "b", 2, 3)
	if r := w.Step(1, 0); !r.More || r.Cycles != 0 || len(r.Decisions) != 0 {
		t.Errorf("without a budget: %+v", r)
	}
	if diff := cmp.Diff([]string{"a admitted", "b waits"}, verdicts(w.Step(1, 10))); diff != "" {
		t.Errorf("with a budget (-want +got):\n%s", diff)
	}
	if r := w.Step(2, 10); r.More || r.Cycles != 0 {
		t.Errorf("again: %+v", r)
	}
}

// TestCyclesOfTrees: trees take their turns one after another, and their cycles count as if they had run side by side.
func TestCyclesOfTrees(t *testing.T) {
	w := NewWorld(Defaults())
	for _, name := range []string{"b", "a"} {
		q := addQueue(w, name, quota.None, 3)
		enqueue(w, q, name+"1", 1, 2)
		enqueue(w, q, name+"2", 2, 1)
		enqueue(w, q, name+"3", 3, 1)
	}
	r := w.Step(1, 10)
	if diff := cmp.Diff([]string{"a1 admitted", "b1 admitted", "a2 admitted", "b2 admitted", "a3 waits", "b3 waits"}, verdicts(r)); diff != "" {
		t.Errorf("by cycle, and then by tree (-want +got):\n%s", diff)
	}
	if r.Cycles != 3 || r.Admitting != 2 {
		t.Errorf("%d cycles of which %d admitted a workload; want 3 and 2", r.Cycles, r.Admitting)
	}
}

// TestRemovedQueue: its reservations are free for the rest of the cohort.
func TestRemovedQueue(t *testing.T) {
	w := NewWorld(Defaults())
	c := w.Quota.Add("c", true)
	w.Quota.SetQuota(c, []quota.Cell{{FR: w.Table.FR("f", "gpu"), Nominal: 4, Borrow: quota.NoLimit, Lend: quota.NoLimit}})
	a, b := addQueue(w, "a", c, 0), addQueue(w, "b", c, 0)
	first := enqueue(w, a, "first", 1, 4)
	w.Step(1, 10)
	waiting := enqueue(w, a, "waiting", 2, 1)
	enqueue(w, b, "second", 3, 4)
	w.Step(2, 10)
	if line := w.RemoveQueue(a); len(line) != 1 || line[0] != waiting || first.Reserved {
		t.Errorf("removing the queue left %v in line, and %s reserved: %v", line, first.UID, first.Reserved)
	}
	w.Quota.Remove(a.Node)
	w.Edited(a.Node)
	r := w.Step(3, 10)
	if len(r.Decisions) != 1 || r.Decisions[0].Attempt.Verdict != trace.Admitted || r.Decisions[0].Workload.UID != "second" {
		t.Errorf("after that: %v", verdicts(r))
	}
}

// TestQueueOfVictimRemoved: a preemptor keeps its nomination when the queue of a victim that has left is removed.
func TestQueueOfVictimRemoved(t *testing.T) {
	w := NewWorld(Defaults())
	c := w.Quota.Add("c", true)
	owner, borrower, other := addQueue(w, "owner", c, 4), addQueue(w, "borrower", c, 0), addQueue(w, "other", c, 0)
	owner.Preemption = preempt.Policy{Reclaim: preempt.Any}
	left := enqueue(w, borrower, "left", 1, 2)
	enqueue(w, other, "leaving", 1, 2)
	w.Step(1, 10)
	w.SettleAdmissions(1, false)
	enqueue(w, owner, "preemptor", 2, 4)
	if diff := cmp.Diff([]string{"preemptor preempts"}, verdicts(w.Step(2, 10))); diff != "" {
		t.Fatalf("decisions (-want +got):\n%s", diff)
	}
	w.Release(left)
	w.RemoveQueue(borrower)
	w.Quota.Remove(borrower.Node)
	w.Edited(borrower.Node)
	w.Step(3, 10)
	if n := owner.nomination; n == nil || n.since != 2 {
		t.Errorf("the nomination is %+v, want that of time 2", n)
	}
}

// TestSearches: victims are looked for once for each flavor that is worth it, and not
// again for all that was picked, unless something came to it.
func TestSearches(t *testing.T) {
	ask := func(w *World, name string, pods int32, names ...string) workload.PodSet {
		ps := workload.PodSet{Name: name, Count: pods}
		for _, res := range names {
			ps.Requests = append(ps.Requests, workload.Request{Resource: w.Table.ID(res), Amount: 2})
		}
		return ps
	}
	tests := map[string]struct {
		reclaim preempt.Rule
		groups  [][]string // resources, of three flavors each
		free    string     // the only resource of which there is enough
		sets    func(*World) []workload.PodSet
		want    int
		victims int
	}{
		"one resource": {
			groups: [][]string{{"gpu"}}, want: 1, victims: 1,
			sets: func(w *World) []workload.PodSet { return []workload.PodSet{ask(w, "main", 1, "gpu")} },
		},
		"three resources": {
			groups: [][]string{{"acc", "cpu", "gpu"}}, want: 1, victims: 1,
			sets: func(w *World) []workload.PodSet { return []workload.PodSet{ask(w, "main", 1, "acc", "cpu", "gpu")} },
		},
		"others might be asked instead": {
			groups: [][]string{{"acc", "cpu", "gpu"}}, reclaim: preempt.Any, want: 3, victims: 1,
			sets: func(w *World) []workload.PodSet { return []workload.PodSet{ask(w, "main", 1, "acc", "cpu", "gpu")} },
		},
		"two resource groups": {
			groups: [][]string{{"cpu"}, {"gpu"}}, want: 2, victims: 2,
			sets: func(w *World) []workload.PodSet { return []workload.PodSet{ask(w, "main", 1, "cpu", "gpu")} },
		},
		"of which the second fits": {
			groups: [][]string{{"cpu"}, {"gpu"}}, free: "gpu", want: 2, victims: 1,
			sets: func(w *World) []workload.PodSet { return []workload.PodSet{ask(w, "main", 1, "cpu", "gpu")} },
		},
		"two pod sets": {
			groups: [][]string{{"cpu", "gpu"}}, want: 2, victims: 2,
			sets: func(w *World) []workload.PodSet {
				return []workload.PodSet{ask(w, "driver", 1, "cpu", "gpu"), ask(w, "workers", 1, "cpu", "gpu")}
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(Defaults())
			c := w.Quota.Add("c", true)
			q := addQueue(w, "q", c, 0)
			q.Preemption = preempt.Policy{Within: preempt.LowerPriority, Reclaim: tc.reclaim}
			q.Groups = nil
			var cells []quota.Cell
			for i, resources := range tc.groups {
				var g flavor.Group
				for _, res := range resources {
					g.Resources = append(g.Resources, w.Table.ID(res))
				}
				for f := range 3 {
					o := flavor.Offer{Flavor: &flavor.Flavor{Name: fmt.Sprintf("g%df%d", i, f)}}
					var small resource.Vector // half of it
					for _, res := range resources {
						fr := w.Table.FR(o.Flavor.Name, res)
						o.FRs = append(o.FRs, fr)
						cells = append(cells, quota.Cell{FR: fr, Nominal: 4, Borrow: quota.NoLimit, Lend: quota.NoLimit})
						if res != tc.free {
							small = small.Plus(fr, 2)
						}
					}
					g.Offers = append(g.Offers, o)
					for n := range 2 {
						uid := fmt.Sprintf("%s-%d", o.Flavor.Name, n)
						w.Reserve(&workload.Workload{
							UID: uid, Key: "default/" + uid, Queue: q.Index, Reservation: workload.Reservation{ReservedAt: 1, Usage: ledger.Usage{Quota: small}},
						})
					}
				}
				q.Groups = append(q.Groups, g)
			}
			w.Quota.SetQuota(q.Node, cells)
			w.Edited(q.Node)
			searches := 0
			holders := w.victims.Holders
			w.victims.Holders = func(n quota.Node) *preempt.Holders {
				searches++
				return holders(n)
			}
			w.Enqueue(&workload.Workload{UID: "p", Key: "default/p", Queue: q.Index, Priority: 1, PodSets: tc.sets(w)})
			r := w.Step(2, 10)
			if len(r.Decisions) != 1 || len(r.Decisions[0].Evict) != tc.victims || searches != tc.want {
				t.Errorf("%v with %d victims in %d searches, want %d in %d",
					verdicts(r), len(r.Decisions[0].Evict), searches, tc.victims, tc.want)
			}
		})
	}
}
