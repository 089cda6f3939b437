package state

import (
	"fmt"
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
	"github.com/berth-project/berth/internal/core/workload"
)

// TestLateHeads: after the events of random worlds, a state decides as one that evaluates all heads at once, and its lines are the same: no
// late head loses a wake-up to slices that replace each other, evictions that fail, variants that migrate, or places on nodes. The
// worlds are full: many queues borrow from few, and most releases may help in several of them.
func TestLateHeads(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		options := drawOptions(rt)
		options.Fair, options.BlockAdmission = nil, false // with them heads are never late
		m := newMachineOf(rt, options)
		m.s.Record(1 << 30)
		m.addBorrowers(rt)
		actions := map[string]func(*rapid.T){"edit queue": func(t *rapid.T) { m.editQueue(t) }}
		for name, action := range m.actions() {
			switch {
			case strings.Contains(name, "step"), strings.Contains(name, "edit"), strings.Contains(name, "delete"), strings.Contains(name, "usage"):
			case slices.Contains([]string{"", "interrupted", "copy", "checkpoint", "fork", "finish", "ready", "ready again"}, name):
			default:
				actions[name] = action
			}
		}
		for i := range 10 {
			actions[fmt.Sprint("decide ", i)] = m.decideAll
			actions[fmt.Sprint("end ", i)] = m.end
		}
		rt.Repeat(actions)
		m.decideAll(rt)
		m.compareWithEarly(rt)
	})
}

// addBorrowers adds queues that borrow from each other, and workloads for them.
func (m *machine) addBorrowers(t *rapid.T) {
	amount := func(most int) resource.Amount { return resource.Amount(rapid.IntRange(0, most).Draw(t, "amount")) }
	m.s.Apply(SetCohort{Name: "lenders"})
	m.s.Apply(SetCohort{Name: "lenders below", Parent: "lenders"})
	m.cohorts["lenders"], m.cohorts["lenders below"] = Cohort{Name: "lenders"}, Cohort{Name: "lenders below", Parent: "lenders"}
	for i := range 6 {
		def := Queue{
			Name: fmt.Sprint("borrower-", i), Cohort: rapid.SampledFrom([]string{"lenders", "lenders below"}).Draw(t, "cohort"), Namespaces: []workload.Term{{}},
			Strict:      rapid.IntRange(0, 11).Draw(t, "strict") == 11,
			Fungibility: flavor.Fungibility{TryNextWhenBorrowing: rapid.Bool().Draw(t, "try next"), PreemptionOverBorrowing: rapid.Bool().Draw(t, "over")},
		}
		g := Group{Resources: []string{"gpu", "cpu"}}
		for _, f := range rapid.Permutation([]string{"f0", "f1"}).Draw(t, "flavors")[:rapid.IntRange(1, 2).Draw(t, "number of flavors")] {
			most := 1
			if i == 0 {
				most = 6
			}
			g.Flavors = append(g.Flavors, FlavorQuota{Flavor: f, Resources: []Quota{
				{Resource: "gpu", Nominal: amount(most), Borrow: quota.NoLimit, Lend: quota.NoLimit}, {Resource: "cpu", Nominal: 3, Borrow: quota.NoLimit, Lend: quota.NoLimit},
			}})
		}
		def.Groups = []Group{g}
		m.drawPolicy(t, &def)
		if m.preempting && rapid.IntRange(0, 5).Draw(t, "preempts") == 5 {
			def.Preemption = preempt.Policy{Within: preempt.LowerPriority, Reclaim: preempt.LowerPriority}
		}
		for _, ns := range []string{"n0", "n1"} {
			lq := LocalQueue{Namespace: ns, Name: def.Name, Queue: def.Name}
			m.lqs[ns+"/"+def.Name] = lq
			m.s.Apply(SetLocalQueue(lq))
		}
		m.queues[def.Name] = def
		m.s.Apply(SetQueue(def))
	}
	for range rapid.IntRange(6, 25).Draw(t, "lenders") {
		m.submit(t)
	}
	m.decideAll(t)
	m.allWritten(t)
}

// end finishes a workload with quota.
func (m *machine) end(t *rapid.T) {
	_, o := pick(t, "running", m.objects, func(o *object) bool { return o.def.Reserved && o.def.Queueable })
	o.def.Queueable, o.def.Reserved, o.def.Admitted, o.def.Evicting, o.evicting = false, false, false, false, false
	o.def.Held, o.def.Queue, o.def.Placed = nil, "", nil
	m.set(o)
}

// decideAll is step without checks.
func (m *machine) decideAll(t *rapid.T) {
	told := map[string]bool{}
	for uid, r := range m.s.records {
		told[uid] = r.wl.Evicting
	}
	r := m.s.Step(m.tick(), 1<<30)
	for i := range r.Decisions {
		m.decided(t, &r.Decisions[i], told)
	}
}

// compareWithEarly replays the record of the flight with and without late heads.
func (m *machine) compareWithEarly(t *rapid.T) {
	from, events := m.s.Publish().Record().Contents()
	late := reread(t, from)
	from.Options.LateHeads = false
	early := reread(t, from)
	for i, e := range events {
		if diff := gocmp.Diff(outcomes(early.Apply(e)), outcomes(late.Apply(e))); diff != "" {
			t.Fatalf("event %d of %d, %T: outcomes differ (-without late heads +with):\n%s", i+1, len(events), e, diff)
		}
		if _, step := e.(Step); !step {
			continue
		}
		if a, b := activeOf(early), activeOf(late); !slices.Equal(a, b) {
			t.Fatalf("event %d of %d: what is active differs (-without late heads +with):\n%s", i+1, len(events), gocmp.Diff(a, b))
		}
	}
	if diff := gocmp.Diff(early.Dump(), late.Dump()); diff != "" {
		t.Fatalf("the worlds differ (-without late heads +with):\n%s", diff)
	}
}

// outcomes are the admissions and preemptions of a step.
func outcomes(r cycle.Result) (out []string) {
	for _, d := range r.Decisions {
		if d.Admitted != nil || d.SecondPass || len(d.Attempt.Victims) > 0 {
			out = append(out, d.Attempt.String())
		}
	}
	return out
}

// activeOf are the UIDs of the active pending workloads.
func activeOf(s *State) (out []string) {
	for _, q := range s.queues {
		for _, wl := range q.q.Pending.All()[:q.q.Pending.Active()] {
			out = append(out, wl.UID)
		}
	}
	slices.Sort(out)
	return out
}
