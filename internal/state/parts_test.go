package state

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestParts: the parts of a checkpoint have all workloads and all of a change, and decide as the whole does.
func TestParts(t *testing.T) {
	compared := 0 // pairs of parts
	rapid.Check(t, func(rt *rapid.T) {
		o := drawOptions(rt)
		o.KeepScan = false // the difference that Parts describes
		m := newMachineOf(rt, o)
		actions := m.actions()
		for _, slow := range []string{"", "copy", "checkpoint", "fork", "interrupted"} {
			delete(actions, slow)
		}
		rt.Repeat(actions)
		for range 3 {
			m.step(rt)
			compared += m.compareParts(rt) - 1
			m.submit(rt)
		}
	})
	if compared == 0 {
		t.Error("no world was divided")
	}
}

// compareParts compares the smallest parts of the state with the whole, through steps with workloads that end in between.
func (m *machine) compareParts(t *rapid.T) (n int) {
	at, change := m.s.Checkpoint(), m.drawChange(t)
	whole, err := at.Fork()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range change {
		whole.Apply(e)
	}
	var parts []*State
	for _, p := range at.Parts(1, change) {
		fork, err := p.Fork()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.Change() {
			fork.Apply(e)
		}
		parts = append(parts, fork)
	}
	if len(change) == 0 {
		var want, have []cycle.QueueMemory
		want = withoutTried(whole.Checkpoint()).Memory.Queues
		for _, p := range parts {
			have = append(have, withoutTried(p.Checkpoint()).Memory.Queues...)
		}
		byName := func(a, b cycle.QueueMemory) int { return strings.Compare(a.Queue, b.Queue) }
		slices.SortFunc(want, byName)
		slices.SortFunc(have, byName)
		if diff := gocmp.Diff(want, have, cmpopts.IgnoreUnexported(ledger.Usage{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("the parts remember otherwise (-whole +parts):\n%s", diff)
		}
	}
	for round := range 3 {
		var uids []string
		want, have := decisionsAt(m.now, whole), decisionsAt(m.now, parts...)
		if diff := gocmp.Diff(want, have); diff != "" {
			t.Fatalf("%d parts decide otherwise in round %d after %+v (-whole +parts):\n%s", len(parts), round, change, diff)
		}
		for _, p := range parts {
			uids = append(uids, p.UIDs()...)
		}
		slices.Sort(uids)
		if diff := gocmp.Diff(slices.Sorted(maps.Keys(whole.records)), uids); diff != "" {
			t.Fatalf("the parts have other workloads after %+v (-whole +parts):\n%s", change, diff)
		}
		for i, uid := range uids {
			if r := whole.records[uid]; r.wl.Evicting || r.wl.Reserved && i%3 == round {
				whole.Apply(DeleteWorkload(uid))
				for _, p := range parts {
					p.Apply(DeleteWorkload(uid))
				}
			}
		}
	}
	return len(parts)
}

// drawChange draws changes, some of which join trees.
func (m *machine) drawChange(t *rapid.T) (change []Event) {
	name := func(of string, most int) string { return fmt.Sprint(of, rapid.IntRange(0, most).Draw(t, of)) }
	cohort := func() string { return rapid.SampledFrom([]string{"", "c0", "c1", "c2"}).Draw(t, "cohort") }
	uids := m.s.UIDs()
	for range rapid.IntRange(0, 2).Draw(t, "changes") {
		switch kind := rapid.IntRange(0, 7).Draw(t, "kind"); {
		case kind == 0:
			q := Queue{Name: name("q", 3)}
			if have := m.s.queues[q.Name]; have != nil {
				q = have.def
			}
			if q.Cohort = cohort(); !m.reservesStarts(q.Name) {
				change = append(change, SetQueue(q))
			}
		case kind == 1:
			if q := name("q", 3); !m.reservesStarts(q) {
				change = append(change, DeleteQueue(q))
			}
		case kind == 2:
			change = append(change, SetCohort{Name: name("c", 2), Parent: cohort()})
		case kind == 3:
			change = append(change, DeleteCohort(name("c", 2)))
		case kind == 4:
			change = append(change, DeleteNode(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node")))
		case kind == 5:
			change = append(change, SetFlavor{Name: name("f", 1), Missing: true})
		case len(uids) == 0:
		case kind == 6:
			change = append(change, DeleteWorkload(rapid.SampledFrom(uids).Draw(t, "workload")))
		default:
			def, _ := m.s.Definition(rapid.SampledFrom(uids).Draw(t, "workload"))
			def.Version += 9
			def.Priority += 2
			def.LocalQueue = rapid.SampledFrom(slices.Sorted(maps.Keys(m.lqNames()))).Draw(t, "localqueue")
			change = append(change, SetWorkload(def))
		}
	}
	return change
}

// reservesStarts reports whether a queue reserves starts: with the first and the last of them all workloads are evaluated again, with the same
// outcome.
func (m *machine) reservesStarts(queue string) bool {
	q := m.s.queues[queue]
	return q != nil && q.q.Backfill != cycle.NoBackfill
}

// decisionsAt returns the decisions of a step of some states in words, sorted.
func decisionsAt(now int64, of ...*State) (out []string) {
	for _, s := range of {
		out = append(out, texts(s.Step(workload.Instant(now), math.MaxInt).Decisions)...)
	}
	slices.Sort(out)
	return out
}

// TestPartsTogether: trees that depend on each other are in one part.
func TestPartsTogether(t *testing.T) {
	queue := func(name, cohort string) SetQueue {
		return SetQueue{
			Name: name, Cohort: cohort, Namespaces: []workload.Term{{}}, Preemption: preempt.Policy{Reclaim: preempt.Any},
			Groups: []Group{{Resources: []string{"cpu"}, Flavors: []FlavorQuota{{Flavor: "f", Resources: []Quota{{Resource: "cpu", Nominal: 1}}}}}},
		}
	}
	in := func(uid, localQueue string, cpu int64) Workload {
		return Workload{
			UID: uid, Namespace: "n", Name: uid, LocalQueue: localQueue, Queueable: true, PodSets: []PodSet{{
				Name: "main", Count: 1, Requests: []Request{{"cpu", resource.Amount(cpu)}}, PerPod: []Request{{"cpu", resource.Amount(cpu)}}, Constraints: &workload.Constraints{},
			}},
		}
	}
	with := func(w Workload, changes func(*Workload)) SetWorkload { changes(&w); return SetWorkload(w) }
	holds := func(w *Workload, queue string) {
		w.Reserved, w.Queue, w.Held = true, queue, []Held{{"main", "f", "cpu", 1}}
	}
	placedIn := func(queue string) SetWorkload {
		return with(in("in-"+queue, queue, 1), func(w *Workload) { holds(w, queue); w.Placed = []PodSetPlacement{{PodSet: "main"}} })
	}
	racks := SetFlavor(flavor.Flavor{Name: "f", Topology: "t", Levels: []string{"rack"}})
	for name, tc := range map[string]struct {
		options func(*Options)
		before  []Event // the last step
		after   []Event
		change  []Event
		parts   int
	}{
		"independent":             {parts: 2},
		"below one cohort":        {after: []Event{SetCohort{Name: "c", Parent: "root"}, SetCohort{Name: "d", Parent: "root"}}, parts: 1},
		"nodes":                   {after: []Event{racks}, parts: 1},
		"a missing topology":      {after: []Event{SetFlavor(flavor.Flavor{Name: "f", Topology: "t"})}, parts: 1},
		"no placement":            {options: func(o *Options) { o.Topology = nil }, after: []Event{racks}, parts: 2},
		"places without a flavor": {after: []Event{placedIn("a"), placedIn("b")}, parts: 1},
		"a slice":                 {after: []Event{with(in("z", "a", 1), func(w *Workload) { w.Replaces = "b1" })}, parts: 1},
		"variants":                {after: []Event{with(in("z", "b", 1), func(w *Workload) { w.VariantOf = "job" })}, parts: 1},
		"quota elsewhere":         {after: []Event{with(in("z", "b", 1), func(w *Workload) { holds(w, "a") })}, parts: 1},
		"admitted elsewhere": {
			before: []Event{SetLocalQueue{Namespace: "n", Name: "b2", Queue: "b"}, SetWorkload(in("y", "b2", 2)), SetWorkload(in("z", "b", 1))},
			after:  []Event{SetLocalQueue{Namespace: "n", Name: "b", Queue: "a"}}, parts: 1,
		},
		"moved": {
			before: []Event{SetLocalQueue{Namespace: "n", Name: "b2", Queue: "b"}, SetWorkload(in("y", "b2", 2))},
			after:  []Event{SetLocalQueue{Namespace: "n", Name: "b", Queue: "a"}}, parts: 2,
		},
		"a victim elsewhere": {
			before: []Event{
				queue("b", "c"), with(in("z", "b", 1), func(w *Workload) { holds(w, "b") }), with(in("y", "b", 1), func(w *Workload) { holds(w, "b") }), SetWorkload(in("x", "a", 1)),
			},
			after: []Event{queue("b", "d")}, parts: 1,
		},
		"block admission":         {options: func(o *Options) { o.BlockAdmission = true }, parts: 1},
		"sharing by usage":        {options: func(o *Options) { o.Sharing = &sharing.Rates{} }, parts: 1},
		"a change of one":         {change: []Event{queue("a", "e"), DeleteWorkload("a1")}, parts: 2},
		"a change that joins":     {change: []Event{queue("a", "d")}, parts: 1},
		"a workload moves":        {change: []Event{with(in("a1", "b", 2), func(w *Workload) { w.Version++ })}, parts: 1},
		"a cohort below another":  {change: []Event{SetCohort{Name: "c", Parent: "d"}}, parts: 1},
		"a change of all":         {change: []Event{SetFlavor(flavor.Flavor{Name: "f", Labels: map[string]string{"a": "b"}})}, parts: 1},
		"a new queue of its own":  {change: []Event{queue("new", "")}, parts: 2},
		"nodes that no queue has": {change: []Event{SetNode{Name: "node"}}, parts: 2},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Options: immediately(), Topology: &topology.Gates{}}
			if tc.options != nil {
				tc.options(&o)
			}
			s := New(o)
			for _, e := range slices.Concat([]Event{
				SetNamespace{Name: "n"},
				SetFlavor(flavor.Flavor{Name: "f"}), queue("a", "c"), queue("b", "d"),
				SetLocalQueue{Namespace: "n", Name: "a", Queue: "a"},
				SetLocalQueue{Namespace: "n", Name: "b", Queue: "b"},
				SetWorkload(in("a1", "a", 2)), SetWorkload(in("b1", "b", 2)),
			}, tc.before) {
				s.Apply(e)
			}
			s.Step(1, math.MaxInt)
			for _, e := range tc.after {
				s.Apply(e)
			}
			parts, changes := s.Checkpoint().Parts(1, tc.change), 0
			for _, p := range parts {
				if _, err := p.Fork(); err != nil {
					t.Error(err)
				}
				changes += len(p.Change())
			}
			if len(parts) != tc.parts || changes != len(tc.change) {
				t.Errorf("there are %d parts, want %d, with %d changes", len(parts), tc.parts, changes)
			}
		})
	}
}

// TestPartsBounds: workloads with different bounds are in classes of their own, also where only queues of other parts reserve starts.
func TestPartsBounds(t *testing.T) {
	s := New(Options{Options: immediately()})
	for i, name := range []string{"a", "b"} {
		s.Apply(SetQueue{Name: name, Namespaces: []workload.Term{{}}, Backfill: []cycle.Backfill{cycle.Easy, cycle.NoBackfill}[i]})
		s.Apply(SetLocalQueue{Namespace: "n", Name: name, Queue: name})
		for _, bound := range []workload.Instant{0, 5} {
			uid := fmt.Sprint(name, bound)
			s.Apply(SetWorkload{UID: uid, Namespace: "n", Name: uid, LocalQueue: name, Queueable: true, Bound: bound, PodSets: []PodSet{{Name: "main", Count: 1}}})
		}
	}
	s.Step(1, math.MaxInt)
	parts := s.Checkpoint().Parts(1, nil)
	if len(parts) != 2 {
		t.Fatalf("there are %d parts", len(parts))
	}
	for i, p := range parts {
		fork, err := p.Fork()
		if err != nil {
			t.Fatal(err)
		}
		if len(fork.classes) != 2 {
			t.Errorf("part %d has %d classes", i, len(fork.classes))
		}
	}
}
