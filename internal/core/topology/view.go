package topology

import (
	"cmp"
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
)

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

// Leaf is a domain of the lowest level, for readers.
type Leaf struct {
	Path               []string // the values of all levels
	Nodes              int      // that count
	NotReady, Cordoned int      // that do not count; one that is both is not ready
	Capacity, Used     []resource.Amount
}

// Leaves calls visit with the leaves of a flavor's tree, in the order of their values. Amounts are of the resources of, in
// their order. visit may not keep its argument.
func (s *Space) Leaves(flavor string, of []resource.ID, visit func(*Leaf)) {
	t, ok := s.trees[flavor]
	if !ok || t.lowest() < 0 {
		return
	}
	out := Leaf{Capacity: make([]resource.Amount, len(of)), Used: make([]resource.Amount, len(of))}
	t.eachLeaf(0, t.roots, func(id int32) {
		l := &t.leaves[id]
		out.Path, out.Nodes, out.NotReady, out.Cordoned = l.path, int(l.active), 0, 0
		for _, slot := range l.nodes {
			switch n := &s.nodes.All[slot]; {
			case !n.Ready:
				out.NotReady++
			case !n.Schedulable:
				out.Cordoned++
			}
		}
		capacity, used := row(t.capacity, id, s.stride), row(s.used, l.account, s.stride)
		for i, r := range of {
			if c := s.known(r); c >= 0 {
				out.Capacity[i], out.Used[i] = capacity[c], used[c]
			}
		}
		visit(&out)
	})
}

// eachLeaf visits the leaves below domains of a level, in the order of their values.
func (t *tree) eachLeaf(l int, ids []int32, visit func(id int32)) {
	for _, id := range ids {
		if l == t.lowest() {
			visit(id)
		} else {
			t.eachLeaf(l+1, t.levels[l].All[id].kids, visit)
		}
	}
}

// Unlabeled returns how many nodes have the labels of a flavor's nodes, and lack one of its topology's levels.
func (s *Space) Unlabeled(flavor string) (n int) {
	t, ok := s.trees[flavor]
	if !ok {
		return 0
	}
	for i := range s.nodes.All {
		node := &s.nodes.All[i]
		if node.Name == "" || slices.ContainsFunc(node.members, func(m member) bool { return m.tree == t }) {
			continue
		}
		of := true
		for label, value := range t.def.NodeLabels { //berth:unordered all have to match
			have, has := node.Labels[label]
			of = of && has && have == value
		}
		if of {
			n++
		}
	}
	return n
}

// Room is how much of a group of pod sets the domains hold, at the level that the group asks for.
type Room struct {
	Level   string
	One     bool // one domain has to hold all, else several may
	Unit    Unit
	Needed  int64       // in units
	Domains []DomainFit // of the level, in the order of their values
}

// Room returns the room for pod sets that are placed together, with what is free now.
func (s *Space) Room(pods []PodSet) (Room, *Failure) {
	groups := groupsOf(pods)
	if len(groups) != 1 {
		return Room{}, &Failure{Cause: BadGroup}
	}
	g := &groups[0]
	if f := s.resolve(g); f != nil {
		return Room{}, f
	}
	t := g.tree
	t.number()
	sh := t.shapeOf(g, false)
	out := Room{Level: t.def.Levels[g.requested], One: g.required, Unit: Pods, Needed: g.needed}
	if g.size > 1 {
		out.Unit = Slices
	}
	list := t.candidates(sh, g.requested, chooser{tiers: true})
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(a.order, b.order) })
	for _, c := range list {
		fit := DomainFit{t.pathValues(g.requested, c.id), c.podsWL, c.slicesWL}
		if g.leader != nil && !c.leader {
			fit.Pods, fit.Slices = c.pods, c.slices
			if g.required {
				fit.Pods, fit.Slices = 0, 0
			}
		}
		out.Domains = append(out.Domains, fit)
	}
	return out, nil
}
