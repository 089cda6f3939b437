package quota

import (
	"flag"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/resource"
)

// TestMain runs ten times as many checks as rapid does by itself.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// twin is the forest as the formulas of spec 10 §4.3.2 have it: recursive, nothing
// stored but what was said and what the leaves use.
type twin struct {
	nodes map[Node]*twinNode
}

type twinNode struct {
	parent Node
	cohort bool
	cells  map[resource.FR]Cell
	usage  map[resource.FR]resource.Amount // of a leaf
}

func (w *twin) cell(n Node, fr resource.FR) Cell {
	if c, ok := w.nodes[n].cells[fr]; ok {
		return c
	}
	return Cell{fr, 0, NoLimit, NoLimit}
}

func (w *twin) kids(n Node) (kids []Node) {
	for k, node := range w.nodes {
		if node.parent == n {
			kids = append(kids, k)
		}
	}
	return kids
}

func (w *twin) inCycle(n Node) bool {
	for seen := map[Node]bool{}; n != None; n = w.nodes[n].parent {
		if seen[n] {
			return true
		}
		seen[n] = true
	}
	return false
}

func (w *twin) s(n Node, fr resource.FR) resource.Amount {
	sum := w.cell(n, fr).Nominal
	for _, k := range w.kids(n) {
		sum = sum.Add(w.s(k, fr).Sub(w.g(k, fr)))
	}
	return sum
}

func (w *twin) g(n Node, fr resource.FR) resource.Amount {
	if l := w.cell(n, fr).Lend; l != NoLimit {
		return max(0, w.s(n, fr).Sub(l))
	}
	return 0
}

func (w *twin) u(n Node, fr resource.FR) resource.Amount {
	if !w.nodes[n].cohort {
		return w.nodes[n].usage[fr]
	}
	var sum resource.Amount
	for _, k := range w.kids(n) {
		sum = sum.Add(max(0, w.u(k, fr).Sub(w.g(k, fr))))
	}
	return sum
}

func (w *twin) la(n Node, fr resource.FR) resource.Amount {
	return max(0, w.g(n, fr).Sub(w.u(n, fr)))
}

func (w *twin) avail(n Node, fr resource.FR) resource.Amount {
	if w.nodes[n].parent == None {
		return w.s(n, fr).Sub(w.u(n, fr))
	}
	p := w.avail(w.nodes[n].parent, fr)
	if b := w.cell(n, fr).Borrow; b != NoLimit {
		p = min(p, w.s(n, fr).Sub(w.g(n, fr)).Sub(max(0, w.u(n, fr).Sub(w.g(n, fr)))).Add(b))
	}
	return w.la(n, fr).Add(p)
}

func (w *twin) potential(n Node, fr resource.FR) resource.Amount {
	if w.nodes[n].parent == None {
		return w.s(n, fr)
	}
	total := w.g(n, fr).Add(w.potential(w.nodes[n].parent, fr))
	if b := w.cell(n, fr).Borrow; b != NoLimit {
		total = min(total, w.s(n, fr).Add(b))
	}
	return total
}

func (w *twin) height(n Node) int {
	h := 0
	for _, k := range w.kids(n) {
		h = max(h, 1, w.height(k)+1)
	}
	return h
}

func (w *twin) borrows(n Node, fr resource.FR, v resource.Amount) bool {
	return w.s(n, fr) < w.u(n, fr).Add(v)
}

func (w *twin) level(n Node, fr resource.FR, v resource.Amount) (int, bool) {
	parent := w.nodes[n].parent
	if parent == None || !w.borrows(n, fr, v) {
		return 0, parent != None
	}
	for rest := v.Sub(w.la(n, fr)); ; {
		at := parent
		parent = w.nodes[at].parent
		if !w.borrows(at, fr, rest) {
			return w.height(at), parent != None
		}
		if parent == None {
			return w.height(at), false
		}
		rest = rest.Sub(w.la(at, fr))
	}
}

// pair is a forest and its twin, told the same.
type pair struct {
	f    *Forest
	w    *twin
	frs  int
	held []holding
}

type holding struct {
	n Node
	v resource.Vector
}

func drawPair(t *rapid.T) *pair {
	p := &pair{f: NewForest(), w: &twin{nodes: map[Node]*twinNode{}}, frs: rapid.IntRange(1, 3).Draw(t, "frs")}
	for range rapid.IntRange(1, 8).Draw(t, "nodes") {
		p.add(t)
	}
	p.settle()
	return p
}

func (p *pair) settle() {
	for fr := range p.frs {
		p.f.Reach(resource.FR(fr))
	}
	p.f.Settle()
}

func (p *pair) list(which func(Node) bool) (nodes []Node) {
	for n := range p.w.nodes {
		if which == nil || which(n) {
			nodes = append(nodes, n)
		}
	}
	slices.Sort(nodes)
	return nodes
}

func (p *pair) pick(t *rapid.T, what string, which func(Node) bool) Node {
	nodes := p.list(which)
	if len(nodes) == 0 {
		t.Skip("no " + what)
	}
	return rapid.SampledFrom(nodes).Draw(t, what)
}

func (p *pair) isCohort(n Node) bool { return p.w.nodes[n].cohort }
func (p *pair) isQueue(n Node) bool  { return !p.w.nodes[n].cohort }

func (p *pair) add(t *rapid.T) {
	cohort := rapid.Bool().Draw(t, "cohort")
	n := p.f.Add(cohort)
	p.w.nodes[n] = &twinNode{parent: None, cohort: cohort, usage: map[resource.FR]resource.Amount{}}
	p.move(t, n)
	p.edit(t, n)
}

func (p *pair) move(t *rapid.T, n Node) {
	parents := append([]Node{None}, p.list(p.isCohort)...)
	parent := rapid.SampledFrom(parents).Draw(t, "parent")
	if parent == n {
		parent = None
	}
	p.w.nodes[n].parent = parent
	p.f.SetParent(n, parent)
	p.settle()
}

var amounts = rapid.SampledFrom([]resource.Amount{0, 1, 2, 3, 5, 8, 1000, resource.Unlimited})

func (p *pair) edit(t *rapid.T, n Node) {
	cells := map[resource.FR]Cell{}
	var list []Cell
	for fr := range p.frs {
		if rapid.IntRange(0, 3).Draw(t, "has") == 3 {
			continue
		}
		limit := rapid.OneOf(rapid.Just(NoLimit), amounts)
		c := Cell{resource.FR(fr), amounts.Draw(t, "nominal"), limit.Draw(t, "borrow"), limit.Draw(t, "lend")}
		cells[c.FR] = c
		list = append(list, c)
	}
	p.w.nodes[n].cells = cells
	p.f.SetQuota(n, list)
	p.settle()
}

func (p *pair) charge(t *rapid.T) {
	n := p.pick(t, "queue", p.isQueue)
	var v resource.Vector
	for fr := range p.frs {
		v = v.Plus(resource.FR(fr), resource.Amount(rapid.Int64Range(0, 12).Draw(t, "amount")))
	}
	p.f.Charge(n, v)
	for _, e := range v {
		p.w.nodes[n].usage[e.FR] += e.Amount
	}
	p.held = append(p.held, holding{n, v})
}

func (p *pair) release(t *rapid.T) {
	if len(p.held) == 0 {
		t.Skip("nothing charged")
	}
	i := rapid.IntRange(0, len(p.held)-1).Draw(t, "which")
	h := p.held[i]
	p.held = slices.Delete(p.held, i, i+1)
	p.f.Release(h.n, h.v)
	for _, e := range h.v {
		p.w.nodes[h.n].usage[e.FR] -= e.Amount
	}
}

func (p *pair) remove(t *rapid.T) {
	n := p.pick(t, "unused node", func(n Node) bool {
		return !slices.ContainsFunc(p.held, func(h holding) bool { return h.n == n })
	})
	for _, node := range p.w.nodes {
		if node.parent == n {
			node.parent = None
		}
	}
	delete(p.w.nodes, n)
	p.f.Remove(n)
	p.settle()
}

func (p *pair) agree(t *rapid.T) {
	for _, n := range p.list(nil) {
		for i := range p.frs {
			fr := resource.FR(i)
			if p.w.inCycle(n) {
				if p.f.Root(n) != None || p.f.Available(n, fr) != 0 || (p.isQueue(n) && p.f.Usage(n, fr) != p.w.u(n, fr)) {
					t.Fatalf("node %d is below a cycle: root %d, available %d", n, p.f.Root(n), p.f.Available(n, fr))
				}
				continue
			}
			for what, pair := range map[string][2]resource.Amount{
				"usage":     {p.f.Usage(n, fr), p.w.u(n, fr)},
				"subtree":   {p.f.Subtree(n, fr), p.w.s(n, fr)},
				"local":     {p.f.Local(n, fr), p.w.la(n, fr)},
				"available": {p.f.Available(n, fr), max(0, p.w.avail(n, fr))},
				"potential": {p.f.Potential(n, fr), p.w.potential(n, fr)},
			} {
				if pair[0] != pair[1] {
					t.Fatalf("%s of node %d, FR %d: forest %d, twin %d", what, n, fr, pair[0], pair[1])
				}
			}
			v := amounts.Draw(t, "asked")
			level, reclaim := p.f.Level(n, fr, v)
			if l, r := p.w.level(n, fr, v); level != l || reclaim != r {
				t.Fatalf("level of %d in node %d, FR %d: forest %d %v, twin %d %v", v, n, fr, level, reclaim, l, r)
			}
		}
	}
}

// TestTwin: edits, charges and releases in any order leave the forest what the
// formulas say.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPair(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"":            p.agree,
			"add":         func(t *rapid.T) { p.add(t) },
			"remove":      p.remove,
			"move":        func(t *rapid.T) { p.move(t, p.pick(t, "node", nil)) },
			"edit":        func(t *rapid.T) { p.edit(t, p.pick(t, "node", nil)) },
			"charge":      p.charge,
			"charge more": p.charge,
			"release":     p.release,
		})
	})
}

// TestReleaseIsInverse: after releasing in any order, everything is as it was.
func TestReleaseIsInverse(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPair(rt)
		for range rapid.IntRange(0, 3).Draw(rt, "before") {
			p.charge(rt)
		}
		before := slices.Clone(p.f.usage)
		first := len(p.held)
		for range rapid.IntRange(1, 8).Draw(rt, "charges") {
			p.charge(rt)
		}
		for _, h := range rapid.Permutation(p.held[first:]).Draw(rt, "order") {
			p.f.Release(h.n, h.v)
		}
		if !slices.Equal(before, p.f.usage) {
			rt.Fatalf("usage was %d, is %d", before, p.f.usage)
		}
	})
}

// TestRollback: whatever happens in speculations, nested ones too, leaves no trace.
func TestRollback(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPair(rt)
		p.charge(rt)
		before := slices.Clone(p.f.usage)
		outer := p.f.Mark()
		p.charge(rt)
		p.release(rt)
		middle := slices.Clone(p.f.usage)
		inner := p.f.Mark()
		for range rapid.IntRange(0, 4).Draw(rt, "charges") {
			p.charge(rt)
		}
		p.f.Rollback(inner)
		if !slices.Equal(middle, p.f.usage) {
			rt.Fatalf("after the inner rollback usage is %d, was %d", p.f.usage, middle)
		}
		p.f.Rollback(outer)
		if !slices.Equal(before, p.f.usage) || len(p.f.log) != 0 || p.f.speculating != 0 {
			rt.Fatalf("after the rollback usage is %d, was %d; %d left in the log", p.f.usage, before, len(p.f.log))
		}
	})
}

// TestGuarantee: as long as everyone takes no more than what is available, a node
// always gets what it guarantees to itself, and nobody passes its borrowing limit.
func TestGuarantee(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPair(rt)
		for range 20 {
			n := p.pick(rt, "queue", p.isQueue)
			fr := resource.FR(rapid.IntRange(0, p.frs-1).Draw(rt, "fr"))
			amount := min(p.f.Available(n, fr), resource.Amount(rapid.Int64Range(0, 12).Draw(rt, "amount")))
			v := resource.Vector{{FR: fr, Amount: amount}}
			if !p.w.inCycle(n) && !p.f.Fits(n, v) {
				rt.Fatalf("%d is available in node %d and does not fit", amount, n)
			}
			p.f.Charge(n, v)
		}
		for _, n := range p.list(p.isQueue) {
			if p.w.inCycle(n) {
				continue
			}
			for i := range p.frs {
				fr := resource.FR(i)
				if p.f.Available(n, fr) < p.f.Local(n, fr) {
					rt.Fatalf("node %d guarantees itself %d more, and has %d", n, p.f.Local(n, fr), p.f.Available(n, fr))
				}
				c := p.w.cell(n, fr)
				if over := p.f.Usage(n, fr).Sub(c.Nominal); c.Borrow != NoLimit && p.f.Parent(n) != None && over > c.Borrow {
					rt.Fatalf("node %d borrows %d, past its limit %d", n, over, c.Borrow)
				}
				if p.f.Usage(n, fr) < 0 || p.f.Usage(n, fr) > p.f.Potential(n, fr) {
					rt.Fatalf("node %d uses %d of at most %d", n, p.f.Usage(n, fr), p.f.Potential(n, fr))
				}
			}
		}
	})
}
