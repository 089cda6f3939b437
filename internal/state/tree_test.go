package state

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// checkTrees: trees have the figures of the world.
func (m *machine) checkTrees(t *rapid.T, got *Model) {
	m.s.world.ApplyEdits()
	f := m.s.world.Quota
	for name, q := range m.s.queues {
		tree := got.Tree(name)
		if inCircle := f.Root(q.q.Node) == quota.None; inCircle != (tree == nil) {
			t.Fatalf("%s is below a cycle: %v, and has a tree: %v", name, inCircle, tree != nil)
		}
		if tree == nil {
			continue
		}
		n := q.q.Node
		for _, level := range tree.Levels {
			if level.Name != f.Name(n) || level.Cohort != f.IsCohort(n) {
				t.Fatalf("%s is below %s, the tree has %+v", name, f.Name(n), level)
			}
			for _, c := range level.Cells {
				fr := m.s.world.Table.FR(c.Flavor, c.Resource)
				want := levelCell{
					Flavor: c.Flavor, Resource: c.Resource, Nominal: f.Nominal(n, fr), Borrow: f.BorrowLimit(n, fr), Lend: f.LendLimit(n, fr),
					Quota: f.Subtree(n, fr), Used: f.Usage(n, fr),
				}
				want.Borrowable = max(0, m.s.world.Ledger.Available(n, fr).Sub(max(0, want.Quota.Sub(want.Used))))
				if diff := gocmp.Diff(want, c); diff != "" {
					t.Fatalf("%s at %s (-world +tree):\n%s", name, level.Name, diff)
				}
			}
			n = f.Parent(n)
		}
		if n != quota.None {
			t.Fatalf("the tree of %s ends before %s", name, f.Name(n))
		}
	}
}

// borrowing is a world of two queues with 10 CPUs each in one cohort, of which the second lends 4. Workloads of the second use all of it and
// borrow 6: a1, a2 and so on with 4 CPUs each.
func borrowing() *State {
	s := New(Options{Options: cycle.Defaults()})
	s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(SetNamespace{Name: "ns", Labels: nil})
	s.Apply(SetCohort(Cohort{Name: "top"}))
	s.Apply(SetCohort(Cohort{Name: "both", Parent: "top"}))
	for name, lend := range map[string]resource.Amount{"mine": quota.NoLimit, "theirs": 4} {
		s.Apply(SetQueue(Queue{Name: name, Cohort: "both", Namespaces: []workload.Term{{}}, Groups: []Group{{
			Resources: []string{"cpu"},
			Flavors:   []FlavorQuota{{Flavor: "f", Resources: []Quota{{Resource: "cpu", Nominal: 10, Borrow: quota.NoLimit, Lend: lend}}}},
		}}}))
		s.Apply(SetLocalQueue(LocalQueue{Namespace: "ns", Name: name, Queue: name}))
	}
	for i := range 4 {
		uid := fmt.Sprint("a", i)
		s.Apply(SetWorkload(Workload{
			UID: uid, Namespace: "ns", Name: uid, Version: 1, LocalQueue: "theirs", Reserved: true, Admitted: true, Queue: "theirs",
			Held: []Held{{PodSet: "main", Flavor: "f", Resource: "cpu", Amount: 4}},
		}))
	}
	s.Step(1, math.MaxInt)
	return s
}

// The workloads that have to end for another are the first ones whose end leaves it enough, in the order of their ends.
func TestEnds(t *testing.T) {
	s := borrowing()
	late := map[string]workload.Instant{"a0": 40, "a1": 0, "a2": 20, "a3": 30}
	ends := func(w PendingWorkload) workload.Instant { return late[w.UID()] }
	before := s.Publish().Tree("mine").Levels
	for amount, want := range map[resource.Amount]string{
		4:  "", // 14 are shared, and 10 of them used
		5:  "a2",
		9:  "a2 a3",
		10: "a2 a3",
		14: "a2 a3 a0", // the rest is guaranteed to theirs
		15: "a2 a3 a0 short",
	} {
		tree := s.Publish().Tree("mine")
		first, enough, known := tree.Ends([]Held{{Flavor: "f", Resource: "cpu", Amount: amount}}, ends)
		var got []string
		for _, w := range first {
			got = append(got, w.UID())
		}
		if !enough {
			got = append(got, "short")
		}
		if text := strings.Join(got, " "); text != want || !known {
			t.Errorf("%d: %s, want %s", amount, text, want)
		}
		if diff := gocmp.Diff(before, tree.Levels); diff != "" {
			t.Errorf("the question changed the tree:\n%s", diff)
		}
	}
	if _, enough, _ := s.Publish().Tree("mine").Ends([]Held{{Flavor: "g", Resource: "cpu", Amount: 1}}, ends); enough {
		t.Error("a flavor without quota is enough")
	}
}

// Levels are from the queue to the root.
func TestLevels(t *testing.T) {
	s := borrowing()
	levels := s.Publish().Tree("mine").Levels
	var names []string
	for _, l := range levels {
		names = append(names, l.Name)
	}
	if !slices.Equal(names, []string{"mine", "both", "top"}) {
		t.Errorf("%v", names)
	}
	want := levelCell{Flavor: "f", Resource: "cpu", Nominal: 10, Borrow: quota.NoLimit, Lend: quota.NoLimit, Quota: 10}
	if diff := gocmp.Diff(want, levels[0].Cells[0]); diff != "" {
		t.Errorf("of the queue:\n%s", diff)
	}
	want = levelCell{Flavor: "f", Resource: "cpu", Borrow: quota.NoLimit, Lend: quota.NoLimit, Quota: 14, Used: 10}
	if diff := gocmp.Diff(want, levels[2].Cells[0]); diff != "" {
		t.Errorf("of the root:\n%s", diff)
	}
	if s.Publish().Tree("none") != nil {
		t.Error("a queue that does not exist has a tree")
	}
}

func BenchmarkTree(b *testing.B) {
	for _, queues := range []int{10, 1000} {
		b.Run(fmt.Sprint(queues, " queues"), func(b *testing.B) {
			m := statisticsWorld(queues, 20*queues).Publish()
			b.ReportAllocs()
			for b.Loop() {
				m.Tree("q0")
			}
		})
	}
}
