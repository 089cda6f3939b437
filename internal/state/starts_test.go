package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// checkStarts: none of these decisions evicts a workload that another one admits.
func checkStarts(t *rapid.T, decisions []cycle.Decision) {
	admitted := map[string]bool{}
	for _, d := range decisions {
		if d.Admitted != nil {
			if admitted[d.Workload.UID] {
				t.Fatalf("%s was admitted twice", d.Workload.Key)
			}
			admitted[d.Workload.UID] = true
		}
	}
	for _, d := range decisions {
		for _, v := range d.Evict {
			if admitted[v.Workload.UID] {
				t.Fatalf("%s starts in vain: %s", v.Workload.Key, d.Attempt)
			}
		}
	}
}

// TestNoStartInVain: no workload is admitted and then preempted by one that was pending all the
// while, whether one step makes the decisions or several do. Slices are included.
func TestNoStartInVain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(rt)
		for range rapid.IntRange(0, 8).Draw(rt, "running") {
			m.reservedOutside(rt)
		}
		for range rapid.IntRange(0, 5).Draw(rt, "slices") {
			m.slice(rt)
		}
		s := m.rebuilt(nil)
		var all []cycle.Decision
		for more, steps := true, 0; more; steps++ {
			if steps > 10_000 {
				rt.Fatal("no end")
			}
			r := s.Step(100, rapid.SampledFrom([]int{1000, 0, 1, 2, 3}).Draw(rt, "budget"))
			all, more = append(all, r.Decisions...), r.More
			if len(r.Endless) > 0 {
				rt.Fatal("no end: ", r.Endless)
			}
		}
		checkStarts(rt, all)
		for _, r := range s.records {
			if r.in != nil && !r.wl.Reserved && r.said != nil && r.said.verdict == trace.Admitted {
				rt.Fatalf("%s is pending, and its last decision is an admission", r.first.Key)
			}
		}
		if again := s.Step(101, 1000); again.Cycles > 0 || len(again.Decisions) > 0 {
			rt.Fatalf("a settled world had something left to decide: %v", again)
		}
	})
}

// interrupted makes steps that their budget ends, with events in between, until nothing is left
// to do. An admission may be on its way out of the state meanwhile.
func (m *machine) interrupted(t *rapid.T) {
	told := map[string]bool{}
	for uid, r := range m.s.records {
		told[uid] = r.wl.Evicting
	}
	for more := true; more; {
		r := m.s.Step(m.tick(), rapid.IntRange(0, 3).Draw(t, "budget"))
		for i := range r.Decisions {
			m.decided(t, &r.Decisions[i], told)
		}
		if len(r.Endless) > 0 {
			t.Fatal("no end: ", r.Endless)
		}
		if more = r.More; !more {
			break
		}
		var pending []*object
		for _, uid := range slices.Sorted(maps.Keys(m.objects)) {
			if o := m.objects[uid]; o.def.Queueable && !o.def.Reserved && o.admission == nil {
				pending = append(pending, o)
			}
		}
		switch event := rapid.SampledFrom([]string{"", "", "submit", "queue", "localqueue", "delete", "finish", "priority", "shape", "usage", "node"}).Draw(t, "event"); {
		case event == "submit":
			m.submit(t)
		case event == "queue":
			m.editedBetween = append(m.editedBetween, m.editQueue(t))
		case event == "localqueue":
			m.turnLocalQueue(t)
		case event == "usage" && m.usageBased:
			m.setUsage(t)
		case event == "node" && len(m.nodes) > 0:
			m.setForeign(t)
		case event == "" || event == "usage" || event == "node" || len(pending) == 0:
		default:
			o := rapid.SampledFrom(pending).Draw(t, "pending")
			switch event {
			case "delete":
				delete(m.objects, o.def.UID)
				m.s.Apply(DeleteWorkload(o.def.UID))
			case "finish":
				o.def.Queueable = false
				m.set(o)
			case "shape":
				m.shape(t, &o.def)
				m.restrict(&o.def)
				m.set(o)
			case "priority":
				o.def.Priority = rapid.Int64Range(0, 3).Draw(t, "priority")
				m.set(o)
			}
		}
	}
	m.editedBetween = nil
	m.checkSettled(t)
}

// TestRetractedElsewhere: a workload whose admission is retracted waits where its LocalQueue leads by then.
func TestRetractedElsewhere(t *testing.T) {
	s := New(Options{Options: immediately()})
	s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(SetNamespace{Name: "ns"})
	for i, name := range []string{"owner", "borrower", "other"} {
		nominal := []resource.Amount{2, 0, 0}[i]
		s.Apply(SetQueue{
			Name: name, Cohort: "all", Namespaces: []workload.Term{{}}, Preemption: preempt.Policy{Reclaim: preempt.Any}, Groups: []Group{{
				Resources: []string{"cpu"}, Flavors: []FlavorQuota{{Flavor: "f", Resources: []Quota{
					{Resource: "cpu", Nominal: nominal, Borrow: quota.NoLimit, Lend: quota.NoLimit},
				}}},
			}},
		})
		s.Apply(SetLocalQueue{Namespace: "ns", Name: name, Queue: name})
	}
	for i, lq := range []string{"owner", "borrower", "owner"} {
		s.Apply(SetWorkload{
			UID: fmt.Sprint(i), Namespace: "ns", Name: fmt.Sprint(i), Version: 1, LocalQueue: lq, Queueable: true, Created: workload.Instant(i), Since: workload.Instant(i),
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "cpu", Amount: 1}}}},
		})
	}
	r := s.Step(1, 2)
	if wl := s.records["1"].wl; !r.More || !wl.Tentative {
		t.Fatalf("more: %v; the borrower's admission is tentative: %v", r.More, wl.Tentative)
	}
	s.Apply(SetLocalQueue{Namespace: "ns", Name: "borrower", Queue: "other"})
	if r := s.Step(2, 100); r.More || len(r.Decisions) < 2 {
		t.Fatalf("decided %v, more: %v", texts(r.Decisions), r.More)
	}
	if r := s.records["1"]; r.wl.Reserved || r.in == nil || r.in.Name != "other" {
		t.Errorf("the borrower has quota: %v, and is in %+v; want it to wait in other", r.wl.Reserved, r.in)
	}
}

// TestBudget: a step that is interrupted and taken up again decides what an
// uninterrupted one does.
func TestBudget(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(rt)
		for range rapid.IntRange(0, 8).Draw(rt, "running") {
			m.reservedOutside(rt)
		}
		a, b := m.rebuilt(nil), m.rebuilt(nil)
		var inParts []string
		for more, parts := true, 0; more; parts++ {
			if parts > 10_000 {
				rt.Fatalf("no end:\n%s", strings.Join(inParts[len(inParts)-20:], ""))
			}
			r := b.Step(100, rapid.IntRange(0, 2).Draw(rt, "budget"))
			inParts = append(inParts, texts(r.Decisions)...)
			more = r.More
		}
		if diff := gocmp.Diff(byWorkload(decisions(a, 100)), byWorkload(inParts)); diff != "" {
			rt.Fatalf("the decisions differ (-at once +in parts):\n%s", diff)
		}
	})
}

// byWorkload sorts texts by the workload that they are about. The order of the decisions about
// one workload stays: an admission may be returned later than decisions about others.
func byWorkload(texts []string) []string {
	slices.SortStableFunc(texts, func(a, b string) int {
		a, _, _ = strings.Cut(a, " ")
		b, _, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	return texts
}
