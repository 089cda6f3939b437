package preempt

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// plain is a forest that keeps no figures: it works every one out from the formulas of
// spec 10 §4.3.2 and 20 §4.1 and from who is in, each time. Amounts are small here.
type plain struct {
	nodes   []plainNode
	members map[quota.Node][]*workload.Workload
	extra   resource.Vector // charged to a queue on top, for the preemptor
	at      quota.Node
}

type plainNode struct {
	name   string
	parent quota.Node
	cohort bool
	cells  map[resource.FR]quota.Cell
	weight quota.Weight
}

// plainOf copies the world, without the workloads that are gone.
func (w *world) plainOf(s *Search) *plain {
	p := &plain{nodes: w.defs, members: map[quota.Node][]*workload.Workload{}, at: quota.None}
	for n, ws := range w.holders {
		for _, wl := range ws {
			if s.Gone == nil || !s.Gone(wl) {
				p.members[n] = append(p.members[n], wl)
			}
		}
	}
	return p
}

func (p *plain) remove(v Victim) {
	p.members[v.Node] = slices.DeleteFunc(slices.Clone(p.members[v.Node]), func(w *workload.Workload) bool { return w == v.Workload })
}

func (p *plain) putBack(v Victim) { p.members[v.Node] = append(p.members[v.Node], v.Workload) }

func (p *plain) kids(n quota.Node) (out []quota.Node) {
	for i, d := range p.nodes {
		if d.parent == n {
			out = append(out, quota.Node(i))
		}
	}
	return out
}

func (p *plain) cell(n quota.Node, fr resource.FR) quota.Cell {
	if c, ok := p.nodes[n].cells[fr]; ok {
		return c
	}
	return quota.Cell{FR: fr, Borrow: quota.NoLimit, Lend: quota.NoLimit}
}

func (p *plain) subtree(n quota.Node, fr resource.FR) resource.Amount {
	total := p.cell(n, fr).Nominal
	for _, k := range p.kids(n) {
		total += p.subtree(k, fr) - p.guaranteed(k, fr)
	}
	return total
}

func (p *plain) guaranteed(n quota.Node, fr resource.FR) resource.Amount {
	c := p.cell(n, fr)
	if c.Lend == quota.NoLimit {
		return 0
	}
	return max(0, p.subtree(n, fr)-c.Lend)
}

func (p *plain) usage(n quota.Node, fr resource.FR) (total resource.Amount) {
	for _, wl := range p.members[n] {
		total += wl.Usage.Quota.Of(fr)
	}
	if n == p.at {
		total += p.extra.Of(fr)
	}
	for _, k := range p.kids(n) {
		total += max(0, p.usage(k, fr)-p.guaranteed(k, fr))
	}
	return total
}

func (p *plain) local(n quota.Node, fr resource.FR) resource.Amount {
	return max(0, p.guaranteed(n, fr)-p.usage(n, fr))
}

func (p *plain) avail(n quota.Node, fr resource.FR) resource.Amount {
	s, g, u := p.subtree(n, fr), p.guaranteed(n, fr), p.usage(n, fr)
	if p.nodes[n].parent == quota.None {
		return s - u
	}
	above := p.avail(p.nodes[n].parent, fr)
	if b := p.cell(n, fr).Borrow; b != quota.NoLimit {
		above = min(above, s-g-max(0, u-g)+b)
	}
	return p.local(n, fr) + above
}

func (p *plain) potential(n quota.Node, fr resource.FR) resource.Amount {
	if p.nodes[n].parent == quota.None {
		return p.subtree(n, fr)
	}
	total := p.guaranteed(n, fr) + p.potential(p.nodes[n].parent, fr)
	if b := p.cell(n, fr).Borrow; b != quota.NoLimit {
		total = min(total, p.subtree(n, fr)+b)
	}
	return total
}

// over reports whether n uses more than its own of one of frs.
func (p *plain) over(n quota.Node, frs []resource.FR) bool {
	return slices.ContainsFunc(frs, func(fr resource.FR) bool { return p.usage(n, fr) > p.subtree(n, fr) })
}

func (p *plain) fits(n quota.Node, v resource.Vector) bool {
	return !slices.ContainsFunc(v, func(e resource.Entry) bool { return e.Amount > max(0, p.avail(n, e.FR)) })
}

// path is n and everything above it.
func (p *plain) path(n quota.Node) (path []quota.Node) {
	for ; n != quota.None; n = p.nodes[n].parent {
		path = append(path, n)
	}
	return path
}

// plainShare is a share as two numbers: whether it is infinite, and its value, unweighted
// if infinite.
type plainShare struct {
	infinite bool
	value    *big.Rat
}

func (a plainShare) compare(b plainShare) int {
	if a.infinite != b.infinite {
		return map[bool]int{true: 1, false: -1}[a.infinite]
	}
	return a.value.Cmp(b.value)
}

func (p *plain) listed(n quota.Node, fr resource.FR) bool {
	if _, ok := p.nodes[n].cells[fr]; ok {
		return true
	}
	return slices.ContainsFunc(p.kids(n), func(k quota.Node) bool { return p.listed(k, fr) })
}

func (p *plain) share(n quota.Node) plainShare {
	best := new(big.Rat)
	up := p.nodes[n].parent
	if up == quota.None {
		return plainShare{value: best}
	}
	for _, frs := range [][]resource.FR{{cpu, cpu2}, {memory}} {
		var borrowed, lendable resource.Amount
		for _, fr := range frs {
			if p.listed(n, fr) {
				borrowed += max(0, p.usage(n, fr)-p.subtree(n, fr))
			}
			lendable += p.potential(up, fr)
		}
		if lendable > 0 {
			if ratio := big.NewRat(int64(borrowed)*1000, int64(lendable)); ratio.Cmp(best) > 0 {
				best = ratio
			}
		}
	}
	weight := p.nodes[n].weight
	if weight == 0 {
		return plainShare{infinite: best.Sign() > 0, value: best}
	}
	return plainShare{value: best.Quo(best, big.NewRat(int64(weight), int64(quota.DefaultWeight)))}
}

// borrows reports whether n uses more than its own of anything; a root never does.
func (p *plain) borrows(n quota.Node) bool {
	return p.nodes[n].parent != quota.None && p.over(n, allFRs)
}

// keyed is a candidate with everything that sorts it, most important first.
type keyed struct {
	Victim
	keys []int64
}

func sortKeyed(cs []keyed) {
	slices.SortFunc(cs, func(a, b keyed) int {
		return cmp.Or(slices.Compare(a.keys, b.keys), cmp.Compare(a.Workload.UID, b.Workload.UID))
	})
}

// usageKey orders the candidates of the own queue by the usage of their LocalQueues, the highest first.
func (t *twin) usageKey(w *workload.Workload, n quota.Node) int64 {
	if n != t.Node || t.Standing == nil {
		return 0
	}
	return -int64(t.Standing(w))
}

// keysOf are the last keys of §4.7.3.
func keysOf(w *workload.Workload) []int64 {
	newest := -int64(w.ReservedAt)
	if w.ReservedAt == 0 {
		newest = -1 << 62
	}
	return []int64{w.Priority, newest}
}

func truth(b bool) int64 {
	if b {
		return 0
	}
	return 1
}
