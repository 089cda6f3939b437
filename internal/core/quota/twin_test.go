package quota

import (
	"math"
	"math/big"

	"github.com/berth-project/berth/internal/core/resource"
)

// twin is the forest as the formulas of spec 10 §4.3.2 have it: recursive, nothing
// stored but the quota and the usage of the leaves.
type twin struct {
	nodes map[Node]*twinNode
}

type twinNode struct {
	parent Node
	cohort bool
	weight Weight
	cells  map[resource.FR]Cell
	usage  map[resource.FR]resource.Amount // of a leaf
}

func (w *twin) cell(n Node, fr resource.FR) Cell {
	if c, ok := w.nodes[n].cells[fr]; ok {
		return c
	}
	return Cell{fr, 0, NoLimit, NoLimit}
}

// kids are the children in any order: sums, maxima and "any of them" do not depend on it.
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

// root is that of the tree; below a cycle the node itself.
func (w *twin) root(n Node) Node {
	if w.inCycle(n) {
		return n
	}
	for w.nodes[n].parent != None {
		n = w.nodes[n].parent
	}
	return n
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

// avail returns what is available and which node, by its borrowing limit or as the
// root, says so.
func (w *twin) avail(n Node, fr resource.FR) (avail resource.Amount, at Node, limited bool) {
	if w.nodes[n].parent == None {
		return w.s(n, fr).Sub(w.u(n, fr)), n, false
	}
	avail, at, limited = w.avail(w.nodes[n].parent, fr)
	if b := w.cell(n, fr).Borrow; b != NoLimit {
		most := w.s(n, fr).Sub(w.g(n, fr)).Sub(max(0, w.u(n, fr).Sub(w.g(n, fr)))).Add(b)
		if most <= avail {
			avail, at, limited = most, n, true
		}
	}
	return w.la(n, fr).Add(avail), at, limited
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

// listed reports whether the node or anything below it says something about fr.
func (w *twin) listed(n Node, fr resource.FR) bool {
	if _, ok := w.nodes[n].cells[fr]; ok {
		return true
	}
	for _, k := range w.kids(n) {
		if w.listed(k, fr) {
			return true
		}
	}
	return false
}

// twinShare is spec 20 §4.1 in fractions: the ratio without the weight.
type twinShare struct {
	ratio  *big.Rat
	weight Weight
}

func (w *twin) share(n Node, table *resource.Table, frs int) twinShare {
	most := twinShare{new(big.Rat), w.nodes[n].weight}
	parent := w.nodes[n].parent
	if parent == None || w.inCycle(n) {
		return most
	}
	for kind := range resource.ID(5) {
		var borrowed, lendable resource.Amount
		for i := range frs {
			fr := resource.FR(i)
			if table.ResourceOf(fr) != kind {
				continue
			}
			lendable = lendable.Add(w.potential(parent, fr))
			if w.listed(n, fr) {
				borrowed = borrowed.Add(max(0, w.u(n, fr).Sub(w.s(n, fr))))
			}
		}
		if lendable > 0 {
			ratio := new(big.Rat).SetFrac(big.NewInt(int64(borrowed)), big.NewInt(int64(lendable)))
			if ratio.Mul(ratio, big.NewRat(1000, 1)).Cmp(most.ratio) > 0 {
				most.ratio = ratio
			}
		}
	}
	return most
}

func (s twinShare) infinite() bool { return s.weight == 0 && s.ratio.Sign() > 0 }

// value is the share of a node that is not infinite.
func (s twinShare) value() *big.Rat {
	if s.weight == 0 {
		return new(big.Rat)
	}
	return new(big.Rat).Mul(s.ratio, big.NewRat(int64(DefaultWeight), int64(s.weight)))
}

func (s twinShare) compare(o twinShare) int {
	switch {
	case s.infinite() && o.infinite():
		return s.ratio.Cmp(o.ratio)
	case s.infinite():
		return 1
	case o.infinite():
		return -1
	}
	return s.value().Cmp(o.value())
}

func (s twinShare) ceil() int64 {
	if s.infinite() {
		return math.MaxInt64
	}
	v := s.value()
	n := new(big.Int).Div(v.Num(), v.Denom())
	if !v.IsInt() {
		n.Add(n, big.NewInt(1))
	}
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

func (w wide) big() *big.Int {
	sum := new(big.Int)
	for _, limb := range w {
		sum.Or(sum.Lsh(sum, 64), new(big.Int).SetUint64(limb))
	}
	return sum
}

func bigProduct(factors ...int64) *big.Int {
	p := big.NewInt(1)
	for _, factor := range factors {
		p.Mul(p, big.NewInt(factor))
	}
	return p
}
