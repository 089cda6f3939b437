package topology

import (
	"cmp"
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// DomainView is one domain, for readers. Amounts are sorted by resource, and are 0 where a resource is counted elsewhere.
type DomainView struct {
	Values   []string // of all levels down to its own
	Nodes    int      // that count
	Capacity []workload.Request
	Used     []workload.Request // by placed pods, at most once for each hostname
}

// Flavors returns the flavors that have a tree, sorted.
func (s *Space) Flavors() []string {
	out := make([]string, len(s.inOrder))
	for i, t := range s.inOrder {
		out[i] = t.flavor
	}
	return out
}

// Tree returns the definition of a flavor's tree.
func (s *Space) Tree(flavor string) (def Tree, ok bool) {
	if t, ok := s.trees[flavor]; ok {
		return t.def, true
	}
	return Tree{}, false
}

// Revision returns a number that grows with each edit of a flavor's tree or of its nodes, but not with usage; 0 without
// a tree.
func (s *Space) Revision(flavor string) uint64 {
	if t, ok := s.trees[flavor]; ok {
		return t.revision
	}
	return 0
}

// Domains returns the domains of a level, by index, that have nodes which count, in the order of their values.
func (s *Space) Domains(flavor string, level int) []DomainView {
	t, ok := s.trees[flavor]
	if !ok || level < 0 || level > t.lowest() {
		return nil
	}
	t.number()
	byOrder := map[int32]int{}
	var out []DomainView
	for _, leaf := range t.inLeafOrder() {
		at := t.ancestor(leaf, level)
		i, seen := byOrder[at]
		if !seen {
			i = len(out)
			byOrder[at] = i
			out = append(out, DomainView{Values: t.pathValues(level, at), Capacity: s.amounts(nil), Used: s.amounts(nil)})
		}
		d, l := &out[i], &t.leaves[leaf]
		d.Nodes += int(l.active)
		s.addRow(d.Capacity, row(t.capacity, leaf, s.stride))
		s.addRow(d.Used, row(s.used, l.account, s.stride))
	}
	return out
}

// inLeafOrder returns the leaves that count, in the order of their values.
func (t *tree) inLeafOrder() (out []int32) {
	for id := range t.leaves {
		if t.leaves[id].active > 0 {
			out = append(out, int32(id))
		}
	}
	all := t.levels[t.lowest()].All
	slices.SortFunc(out, func(a, b int32) int { return cmp.Compare(all[a].order, all[b].order) })
	return out
}

// amounts returns a row, or zeros, as requests sorted by resource.
func (s *Space) amounts(of []resource.Amount) []workload.Request {
	out := make([]workload.Request, 0, len(s.columns))
	for c, id := range s.columns {
		r := workload.Request{Resource: id}
		if of != nil {
			r.Amount = of[c]
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b workload.Request) int { return cmp.Compare(a.Resource, b.Resource) })
	return out
}

func (s *Space) addRow(to []workload.Request, of []resource.Amount) {
	for i := range to {
		to[i].Amount = to[i].Amount.Add(of[s.columnOf[to[i].Resource]])
	}
}

// Largest returns, by level, the domains that hold most pods of a pod set, placed alone: how fragmented the free
// capacity is.
func (s *Space) Largest(p PodSet, o Options) ([]LevelFit, *Failure) {
	p.Group, p.Earlier, p.Elastic, p.Count = "", nil, false, max(1, p.Count)
	g := &group{members: []int{0}, workers: &p}
	if f := s.resolve(g); f != nil {
		return nil, f
	}
	g.tree.number()
	sh := g.tree.shapeOf(g, o.Empty)
	out := make([]LevelFit, len(g.tree.levels))
	for l := range out {
		out[l] = g.tree.levelFit(sh, l)
	}
	return out, nil
}
