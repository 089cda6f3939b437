package state

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// statisticsWorld has some queues below two cohorts, with workloads in them, each through one
// of three LocalQueues.
func statisticsWorld(queues, workloads int) *State {
	s := New(Options{Options: cycle.Defaults()})
	s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(SetNamespace{Name: "ns", Labels: nil})
	for q := range queues {
		name := fmt.Sprint("q", q)
		s.Apply(SetQueue(Queue{Name: name, Cohort: fmt.Sprint("c", q%2), Namespaces: []workload.Term{{}}, Groups: []Group{{
			Resources: []string{"cpu"},
			Flavors:   []FlavorQuota{{Flavor: "f", Resources: []Quota{{Resource: "cpu", Nominal: 20, Borrow: quota.NoLimit, Lend: quota.NoLimit}}}},
		}}}))
		for l := range 3 {
			s.Apply(SetLocalQueue(LocalQueue{Namespace: "ns", Name: fmt.Sprint(name, "-", l), Queue: name}))
		}
	}
	for i := range workloads {
		uid := fmt.Sprint("w", i)
		s.Apply(SetWorkload(Workload{
			UID: uid, Namespace: "ns", Name: uid, Version: 1, LocalQueue: fmt.Sprintf("q%d-%d", i%queues, i%3), Queueable: true, Since: workload.Instant(i),
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "cpu", Amount: resource.Amount(1 + i%7)}}}},
		}))
	}
	s.Step(1, 1000)
	return s
}

// The statistics equal the views of the queues.
func TestStatisticsAgreeWithViews(t *testing.T) {
	s := statisticsWorld(4, 200)
	s.Apply(Written(Workload{
		UID: "w0", Namespace: "ns", Name: "w0", Version: 2, LocalQueue: "q0-0", Reserved: true, Admitted: true, Queue: "q0",
		Held: []Held{{PodSet: "main", Flavor: "f", Resource: "cpu", Amount: 1}},
	}))
	s.Apply(SetWorkload(Workload{
		UID: "waits", Namespace: "ns", Name: "waits", Version: 1, LocalQueue: "q1-0", Queueable: true, Resting: true,
		PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "cpu", Amount: 1}}}},
	}))
	c := s.Publish().Statistics(Asked{Classes: true, Keys: true})
	sums := map[string]resource.Amount{}
	for _, q := range c.Queues {
		view, _ := s.Publish().Queue(q.Name)
		got := Counts{q.Active.Workloads, q.Inadmissible.Workloads, q.Reserved, q.Admitted}
		if diff := cmp.Diff(view.Counts, got); diff != "" {
			t.Errorf("%s: -view +census:\n%s", q.Name, diff)
		}
		if n := len(q.Active.Keys) + len(q.Inadmissible.Keys); n != view.Active+view.Inadmissible || len(q.AdmittedKeys) != view.Admitted {
			t.Errorf("%s: %d keys of pending ones, %d of admitted ones; the view has %+v", q.Name, n, len(q.AdmittedKeys), view.Counts)
		}
		if got, want := q.Cells[0].Reserved, view.Reservation[0].Amount; got != want {
			t.Errorf("%s: %d reserved, the view has %d", q.Name, got, want)
		}
		if q.Active.Classes+q.Inadmissible.Classes > 7 || q.Inadmissible.Classes == 0 {
			t.Errorf("%s: %d and %d classes of 7", q.Name, q.Active.Classes, q.Inadmissible.Classes)
		}
		sums[q.Cohort] += q.Cells[0].Reserved
	}
	for _, l := range c.LocalQueues {
		view := s.Publish().LocalQueue(l.Namespace, l.Name.Name)
		if got := [3]int{l.Active + l.Inadmissible, l.Reserved, l.Admitted}; got != [3]int{view.Active + view.Inadmissible, view.Reserved, view.Admitted} {
			t.Errorf("%s: %v, the view has %+v", l.Name.Name, got, view.Counts)
		}
	}
	for _, co := range c.Cohorts {
		if got := co.Reserved[0].Amount; got != sums[co.Name] {
			t.Errorf("%s: %d reserved below, the queues have %d", co.Name, got, sums[co.Name])
		}
	}
	if len(c.Queues) != 4 || len(c.LocalQueues) != 12 || len(c.Cohorts) != 2 {
		t.Errorf("%d queues, %d LocalQueues, %d cohorts", len(c.Queues), len(c.LocalQueues), len(c.Cohorts))
	}
}

// Below a cycle of cohorts there is no quota, and nothing can be admitted.
func TestStatisticsOfACycle(t *testing.T) {
	s := statisticsWorld(2, 20)
	s.Apply(SetCohort(Cohort{Name: "c0", Parent: "c1"}))
	s.Apply(SetCohort(Cohort{Name: "c1", Parent: "c0"}))
	c := s.Publish().Statistics(Asked{})
	for _, q := range c.Queues {
		if !q.Closed || q.Root != "" || q.Active.Workloads != 0 || q.Inadmissible.Workloads == 0 {
			t.Errorf("%+v", q)
		}
	}
	for _, co := range c.Cohorts {
		if co.Root != "" || co.Parent == "" || co.Subtree != nil || co.Reserved != nil {
			t.Errorf("%+v", co)
		}
	}
}

func BenchmarkStatistics(b *testing.B) {
	for _, queues := range []int{1, 1000} {
		b.Run(fmt.Sprint(queues, " queues, 50000 workloads"), func(b *testing.B) {
			s := statisticsWorld(queues, 50_000)
			b.ReportAllocs()
			for b.Loop() {
				s.Publish().Statistics(Asked{Classes: true})
			}
		})
	}
}

// TestResting: who would be in line but for a time counts as parked, in the LocalQueue that
// it names at the moment, and in its ClusterQueue.
func TestResting(t *testing.T) {
	s := statisticsWorld(2, 0)
	def := Workload{
		UID: "w", Namespace: "ns", Name: "w", LocalQueue: "q0-0", Queueable: true, Resting: true,
		PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "cpu", Amount: 1}}}},
	}
	set := func(edit func()) func() {
		return func() { edit(); def.Version++; s.Apply(SetWorkload(def)) }
	}
	for _, step := range []struct {
		what string
		do   func()
		want [3]int // of q0-0, q0-1 and q1-0
	}{
		{"it rests", set(func() {}), [3]int{1, 0, 0}},
		{"so it is said again", set(func() { def.Priority = 1 }), [3]int{1, 0, 0}},
		{"in another LocalQueue", set(func() { def.LocalQueue = "q0-1" }), [3]int{0, 1, 0}},
		{"of another queue", set(func() { def.LocalQueue = "q1-0" }), [3]int{0, 0, 1}},
		{"it may not be in line", set(func() { def.Queueable = false }), [3]int{}},
		{"and may again", set(func() { def.Queueable = true }), [3]int{0, 0, 1}},
		{"it holds quota", set(func() { def.Reserved, def.Queue = true, "q1" }), [3]int{}},
		{"and no more", set(func() { def.Reserved, def.Queue = false, "" }), [3]int{0, 0, 1}},
		{"it is awake", set(func() { def.Resting = false }), [3]int{}},
		{"it rests once more", set(func() { def.Resting = true }), [3]int{0, 0, 1}},
		{"it is deleted", func() { s.Apply(DeleteWorkload("w")) }, [3]int{}},
	} {
		step.do()
		for i, name := range []string{"q0-0", "q0-1", "q1-0"} {
			if got := s.Publish().LocalQueue("ns", name).Inadmissible; got != step.want[i] {
				t.Errorf("%s: %d are parked in %s, want %d", step.what, got, name, step.want[i])
			}
		}
		for name, want := range map[string]int{"q0": step.want[0] + step.want[1], "q1": step.want[2]} {
			if view, _ := s.Publish().Queue(name); view.Inadmissible != want {
				t.Errorf("%s: %d are parked in %s, want %d", step.what, view.Inadmissible, name, want)
			}
		}
	}
}

// TestLookAtHolder: what is said about a workload that holds quota is all that it holds, by
// pod set; and to ask leaves the world as it is.
func TestLookAtHolder(t *testing.T) {
	s := statisticsWorld(1, 0)
	s.Apply(SetWorkload(Workload{
		UID: "w", Namespace: "ns", Name: "w", Version: 1, LocalQueue: "q0-0", Reserved: true, Queue: "q0",
		Held: []Held{{"driver", "f", "cpu", 1000}, {"worker", "f", "cpu", 2000}, {"worker", "gone", "gpu", 0}},
	}))
	before := s.world.Table.Len()
	want := "ns/w in q0 (priority 0): admitted\n  driver: 1 cpu from f (held)\n  worker: 2 cpu from f (held)\n  worker: 0 gpu from gone (held)\n"
	if diff := cmp.Diff(want, s.Explain("w")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if after := s.world.Table.Len(); after != before {
		t.Errorf("%d flavor-resources are known by it, %d before", after, before)
	}
}

// TestNamesOfResources: workloads choose the names of resources. What is kept of them is bounded, and a queue keeps no more than what waits in it.
func TestNamesOfResources(t *testing.T) {
	s := statisticsWorld(1, 0)
	def := func(uid string, names ...string) Workload {
		w := Workload{UID: uid, Namespace: "ns", Name: uid, LocalQueue: "q0-0", Queueable: true, PodSets: []PodSet{{Name: "main", Count: 1}}}
		for _, name := range names {
			w.PodSets[0].Requests = append(w.PodSets[0].Requests, Request{Resource: name, Amount: 1})
		}
		return w
	}
	const each = 256
	for i := range resource.MaxRequested/each + 2 {
		names := make([]string, each)
		for k := range names {
			names[k] = fmt.Sprintf("example.com/r%d-%d", i, k)
		}
		uid := fmt.Sprint("many-", i)
		s.Apply(SetWorkload(def(uid, names...)))
		s.Publish()
		s.Apply(DeleteWorkload(uid))
		s.Publish()
	}
	if n := s.world.Table.IDs(); n > resource.MaxRequested+1 {
		t.Errorf("%d names", n)
	}
	q := s.queues["q0"]
	requested := func() int {
		if q.sums == nil {
			return 0
		}
		return len(q.sums.asked)
	}
	if n := requested(); n > 0 {
		t.Errorf("%d resources are requested by nothing", n)
	}
	for i := range 3 {
		s.Apply(SetWorkload(def(fmt.Sprint("alike-", i), "example.com/late", "cpu")))
	}
	if n := len(s.classes); n != 1 {
		t.Errorf("%d classes of workloads that are alike", n)
	}
	if got := s.Publish().Statistics(Asked{}).Queues[0].Pending; len(got) != 1 || got[0] != (Request{"cpu", 3}) || requested() != 2 {
		t.Errorf("pending %v, %d resources", got, requested())
	}
	s.Apply(SetWorkload(def("alike-0", "example.com/later", "cpu")))
	if n := len(s.classes); n != 1 {
		t.Errorf("%d classes after an edit to another name of these", n)
	}
}
