package quota

import (
	"math"
	"slices"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/resource"
)

// pair is a forest and its twin, told the same.
type pair struct {
	f    *Dimension
	w    *twin
	frs  int
	held []holding

	// As of the last settle or look.
	touched     map[Node]bool // nodes edited since
	cyclic      map[Node]bool
	generations map[Node]uint64
	cells       []cell
	version     uint64
}

type holding struct {
	n Node
	v resource.Vector
}

func drawPair(t *rapid.T) *pair {
	p := &pair{f: newForest(), w: &twin{nodes: map[Node]*twinNode{}}, frs: rapid.IntRange(1, 5).Draw(t, "frs"), touched: map[Node]bool{}}
	for range rapid.IntRange(1, 8).Draw(t, "nodes") {
		p.add(t)
	}
	p.recompute(t)
	return p
}

// recompute recomputes the forest, and compares the result with the edits.
func (p *pair) recompute(t *rapid.T) {
	p.f.Reach(resource.FR(p.frs - 1))
	roots := p.f.Recompute()
	if !slices.IsSorted(roots) || len(slices.Compact(slices.Clone(roots))) != len(roots) {
		t.Fatalf("roots %d are not sorted", roots)
	}
	want := map[Node]bool{}
	for n := range p.touched {
		want[p.w.root(n)] = true
	}
	cyclic := map[Node]bool{}
	for _, n := range p.list(nil) {
		cyclic[n] = p.w.inCycle(n)
		if was, known := p.cyclic[n]; known && was != cyclic[n] {
			want[p.w.root(n)] = true
		}
	}
	for n := range want {
		if !slices.Contains(roots, n) {
			t.Fatalf("the tree of node %d was edited, settled are only %d", n, roots)
		}
	}
	for _, n := range roots {
		if !want[n] && !cyclic[n] {
			t.Fatalf("the tree of node %d was settled and not edited", n)
		}
	}
	generations := map[Node]uint64{}
	for _, n := range p.list(nil) {
		generations[n] = p.f.Generation(n)
		was, known := p.generations[n]
		if recomputed := slices.Contains(roots, p.w.root(n)); known && recomputed != (generations[n] > was) {
			t.Fatalf("node %d: settled %v, its generation was %d, is %d", n, recomputed, was, generations[n])
		}
	}
	p.touched, p.cyclic, p.generations = map[Node]bool{}, cyclic, generations
	if again := p.f.Recompute(); len(again) > 0 {
		t.Fatalf("a settled forest settles %d", again)
	}
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
	n := p.f.Add("n", cohort)
	if p.w.nodes[n] != nil {
		t.Fatalf("number %d is given twice", n)
	}
	p.w.nodes[n] = &twinNode{parent: None, cohort: cohort, weight: DefaultWeight, usage: map[resource.FR]resource.Amount{}}
	p.touched[n] = true
	delete(p.generations, n)
	delete(p.cyclic, n)
	p.move(t, n)
	p.edit(t, n)
	p.weigh(t, n)
}

func (p *pair) move(t *rapid.T, n Node) {
	parents := append([]Node{None}, p.list(p.isCohort)...)
	parent := rapid.SampledFrom(parents).Draw(t, "parent")
	if was := p.w.nodes[n].parent; was != parent {
		p.touched[n] = true
		if was != None {
			p.touched[was] = true
		}
	}
	p.w.nodes[n].parent = parent
	p.f.SetParent(n, parent)
}

// amounts are quotas and limits; two of the largest finite ones are past counting.
var amounts = rapid.SampledFrom([]resource.Amount{0, 1, 2, 3, 5, 8, 1000, 1 << 62, resource.Unlimited})

// charges are small, but for a few.
var charges = rapid.SampledFrom([]resource.Amount{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12, 1 << 62, resource.Unlimited})

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
	p.touched[n] = true
	p.f.SetQuota(n, list)
}

func (p *pair) weigh(t *rapid.T, n Node) {
	weight := rapid.SampledFrom([]Weight{1e9, 0, 1, 1e6, 5e8, 1e9, 2.5e9, 100_000, 900_000, math.MaxInt64}).Draw(t, "weight")
	p.w.nodes[n].weight = weight
	version := p.f.Version()
	if p.f.SetWeight(n, weight); p.f.Version() == version {
		t.Fatal("a weight changed and the version did not")
	}
}

func (p *pair) charge(t *rapid.T) {
	n := p.pick(t, "queue", p.isQueue)
	var v resource.Vector
	for fr := range p.frs {
		v = v.Plus(resource.FR(fr), charges.Draw(t, "amount"))
	}
	p.f.Reach(resource.FR(p.frs - 1))
	p.f.Charge(n, v)
	p.held = append(p.held, holding{n, v})
	p.sum(n)
}

func (p *pair) release(t *rapid.T) {
	if len(p.held) == 0 {
		t.Skip("nothing charged")
	}
	i := rapid.IntRange(0, len(p.held)-1).Draw(t, "which")
	h := p.held[i]
	p.held = slices.Delete(p.held, i, i+1)
	total := p.sum(h.n)
	if p.f.Saturated(h.n, h.v) {
		p.f.Recount(h.n, total)
	} else {
		p.f.Release(h.n, h.v)
	}
}

// sum tells the twin what n uses, and returns it.
func (p *pair) sum(n Node) (total resource.Vector) {
	usage := map[resource.FR]resource.Amount{}
	for _, h := range p.held {
		for _, e := range h.v {
			if h.n == n {
				usage[e.FR] = usage[e.FR].Add(e.Amount)
				total = total.Plus(e.FR, e.Amount)
			}
		}
	}
	p.w.nodes[n].usage = usage
	return total
}

func (p *pair) remove(t *rapid.T) {
	n := p.pick(t, "unused node", func(n Node) bool {
		return !slices.ContainsFunc(p.held, func(h holding) bool { return h.n == n })
	})
	if parent := p.w.nodes[n].parent; parent != None {
		p.touched[parent] = true
	}
	for kid, node := range p.w.nodes {
		if node.parent == n {
			node.parent = None
			p.touched[kid] = true
		}
	}
	delete(p.w.nodes, n)
	delete(p.touched, n)
	p.f.Remove(n)
}

// look settles now and then, and compares everything.
func (p *pair) look(t *rapid.T) {
	if rapid.IntRange(0, 2).Draw(t, "look") == 0 {
		return
	}
	p.recompute(t)
	p.agree(t)
	p.agreeOnShares(t)
	p.agreeWithScratch(t)
	if cells := slices.Clone(p.f.cells); !slices.Equal(cells, p.cells) && p.f.Version() == p.version {
		t.Fatal("figures changed and the version did not")
	}
	p.cells, p.version = slices.Clone(p.f.cells), p.f.Version()
}

// agree compares what the twin can be asked.
func (p *pair) agree(t *rapid.T) {
	for _, n := range p.list(nil) {
		for i := range p.frs {
			fr := resource.FR(i)
			if p.w.inCycle(n) {
				if p.f.Root(n) != None || p.f.Available(n, fr) != 0 || p.f.Potential(n, fr) != 0 ||
					(p.isQueue(n) && p.f.Usage(n, fr) != p.w.u(n, fr)) {
					t.Fatalf("node %d is below a cycle: root %d, available %d", n, p.f.Root(n), p.f.Available(n, fr))
				}
				continue
			}
			avail, at, limited := p.w.avail(n, fr)
			for _, pair := range []struct {
				what         string
				forest, twin resource.Amount
			}{
				{"root", resource.Amount(p.f.Root(n)), resource.Amount(p.w.root(n))},
				{"height", resource.Amount(p.f.nodes[n].height), resource.Amount(p.w.height(n))},
				{"usage", p.f.Usage(n, fr), p.w.u(n, fr)},
				{"subtree", p.f.Subtree(n, fr), p.w.s(n, fr)},
				{"local", p.f.Local(n, fr), p.w.la(n, fr)},
				{"available", p.f.Available(n, fr), max(0, avail)},
				{"potential", p.f.Potential(n, fr), p.w.potential(n, fr)},
			} {
				if pair.forest != pair.twin {
					t.Fatalf("%s of node %d, FR %d: forest %d, twin %d", pair.what, n, fr, pair.forest, pair.twin)
				}
			}
			if most := p.f.Most(n, fr); max(0, avail) > most {
				t.Fatalf("node %d, FR %d: %d are available, %d at most", n, fr, avail, most)
			}
			if a, l := p.f.Bottleneck(n, fr); a != at || l != limited {
				t.Fatalf("bottleneck of node %d, FR %d: forest %d %v, twin %d %v", n, fr, a, l, at, limited)
			}
			v := amounts.Draw(t, "asked")
			level, reclaim := p.f.Level(n, fr, v)
			if l, r := p.w.level(n, fr, v); level != l || reclaim != r {
				t.Fatalf("level of %d in node %d, FR %d: forest %d %v, twin %d %v", v, n, fr, level, reclaim, l, r)
			}
			if fits := p.f.Fits(n, resource.Vector{{FR: fr, Amount: v}}); fits != (v <= max(0, avail)) {
				t.Fatalf("fit of %d in node %d, FR %d: %v with %d available", v, n, fr, fits, avail)
			}
		}
	}
}

// agreeOnShares compares shares, each with the twin's and every two with one another.
func (p *pair) agreeOnShares(t *rapid.T) {
	nodes := p.list(nil)
	for _, n := range nodes {
		got, want := p.f.Share(n), p.w.share(n, p.f.table, p.frs)
		if got.IsZero() != (want.ratio.Sign() == 0) || got.Infinite() != want.infinite() || got.Ceil() != want.ceil() {
			t.Fatalf("share of node %d: %v, zero %v, ceil %d; twin %v", n, got, got.IsZero(), got.Ceil(), want)
		}
		exact, _ := want.value().Float64()
		if v := got.Value(); !want.infinite() && (v > exact*(1+1e-15) || v < exact*(1-1e-15)) {
			t.Fatalf("value of the share of node %d: %v, twin %v", n, v, exact)
		}
		borrows := false
		for fr := range p.frs {
			borrows = borrows || (!p.w.inCycle(n) && p.w.nodes[n].parent != None && p.w.borrows(n, resource.FR(fr), 0))
		}
		if p.f.Borrows(n) != borrows {
			t.Fatalf("node %d borrows: forest %v, twin %v", n, p.f.Borrows(n), borrows)
		}
		for _, o := range nodes {
			if got, want := got.Compare(p.f.Share(o)), want.compare(p.w.share(o, p.f.table, p.frs)); got != want {
				t.Fatalf("shares of nodes %d and %d compare as %d, twin %d", n, o, got, want)
			}
		}
	}
}

// agreeWithScratch compares with a forest that was told the end of the story only.
func (p *pair) agreeWithScratch(t *rapid.T) {
	f, number := newForest(), map[Node]Node{None: None}
	nodes := p.list(nil)
	for _, n := range nodes {
		number[n] = f.Add("", p.isCohort(n))
	}
	for _, n := range nodes {
		f.SetParent(number[n], number[p.w.nodes[n].parent])
		var cells []Cell
		for fr := range p.frs {
			if c, ok := p.w.nodes[n].cells[resource.FR(fr)]; ok {
				cells = append(cells, c)
			}
		}
		f.SetQuota(number[n], cells)
	}
	f.Reach(resource.FR(p.frs - 1))
	for _, h := range p.held {
		f.Charge(number[h.n], h.v)
	}
	f.Recompute()
	for _, n := range nodes {
		m := number[n]
		got, want := p.f.nodes[n], f.nodes[m]
		if number[got.root] != want.root || got.height != want.height || len(got.path) != len(want.path) || len(got.kids) != len(want.kids) {
			t.Fatalf("node %d: %+v, from scratch %+v", n, got, want)
		}
		for i := range got.path {
			if number[got.path[i]] != want.path[i] {
				t.Fatalf("path of node %d: %d, from scratch %d", n, got.path, want.path)
			}
		}
		if !slices.Equal(p.f.row(n), f.row(m)) {
			t.Fatalf("node %d: %+v, from scratch %+v", n, p.f.row(n), f.row(m))
		}
		for fr := range p.frs {
			if got, want := p.f.lendable[int(n)*p.f.stride+fr], f.lendable[int(m)*f.stride+fr]; got != want {
				t.Fatalf("node %d can lend %d, from scratch %d", n, got, want)
			}
		}
	}
}
