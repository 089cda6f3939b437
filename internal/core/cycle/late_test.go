package cycle

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestLateHead: of the heads that a release may help only the one that gets it is activated.
func TestLateHead(t *testing.T) {
	w := NewWorld(Defaults())
	cohort := w.Quota.Add("all", true)
	owner := addQueue(w, "owner", cohort, 4)
	holder := enqueue(w, owner, "holder", 1, 4)
	w.Step(1, math.MaxInt)
	for i := range 5 {
		enqueue(w, addQueue(w, fmt.Sprint("q", i), cohort, 0), fmt.Sprint("w", i), 1, 4).Priority = int64(i)
	}
	w.Step(2e9, math.MaxInt)
	before := w.Wakes()
	w.Release(holder)
	r := w.Step(3e9, math.MaxInt)
	if diff := cmp.Diff([]string{"w4 admitted"}, verdicts(r)); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	if got := w.Wakes(); got != (order.Wakes{All: before.All + 1, Vain: before.Vain}) {
		t.Errorf("%+v are woken, before %+v", got, before)
	}
	for i := range 4 {
		if q := w.Queues[1+i]; q.Pending.Inadmissible() != 1 {
			t.Errorf("the workload of %s is active", q.Name)
		}
	}
}

// TestLateHeadBesideMigration: a late head that waits for the quota of a job that migrates gets it when that job is deleted, though no quota
// is released then.
func TestLateHeadBesideMigration(t *testing.T) {
	w := NewWorld(Defaults())
	cohort := w.Quota.Add("all", true)
	holder := enqueue(w, addQueue(w, "owner", cohort, 4), "holder", 1, 4)
	running := enqueue(w, addQueue(w, "running", cohort, 1), "running", 1, 1)
	w.Migrating = func(*workload.Workload) []preempt.Victim {
		return []preempt.Victim{{Workload: running, Node: w.Queues[running.Queue].Node, Reason: preempt.Migration}}
	}
	w.Step(1, math.MaxInt)
	w.SettleAdmissions(1, false)
	job := enqueue(w, addQueue(w, "a", cohort, 0), "job", 1, 4)
	job.Variant = true
	enqueue(w, addQueue(w, "b", cohort, 0), "late", 1, 4).Since = 1
	w.Step(2e9, math.MaxInt)
	w.Release(holder)
	if diff := cmp.Diff([]string{"job preempts", "late waits"}, verdicts(w.Step(3e9, math.MaxInt))); diff != "" {
		t.Fatalf("decisions (-want +got):\n%s", diff)
	}
	w.Dequeue(job)
	if diff := cmp.Diff([]string{"late admitted"}, verdicts(w.Step(4e9, math.MaxInt))); diff != "" {
		t.Errorf("decisions once the job is deleted (-want +got):\n%s", diff)
	}
}

// TestMisfitIsNotLate: of a class whose first workload the queue does not take, the next one gets what is released, whether or not another head took the
// quota of an earlier release.
func TestMisfitIsNotLate(t *testing.T) {
	for _, late := range []bool{false, true} {
		o := Defaults()
		o.LateHeads = late
		w := NewWorld(o)
		cohort := w.Quota.Add("all", true)
		owner := addQueue(w, "owner", cohort, 4)
		holder := enqueue(w, owner, "holder", 1, 4)
		w.Step(1, math.MaxInt)
		first, behind := addQueue(w, "a", cohort, 0), addQueue(w, "b", cohort, 0)
		early := enqueue(w, first, "early", 1, 4)
		misfit := enqueue(w, behind, "misfit", 1, 4)
		misfit.Since = 1
		w.Step(2e9, math.MaxInt)
		misfit.Problem = &workload.Problem{Reason: string(trace.Misconfigured)}
		enqueue(w, behind, "next", 1, 4).Since = 2
		w.Release(holder)
		w.Step(3e9, math.MaxInt)
		w.Release(early)
		w.Dequeue(early)
		later := enqueue(w, first, "later", 2, 4)
		later.Since = 3
		if diff := cmp.Diff([]string{"next admitted", "later waits"}, verdicts(w.Step(4e9, math.MaxInt))); diff != "" {
			t.Errorf("with late heads %v: decisions after the second release (-want +got):\n%s", late, diff)
		}
	}
}

// TestLateHeads: a world decides as one whose heads are never late. Package state has the same test with slices, variants and places.
func TestLateHeads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newLatePair(t)
		t.Repeat(map[string]func(*rapid.T){"arrive": p.arrive, "release": p.release, "step": p.step})
		p.step(t)
	})
}

// latePair is a world, and an equal one without LateHeads.
type latePair struct {
	worlds  [2]*World
	now     workload.Instant
	all     [2]map[string]*workload.Workload
	arrived int
	groups  [][]string // the resources of each resource group
	queues  int32
	classes map[string]int32
}

func newLatePair(t *rapid.T) *latePair {
	p := &latePair{classes: map[string]int32{}, groups: [][]string{{"cpu", "gpu"}}}
	if rapid.IntRange(0, 4).Draw(t, "groups") == 0 {
		p.groups = [][]string{{"cpu"}, {"gpu"}}
	}
	o := Defaults()
	o.FungibilityOff = rapid.IntRange(0, 5).Draw(t, "off") == 0
	o.KeepScan = rapid.Bool().Draw(t, "keep scan")
	o.PriorityInCohort = rapid.Bool().Draw(t, "priority in cohort")
	o.PreemptorFirst = rapid.Bool().Draw(t, "preemptor first")
	for i := range p.worlds {
		o.LateHeads = i == 0
		p.worlds[i], p.all[i] = NewWorld(o), map[string]*workload.Workload{}
	}
	parents := []quota.Node{quota.None}
	for i := range 3 {
		parent := parents[rapid.IntRange(0, len(parents)-1).Draw(t, "parent of a cohort")]
		cells := p.cells(t, 3, false)
		for _, w := range p.worlds {
			n := w.Quota.Add(fmt.Sprint("cohort-", i), true)
			w.Quota.SetParent(n, parent)
			w.Quota.SetQuota(n, cells(w))
			if w == p.worlds[1] {
				parents = append(parents, n)
			}
		}
	}
	p.queues = int32(rapid.IntRange(3, 7).Draw(t, "queues"))
	for i := range p.queues {
		p.addQueue(t, i, parents)
	}
	return p
}

// cells draws quota for all flavors and resources.
func (p *latePair) cells(t *rapid.T, most int, limits bool) func(*World) []quota.Cell {
	type drawn struct {
		name, resource        string
		nominal, borrow, lend resource.Amount
	}
	var all []drawn
	for _, name := range []string{"x", "y", "z"} {
		for _, group := range p.groups {
			for _, res := range group {
				d := drawn{name, res, resource.Amount(rapid.IntRange(0, most).Draw(t, "nominal")), quota.NoLimit, quota.NoLimit}
				if limits && rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
					d.borrow = resource.Amount(rapid.IntRange(0, 4).Draw(t, "borrow"))
				}
				if limits && rapid.IntRange(0, 3).Draw(t, "lends") == 0 {
					d.lend = resource.Amount(rapid.IntRange(0, 4).Draw(t, "lend"))
				}
				all = append(all, d)
			}
		}
	}
	return func(w *World) (cells []quota.Cell) {
		for _, d := range all {
			cells = append(cells, quota.Cell{FR: w.Table.FR(d.name, d.resource), Nominal: d.nominal, Borrow: d.borrow, Lend: d.lend})
		}
		return cells
	}
}

func (p *latePair) addQueue(t *rapid.T, i int32, parents []quota.Node) {
	parent := rapid.SampledFrom(parents[1:]).Draw(t, "parent")
	cells := p.cells(t, 4, true)
	policy := flavor.Fungibility{TryNextWhenBorrowing: rapid.Bool().Draw(t, "try next"), PreemptionOverBorrowing: rapid.Bool().Draw(t, "over borrowing")}
	preemption := preempt.Policy{}
	if rapid.IntRange(0, 3).Draw(t, "preempts") == 0 {
		preemption = preempt.Policy{Within: preempt.LowerPriority, Reclaim: preempt.Any}
	}
	strict := rapid.IntRange(0, 5).Draw(t, "strict") == 0
	names := rapid.Permutation([]string{"x", "y", "z"}).Draw(t, "flavors")[:rapid.IntRange(1, 3).Draw(t, "number of flavors")]
	for _, w := range p.worlds {
		q := &Queue{
			Name: fmt.Sprint("queue-", i), Node: w.Quota.Add(fmt.Sprint("queue-", i), false), Namespaces: []workload.Term{{}},
			Policy: policy, Preemption: preemption, Strict: strict,
		}
		for _, group := range p.groups {
			g := flavor.Group{}
			for _, res := range group {
				g.Resources = append(g.Resources, w.Table.ID(res))
			}
			for _, name := range names {
				offer := flavor.Offer{Flavor: &flavor.Flavor{Name: name}}
				for _, res := range group {
					offer.FRs = append(offer.FRs, w.Table.FR(name, res))
				}
				g.Offers = append(g.Offers, offer)
			}
			q.Groups = append(q.Groups, g)
		}
		w.Quota.SetParent(q.Node, parent)
		w.Quota.SetQuota(q.Node, cells(w))
		w.AddQueue(q)
		w.Edited(q.Node)
	}
}

func (p *latePair) arrive(t *rapid.T) {
	for range rapid.IntRange(1, 4).Draw(t, "arrivals") {
		p.arrived++
		priority, queue := int64(rapid.IntRange(0, 2).Draw(t, "priority")), int32(rapid.IntRange(0, int(p.queues)-1).Draw(t, "queue"))
		var asked [][2]resource.Amount // of each pod set
		for range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "pod sets") {
			asked = append(asked, [2]resource.Amount{resource.Amount(rapid.IntRange(0, 3).Draw(t, "cpu")), resource.Amount(rapid.IntRange(0, 3).Draw(t, "gpu"))})
		}
		class := p.classOf(fmt.Sprint(priority, asked))
		uid := fmt.Sprintf("w%03d", p.arrived)
		for i, w := range p.worlds {
			wl := &workload.Workload{
				UID: uid, Key: "default/" + uid, Priority: priority, Since: workload.Instant(p.arrived), Queue: queue, Class: class,
			}
			for n, a := range asked {
				wl.PodSets = append(wl.PodSets, workload.PodSet{Name: fmt.Sprint("set-", n), Count: 1, Requests: []workload.Request{
					{Resource: w.Table.ID("cpu"), Amount: a[0]}, {Resource: w.Table.ID("gpu"), Amount: a[1]},
				}})
			}
			p.all[i][uid] = wl
			w.Enqueue(wl)
		}
	}
}

// classOf numbers equivalent workloads.
func (p *latePair) classOf(text string) int32 {
	if p.classes[text] == 0 {
		p.classes[text] = int32(len(p.classes) + 1)
	}
	return p.classes[text]
}

func (p *latePair) release(t *rapid.T) {
	var held []string
	for _, uid := range slices.Sorted(maps.Keys(p.all[0])) {
		if p.all[0][uid].Reserved {
			held = append(held, uid)
		}
	}
	if len(held) == 0 {
		t.Skip("none has a reservation")
	}
	for range rapid.IntRange(1, 3).Draw(t, "releases") {
		uid := rapid.SampledFrom(held).Draw(t, "workload")
		for i, w := range p.worlds {
			w.Release(p.all[i][uid])
		}
	}
}

// step lets both worlds decide until neither evicts any more.
func (p *latePair) step(t *rapid.T) {
	for more := true; more; {
		p.now += 1e9
		var got [2][]string
		for i, w := range p.worlds {
			r := w.Step(p.now, math.MaxInt)
			w.SettleAdmissions(p.now, r.More)
			if len(r.Endless) > 0 {
				t.Fatal("no end")
			}
			got[i] = []string{fmt.Sprint(r.Cycles, " cycles")}
			var victims []*workload.Workload
			for _, d := range r.Decisions {
				switch {
				case d.Admitted != nil:
					got[i] = append(got[i], d.Attempt.String())
				case d.Attempt.Verdict == trace.Preempts:
					got[i] = append(got[i], d.Attempt.String())
					for _, v := range d.Evict {
						victims = append(victims, v.Workload)
					}
				}
			}
			more = false
			for _, v := range victims {
				w.Release(v)
				more = true
			}
		}
		if diff := cmp.Diff(got[1], got[0]); diff != "" {
			t.Fatalf("decisions (-without late heads +got):\n%s", diff)
		}
	}
}
