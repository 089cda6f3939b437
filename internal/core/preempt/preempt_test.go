package preempt

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/ledger/ledgertest"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// The flavor-resources: f/cpu, f/memory and g/cpu.
const cpu, memory, cpu2 resource.FR = 0, 1, 2

var allFRs = []resource.FR{cpu, memory, cpu2}

// world is a forest by name, with what is reserved in it.
type world struct {
	l       *ledger.Ledger
	f       *quota.Forest
	defs    []plainNode // by node
	nodes   map[string]quota.Node
	holders map[quota.Node][]*workload.Workload
}

// node defines a queue, or a cohort.
type node struct {
	name, parent string
	nominal      resource.Amount
	lend         resource.Amount // 0 is no limit
	cohort       bool
}

func queue(name, parent string, nominal resource.Amount) node {
	return node{name: name, parent: parent, nominal: nominal}
}

func cohort(name, parent string) node { return node{name: name, parent: parent, cohort: true} }

func newTable() *resource.Table {
	t := resource.NewTable()
	t.FR("f", "cpu")
	t.FR("f", "memory")
	t.FR("g", "cpu")
	return t
}

func newWorld(nodes ...node) *world {
	l := ledger.New(newTable())
	w := &world{l: l, f: l.Quota, nodes: map[string]quota.Node{"": quota.None}, holders: map[quota.Node][]*workload.Workload{}}
	for _, d := range nodes {
		lend := quota.NoLimit
		if d.lend > 0 {
			lend = d.lend
		}
		w.nodes[d.name] = w.add(d.name, d.cohort, w.nodes[d.parent], quota.DefaultWeight, []quota.Cell{
			{FR: cpu, Nominal: d.nominal, Borrow: quota.NoLimit, Lend: lend},
			{FR: memory, Nominal: d.nominal, Borrow: quota.NoLimit, Lend: lend},
		})
	}
	w.f.Reach(cpu2)
	w.f.Recompute()
	return w
}

// add makes a node in the forest and records its properties.
func (w *world) add(name string, cohort bool, parent quota.Node, weight quota.Weight, cells []quota.Cell) quota.Node {
	n := w.f.Add(name, cohort)
	w.f.SetParent(n, parent)
	w.f.SetQuota(n, cells)
	w.f.SetWeight(n, weight)
	d := plainNode{name: name, parent: parent, cohort: cohort, weight: weight, cells: map[resource.FR]quota.Cell{}}
	for _, c := range cells {
		d.cells[c.FR] = c
	}
	w.defs = append(w.defs, d)
	return n
}

// used is a usage of quota alone.
func used(v resource.Vector) ledger.Usage { return ledger.Usage{Quota: v} }

// held is a workload with a reservation.
type held struct {
	name, queue string
	amount      resource.Amount
	priority    int64
	reservedAt  workload.Instant
}

func (w *world) reserve(hs ...held) {
	for _, h := range hs {
		w.hold(h, cpu)
	}
}

func (w *world) hold(h held, fr resource.FR) *workload.Workload {
	wl := &workload.Workload{UID: h.name, Key: h.name, Priority: h.priority, Since: h.reservedAt}
	wl.Reservation = workload.Reservation{Reserved: true, ReservedAt: h.reservedAt, Usage: used(resource.Vector{{FR: fr, Amount: h.amount}})}
	n := w.nodes[h.queue]
	w.holders[n] = append(w.holders[n], wl)
	w.l.Charge(n, wl.Usage)
	return wl
}

func (w *world) search(queue string, p Policy, priority int64, amount resource.Amount) *Search {
	return &Search{
		Ledger: w.l, Node: w.nodes[queue], Policy: p, Holders: w.reach,
		Preemptor: &workload.Workload{UID: "p", Key: "p", Priority: priority, Since: 1000},
		Requests:  used(resource.Vector{{FR: cpu, Amount: amount}}), Need: []resource.FR{cpu},
	}
}

// reach makes the holders of a queue out of what is reserved in it.
func (w *world) reach(n quota.Node) *Holders {
	h := &Holders{}
	for _, wl := range w.holders[n] {
		h.Add(wl)
	}
	return h
}

// targets are the victims, without the reach.
func targets(s *Search) []Victim {
	victims, _ := s.Targets()
	return victims
}

// describe gives the victims as "name reason", sorted.
func describe(victims []Victim) []string {
	var out []string
	for _, v := range victims {
		out = append(out, v.Workload.UID+" "+v.Reason)
	}
	slices.Sort(out)
	return out
}

// TestTargets are the acceptance examples 25 to 32 of spec 10 §7.
func TestTargets(t *testing.T) {
	lower := Policy{Within: LowerPriority}
	reclaim := Policy{Within: LowerPriority, Reclaim: Any}
	reclaimLower := Policy{Within: LowerPriority, Reclaim: LowerPriority}
	bound := int64(-1)
	single := func() *world { return newWorld(queue("q", "", 10)) }
	ex28 := func() *world {
		w := newWorld(cohort("c", ""), queue("A", "c", 6), queue("B", "c", 6))
		w.reserve(held{"a1", "A", 2, 0, 1}, held{"b1", "B", 4, 50, 2}, held{"b2", "B", 4, 10, 3}, held{"b3", "B", 2, 90, 4})
		return w
	}
	ex29 := func() *world {
		w := newWorld(cohort("c", ""), queue("A", "c", 4), queue("B", "c", 4), queue("S", "c", 4))
		w.reserve(held{"a1", "A", 4, 0, 1}, held{"b1", "B", 8, 0, 2})
		return w
	}
	ex31 := func() *world {
		w := newWorld(cohort("root", ""), cohort("t1", "root"), cohort("t2", "root"), queue("x", "t1", 2), queue("y", "t1", 4), queue("z", "t2", 4))
		w.reserve(held{"x1", "x", 2, 0, 1}, held{"z1", "z", 4, 100, 10}, held{"z2", "z", 4, 100, 20})
		return w
	}
	tests := map[string]struct {
		world    func() *world
		queue    string
		policy   Policy
		priority int64
		amount   resource.Amount
		want     []string
	}{
		"25: lowest priority, newest first": {func() *world {
			w := single()
			w.reserve(held{"a", "q", 2, 10, 50}, held{"b", "q", 3, 0, 200}, held{"c", "q", 1, 0, 300}, held{"d", "q", 4, 5, 60})
			return w
		}, "q", lower, 20, 4, []string{"b InClusterQueue", "c InClusterQueue"}},
		"26: fill back": {func() *world {
			w := single()
			w.reserve(held{"s1", "q", 1, 0, 300}, held{"s2", "q", 2, 0, 200}, held{"big", "q", 7, 1, 100})
			return w
		}, "q", lower, 20, 7, []string{"big InClusterQueue"}},
		"27: equals are spared": {func() *world {
			w := single()
			w.reserve(held{"a", "q", 10, 20, 2000})
			return w
		}, "q", lower, 20, 5, nil},
		"27: equals that came later": {func() *world {
			w := single()
			w.reserve(held{"a", "q", 5, 20, 2000}, held{"b", "q", 5, 20, 900})
			return w
		}, "q", Policy{Within: LowerOrNewerEqualPriority}, 20, 5, []string{"a InClusterQueue"}},
		"27: not enough of them": {func() *world {
			w := single()
			w.reserve(held{"a", "q", 5, 20, 2000}, held{"b", "q", 5, 20, 900})
			return w
		}, "q", Policy{Within: LowerOrNewerEqualPriority}, 20, 6, nil},
		"27: at the same moment is not later": {func() *world {
			w := single()
			w.reserve(held{"a", "q", 10, 20, 1000})
			return w
		}, "q", Policy{Within: LowerOrNewerEqualPriority}, 20, 5, nil},
		"28: reclaim from anybody":                {ex28, "A", reclaim, 5, 4, []string{"b2 InCohortReclamation"}},
		"28: reclaim from lower ones only":        {ex28, "A", reclaimLower, 5, 4, nil},
		"28: reclaim from lower ones, being high": {ex28, "A", reclaimLower, 60, 4, []string{"b2 InCohortReclamation"}},
		"29: never while borrowing":               {ex29, "A", reclaim, 50, 2, []string{"a1 InClusterQueue"}},
		"29: while borrowing, from lower":         {ex29, "A", Policy{Within: LowerPriority, Reclaim: Any, BorrowWithin: true}, 50, 2, []string{"b1 InCohortReclaimWhileBorrowing"}},
		"29: while borrowing, beyond the bound":   {ex29, "A", Policy{Within: LowerPriority, Reclaim: Any, BorrowWithin: true, Threshold: &bound}, 50, 2, []string{"a1 InClusterQueue"}},
		"29: while borrowing, from nobody lower":  {ex29, "A", Policy{Reclaim: Any, BorrowWithin: true}, 0, 2, nil},
		"30: nobody is taken below nominal": {func() *world {
			w := newWorld(cohort("c", ""), queue("A", "c", 6), queue("B", "c", 3), queue("C", "c", 3))
			w.reserve(held{"b1", "B", 3, 0, 1}, held{"b2", "B", 3, 0, 3}, held{"c1", "C", 3, 0, 2}, held{"c2", "C", 3, 0, 4})
			return w
		}, "A", reclaim, 0, 6, []string{"b2 InCohortReclamation", "c2 InCohortReclamation"}},
		"30: not two of one queue": {func() *world {
			w := newWorld(cohort("c", ""), queue("A", "c", 6), queue("B", "c", 3), queue("C", "c", 3))
			w.reserve(held{"b1", "B", 3, 0, 3}, held{"b2", "B", 3, 0, 4}, held{"c1", "C", 3, 0, 1}, held{"c2", "C", 3, 0, 2})
			return w
		}, "A", reclaim, 0, 6, []string{"b2 InCohortReclamation", "c2 InCohortReclamation"}},
		"31: from outside the subtree":  {ex31, "x", reclaim, 0, 4, []string{"z2 InCohortReclamation"}},
		"31: more than the subtree has": {ex31, "x", reclaim, 0, 5, nil},
		"32: who is within nominal is safe": {func() *world {
			w := newWorld(cohort("c", ""), queue("A", "c", 4), queue("B", "c", 4), queue("C", "c", 4))
			w.reserve(held{"b1", "B", 4, -100, 1}, held{"c1", "C", 6, 100, 2})
			return w
		}, "A", reclaim, 0, 4, []string{"c1 InCohortReclamation"}},
		"what its own queue guarantees counts for the subtree": {func() *world {
			w := newWorld(cohort("root", ""), cohort("t1", "root"), cohort("t2", "root"),
				node{name: "x", parent: "t1", nominal: 4, lend: 1}, queue("y", "t1", 4), queue("z", "t2", 4))
			w.reserve(held{"y1", "y", 1, 0, 1}, held{"z1", "z", 4, 100, 10}, held{"z2", "z", 4, 100, 20})
			return w
		}, "x", reclaim, 0, 5, []string{"z2 InCohortReclamation"}},
		"what its cohort guarantees counts for the subtree above": {func() *world {
			w := newWorld(cohort("root", ""), cohort("m", "root"), node{name: "t1", parent: "m", nominal: 4, lend: 1, cohort: true},
				queue("x", "t1", 0), queue("y", "m", 4), queue("z", "root", 4))
			w.reserve(held{"y1", "y", 1, 0, 1}, held{"z1", "z", 4, 100, 10}, held{"z2", "z", 4, 100, 20})
			return w
		}, "x", reclaim, 0, 5, []string{"z2 InCohortReclamation"}},
		"never": {func() *world {
			w := single()
			w.reserve(held{"a", "q", 10, 0, 1})
			return w
		}, "q", Policy{}, 20, 5, nil},
		"leaving ones first": {func() *world {
			w := single()
			w.reserve(held{"low", "q", 5, 0, 1}, held{"leaving", "q", 5, 9, 2})
			w.holders[w.nodes["q"]][1].Evicting = true
			return w
		}, "q", lower, 20, 5, []string{"leaving InClusterQueue"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := tc.world().search(tc.queue, tc.policy, tc.priority, tc.amount)
			if diff := cmp.Diff(tc.want, describe(targets(s))); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAttempts is spec 10 §4.7.4: whether the preemptor may borrow decides who has to
// go. Borrowing, a2 is enough; within its own quota, it takes a1.
func TestAttempts(t *testing.T) {
	// 12 cpus: A uses more or less of its 4, B 6 of its 4, and the rest is S's, of 4.
	full := func(a1 resource.Amount, b held, fr resource.FR) *world {
		w := newWorld(cohort("c", ""), queue("A", "c", 4), queue("B", "c", 4), queue("S", "c", 4))
		w.reserve(held{"a1", "A", a1, 0, 1}, held{"a2", "A", 1, -1, 2}, held{"b1", "B", 4, 99, 3})
		w.hold(b, fr)
		return w
	}
	low := held{"b2", "B", 2, -5, 4}
	reclaimLower := Policy{Within: LowerPriority, Reclaim: LowerPriority}
	tests := map[string]struct {
		world  *world
		amount resource.Amount
		policy Policy
		want   []string
	}{
		"under nominal: first within its own quota": {full(2, low, cpu), 4, reclaimLower, []string{"a1 InClusterQueue", "a2 InClusterQueue"}},
		"at nominal: it borrows":                    {full(5, low, cpu), 1, reclaimLower, []string{"a2 InClusterQueue"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := tc.world.search("A", tc.policy, 50, tc.amount)
			if diff := cmp.Diff(tc.want, describe(targets(s))); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("candidates elsewhere hold nothing that is short: it borrows", func(t *testing.T) {
		w := newWorld(cohort("c", ""), queue("A", "c", 4), queue("B", "c", 4), queue("S", "c", 2))
		w.reserve(held{"a1", "A", 2, 1, 1}, held{"a2", "A", 1, 0, 2}, held{"b1", "B", 5, 99, 3})
		w.hold(held{"mem", "B", 5, -5, 4}, memory)
		if diff := cmp.Diff([]string{"a2 InClusterQueue"}, describe(targets(w.search("A", reclaimLower, 50, 3)))); diff != "" {
			t.Errorf("victims (-want +got):\n%s", diff)
		}
	})
	t.Run("candidates that use its cohort's quota: it borrows first", func(t *testing.T) {
		w := newWorld(cohort("root", ""), cohort("t1", "root"), cohort("t2", "root"), queue("A", "t1", 4), queue("y", "t1", 4), queue("z", "t2", 4))
		w.reserve(held{"a1", "A", 2, 0, 1}, held{"z1", "z", 4, 99, 1}, held{"z2", "z", 6, 99, 2})
		if diff := cmp.Diff([]string{"z2 InCohortReclamation"}, describe(targets(w.search("A", Policy{Within: LowerPriority, Reclaim: Any}, 50, 3)))); diff != "" {
			t.Errorf("victims (-want +got):\n%s", diff)
		}
	})
	t.Run("candidates elsewhere: within its own quota", func(t *testing.T) {
		w := newWorld(cohort("c", ""), queue("A", "c", 4), queue("B", "c", 4), queue("S", "c", 2))
		w.reserve(held{"a1", "A", 2, 1, 1}, held{"a2", "A", 1, 0, 2}, held{"b1", "B", 4, 99, 3}, held{"b2", "B", 1, -5, 4})
		if diff := cmp.Diff([]string{"a1 InClusterQueue"}, describe(targets(w.search("A", reclaimLower, 50, 3)))); diff != "" {
			t.Errorf("victims (-want +got):\n%s", diff)
		}
	})
}

// TestOtherResource is example 34: who holds nothing of what is short is spared.
func TestOtherResource(t *testing.T) {
	w := newWorld(queue("q", "", 4))
	w.hold(held{"mem", "q", 4, -5, 9}, memory)
	w.hold(held{"cpu", "q", 4, 0, 1}, cpu)
	s := w.search("q", Policy{Within: LowerPriority}, 1, 4)
	if diff := cmp.Diff([]string{"cpu InClusterQueue"}, describe(targets(s))); diff != "" {
		t.Errorf("victims (-want +got):\n%s", diff)
	}
}

// TestOutOfReach: workloads of a queue that is not in the search are no candidates.
func TestOutOfReach(t *testing.T) {
	w := newWorld(cohort("c", ""), queue("A", "c", 4), queue("B", "c", 0))
	w.reserve(held{"b", "B", 4, 0, 1})
	s := w.search("A", Policy{Reclaim: Any}, 1, 4)
	if len(targets(s)) != 1 {
		t.Fatal("b is not a victim to begin with")
	}
	s.Holders = func(quota.Node) *Holders { return nil }
	if got := targets(s); got != nil {
		t.Errorf("victims out of reach: %v", describe(got))
	}
}

func TestWords(t *testing.T) {
	for reason, want := range map[string]string{
		InClusterQueue:              "prioritization in the ClusterQueue",
		InCohortReclamation:         "reclamation within the cohort",
		InCohortReclaimWhileBorrows: "reclamation within the cohort while borrowing",
		InCohortFairSharing:         "Fair Sharing within the cohort",
		"Other":                     "Other",
	} {
		if got := Words(reason); got != want {
			t.Errorf("Words(%s) = %q, want %q", reason, got, want)
		}
	}
}

// TestDimension: victims are enough when the preemptor fits in every dimension, also one that this
// package does not know, and one that frees nothing of use there is spared.
func TestDimension(t *testing.T) {
	w := newWorld(queue("A", "", 10))
	racks := &ledgertest.Racks{Free: []resource.Amount{0}}
	key := w.l.Extend(racks)
	for name, seats := range map[string]resource.Amount{"a1": 0, "a2": 1, "a3": 2, "a4": 2} {
		wl := w.hold(held{name: name, queue: "A", amount: 2, priority: int64(name[1] - '0')}, cpu)
		wl.Usage = wl.Usage.With(key, ledgertest.Seats{seats})
	}
	s := w.search("A", Policy{Within: LowerPriority}, 50, 4)
	if diff := cmp.Diff([]string{"a1 InClusterQueue"}, describe(targets(s))); diff != "" {
		t.Errorf("without seats: %s", diff)
	}
	s.Requests = s.Requests.With(key, ledgertest.Seats{3})
	if diff := cmp.Diff([]string{"a2 InClusterQueue", "a3 InClusterQueue"}, describe(targets(s))); diff != "" {
		t.Errorf("with seats: %s", diff)
	}
	if racks.Free[0] != 0 {
		t.Errorf("%d seats are free afterwards", racks.Free[0])
	}
}
