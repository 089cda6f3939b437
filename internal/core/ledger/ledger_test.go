package ledger_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/ledger/ledgertest"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/worldtest"
)

func TestMain(m *testing.M) { os.Exit(worldtest.Main(m)) }

const (
	frs      = 3
	rackSize = 8
)

// plan is the nodes of a ledger: each has a parent before it, or none.
type plan []struct {
	parent quota.Node
	cohort bool
	cells  []quota.Cell
}

func drawPlan(t *rapid.T) (p plan) {
	limit := rapid.SampledFrom([]resource.Amount{quota.NoLimit, quota.NoLimit, 0, 3})
	add := func(cohort bool, parents []quota.Node) {
		n := struct {
			parent quota.Node
			cohort bool
			cells  []quota.Cell
		}{parent: rapid.SampledFrom(parents).Draw(t, "parent"), cohort: cohort}
		for fr := range resource.FR(frs) {
			n.cells = append(n.cells, quota.Cell{
				FR: fr, Nominal: resource.Amount(rapid.IntRange(0, 9).Draw(t, "nominal")),
				Borrow: limit.Draw(t, "borrow"), Lend: limit.Draw(t, "lend"),
			})
		}
		p = append(p, n)
	}
	parents := []quota.Node{quota.None}
	for i := range rapid.IntRange(0, 3).Draw(t, "cohorts") {
		add(true, parents)
		parents = append(parents, quota.Node(i))
	}
	for range rapid.IntRange(1, 4).Draw(t, "queues") {
		add(false, parents)
	}
	return p
}

// build makes the ledger of a plan, with a dimension of which no usage has a part, and racks.
func (p plan) build() (*ledger.Ledger, *ledgertest.Racks) {
	table := resource.NewTable()
	for fr := range frs {
		table.FR(fmt.Sprint("f", fr), "cpu")
	}
	l, r := ledger.New(table), &ledgertest.Racks{Free: []resource.Amount{rackSize, rackSize}}
	for i, n := range p {
		l.Quota.Add(fmt.Sprint("n", i), n.cohort)
		l.Quota.SetParent(quota.Node(i), n.parent)
		l.Quota.SetQuota(quota.Node(i), n.cells)
	}
	l.Quota.Recompute()
	if l.Extend(&ledgertest.Racks{}) != none || l.Extend(r) != racks {
		panic("the keys of the dimensions are not their numbers")
	}
	return l, r
}

// holding is a usage that is charged to a queue.
type holding struct {
	n quota.Node
	u ledger.Usage
}

// model is a ledger, and what is charged there as a list.
type model struct {
	plan
	l     *ledger.Ledger
	racks *ledgertest.Racks
	held  []holding
	marks []point
}

// point is a mark, and the list then.
type point struct {
	mark ledger.Mark
	held []holding
}

func (m *model) drawUsage(t *rapid.T) ledger.Usage {
	var a amounts
	for range frs {
		n := resource.Amount(rapid.IntRange(-4, 9).Draw(t, "amount"))
		if n == 9 {
			n = resource.Unlimited
		}
		a = append(a, n)
	}
	if rapid.Bool().Draw(t, "quota alone") {
		return of(a)
	}
	return of(a, resource.Amount(rapid.IntRange(0, 5).Draw(t, "seats")), resource.Amount(rapid.IntRange(0, 5).Draw(t, "seats")))
}

func (m *model) drawQueue(t *rapid.T) quota.Node {
	var queues []quota.Node
	for i, n := range m.plan {
		if !n.cohort {
			queues = append(queues, quota.Node(i))
		}
	}
	return rapid.SampledFrom(queues).Draw(t, "queue")
}

func (m *model) charge(t *rapid.T) {
	h := holding{m.drawQueue(t), m.drawUsage(t)}
	m.l.Charge(h.n, h.u)
	m.held = append(slices.Clone(m.held), h)
}

// pick takes a holding off the list.
func (m *model) pick(t *rapid.T) holding {
	if len(m.held) == 0 {
		t.Skip("nothing is charged")
	}
	i := rapid.IntRange(0, len(m.held)-1).Draw(t, "holding")
	h := m.held[i]
	m.held = slices.Delete(slices.Clone(m.held), i, i+1)
	return h
}

// release releases a usage whose sums are not saturated: else it has to be returned.
func (m *model) release(t *rapid.T) {
	held := m.held
	h := m.pick(t)
	for _, e := range h.u.Quota {
		for n := h.n; n != quota.None; n = m.l.Quota.Parent(n) {
			if m.l.Quota.Usage(n, e.FR) == resource.Unlimited {
				m.held = held
				t.Skip("a sum is saturated")
			}
		}
	}
	m.l.Release(h.n, h.u)
}

// giveBack returns a usage: all sums are right afterwards, and searches of its queue, which have a
// generation, start over.
func (m *model) giveBack(t *rapid.T) {
	if len(m.marks) > 0 {
		t.Skip("a speculation returns nothing")
	}
	h := m.pick(t)
	var before []uint64
	for n := range m.plan {
		before = append(before, m.l.Quota.Generation(quota.Node(n)))
	}
	m.l.Return(h.n, h.u, func(yield func(ledger.Usage) bool) {
		for _, o := range m.held {
			if o.n == h.n && !yield(o.u) {
				return
			}
		}
	})
	before[h.n]++
	for n := range m.plan {
		if got := m.l.Quota.Generation(quota.Node(n)); got != before[n] {
			t.Fatalf("the generation of node %d is %d, want %d", n, got, before[n])
		}
	}
}

func (m *model) mark(t *rapid.T) {
	if len(m.marks) == 4 {
		t.Skip("deep enough")
	}
	m.marks = append(m.marks, point{m.l.Mark(), m.held})
}

func (m *model) rollback(t *rapid.T) {
	last := len(m.marks) - 1
	if last < 0 {
		t.Skip("no mark")
	}
	m.l.Rollback(m.marks[last].mark)
	m.held, m.marks = m.marks[last].held, m.marks[:last]
}

// check compares the ledger with the list: with sums over it, and with a ledger that was charged
// with nothing else.
func (m *model) check(t *rapid.T) {
	fresh, _ := m.build()
	free := amounts{rackSize, rackSize}
	sums := make([]resource.Vector, len(m.plan))
	for _, h := range m.held {
		fresh.Charge(h.n, h.u)
		sums[h.n] = sums[h.n].Sum(h.u.Quota)
		if p := h.u.Part(racks); p != nil {
			for rack, n := range p.(ledgertest.Seats) {
				free[rack] -= n
			}
		}
	}
	if !slices.Equal(free, m.racks.Free) {
		t.Fatalf("%v seats are free, want %v", m.racks.Free, free)
	}
	for i, d := range m.plan {
		n := quota.Node(i)
		for fr := range resource.FR(frs) {
			used := m.l.Quota.Usage(n, fr)
			if !d.cohort && used != sums[n].Of(fr) {
				t.Fatalf("queue %d uses %d of %d, want %d", n, used, fr, sums[n].Of(fr))
			}
			if want := fresh.Quota.Usage(n, fr); used != want {
				t.Fatalf("node %d uses %d of %d, want %d", n, used, fr, want)
			}
			if got, want := m.l.Available(n, fr), fresh.Available(n, fr); got != want {
				t.Fatalf("%d of %d is available to node %d, want %d", got, fr, n, want)
			}
		}
	}
	n, u := m.drawQueue(t), m.drawUsage(t)
	fits := true
	for _, e := range u.Quota {
		fits = fits && e.Amount <= m.l.Available(n, e.FR)
	}
	if p := u.Part(racks); p != nil {
		for rack, seats := range p.(ledgertest.Seats) {
			fits = fits && seats <= free[rack]
		}
	}
	if got := m.l.Fits(n, u); got != fits {
		t.Fatalf("%v fits in queue %d: %v, want %v", show(u), n, got, fits)
	}
	if len(m.marks) == 0 && m.l.Undoable() > 0 {
		t.Fatalf("%d entries are left in the undo log", m.l.Undoable())
	}
}

// TestTwin: whatever is charged, released, returned, marked and rolled back, the figures of every
// dimension are the ones of a list of what is charged.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{plan: drawPlan(t)}
		m.l, m.racks = m.build()
		t.Repeat(map[string]func(*rapid.T){
			"": m.check, "charge": m.charge, "charge more": m.charge, "release": m.release, "return": m.giveBack,
			"mark": m.mark, "rollback": m.rollback,
		})
	})
}

// TestReach: an FR without quota at any node can be charged at once.
func TestReach(t *testing.T) {
	table := resource.NewTable()
	l := ledger.New(table)
	n := l.Quota.Add("queue", false)
	l.Quota.Recompute()
	fr := table.FR("new", "cpu")
	l.Charge(n, ledger.Usage{Quota: resource.Vector{{FR: fr, Amount: 3}}})
	if got := l.Quota.Usage(n, fr); got != 3 {
		t.Errorf("%d is used, want 3", got)
	}
}

// TestAllocations: a usage of quota alone costs no memory, and a rollback of others none either.
func TestAllocations(t *testing.T) {
	cell := quota.Cell{FR: 0, Nominal: 9, Borrow: quota.NoLimit, Lend: quota.NoLimit}
	p := plan{{parent: quota.None, cohort: true}, {parent: 0, cells: []quota.Cell{cell}}}
	l, _ := p.build()
	const queue = 1
	u := of(amounts{2, 1})
	stay := func(yield func(ledger.Usage) bool) { yield(u) }
	for name, do := range map[string]func(){
		"charge and release": func() { l.Charge(queue, u); l.Release(queue, u) },
		"charge and return":  func() { l.Charge(queue, u); l.Return(queue, u, stay) },
		"fits":               func() { l.Fits(queue, u) },
		"available":          func() { l.Available(queue, 0) },
		"speculation":        func() { m := l.Mark(); l.Charge(queue, u); l.Rollback(m) },
		"equal":              func() { u.Equal(u) },
	} {
		do() // room in the buffers
		if n := testing.AllocsPerRun(100, do); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
