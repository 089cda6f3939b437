package topology

import (
	"maps"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
)

// Tree is the definition of a flavor's tree: the levels of its topology, broadest first, and the labels of its nodes.
type Tree struct {
	Topology   string
	Levels     []string
	NodeLabels map[string]string
}

func (d Tree) equal(o Tree) bool {
	return d.Topology == o.Topology && slices.Equal(d.Levels, o.Levels) && maps.Equal(d.NodeLabels, o.NodeLabels)
}

// tree is the domains of a flavor. It keeps the nodes that have its labels, ready or not, so that a node that flips
// only changes the counts of its path.
type tree struct {
	s      *Space
	flavor string
	def    Tree
	hosts  bool // the lowest level is the hostname

	levels   []level
	roots    []int32 // sorted by value
	leaves   []leaf  // by domain of the lowest level
	leafOf   map[string]int32
	capacity []resource.Amount // of the active nodes of a leaf, by leaf and column
	active   int               // how many nodes count
	stale    bool              // the order of domains has to be recomputed
	revision uint64            // of the last edit

	journal []entry
	base    int // the position of journal[0] among all entries ever
	read    int // the position up to which a shape has read
	shapes  map[string]*shape
}

// level is the domains of one level. Numbers of removed domains are reused.
type level struct {
	resource.Slots[domain]
}

// domain is one domain. A broader one has children, a leaf has nodes.
type domain struct {
	value  string
	parent int32   // -1 at the top
	order  int32   // among the domains of its level, by all values of the path
	kids   []int32 // sorted by value
	live   bool
}

// leaf is what a domain of the lowest level has besides.
type leaf struct {
	id      string   // hostname or joined path
	path    []string // the values of all levels
	nodes   []int32  // sorted by name; where the hostname decides, the first one decides about the path
	account int32
	active  int32 // nodes that count
}

// entry is a change that shapes have not seen yet: level, whether only usage changed, and domain.
type entry uint32

func entryOf(level int, domain int32, usage bool) entry {
	e := entry(level)<<28 | entry(domain)
	if usage {
		e |= 1 << 27
	}
	return e
}

func (e entry) level() int    { return int(e >> 28) }
func (e entry) usage() bool   { return e&(1<<27) != 0 }
func (e entry) domain() int32 { return int32(e & (1<<27 - 1)) }

func newTree(s *Space, flavor string, def Tree) *tree {
	t := &tree{s: s, flavor: flavor, def: def, leafOf: map[string]int32{}, shapes: map[string]*shape{}, revision: s.nextEdit()}
	t.levels = make([]level, len(def.Levels))
	t.hosts = len(def.Levels) > 0 && def.Levels[len(def.Levels)-1] == Hostname
	return t
}

func (t *tree) lowest() int { return len(t.levels) - 1 }

// levelOf returns the index of a level, -1 if the tree has no such level.
func (t *tree) levelOf(label string) int { return slices.Index(t.def.Levels, label) }

// emitted returns the levels that placements name. spec: 20 §2.4.
func (t *tree) emitted() []string {
	if t.hosts {
		return t.def.Levels[len(t.def.Levels)-1:]
	}
	return t.def.Levels
}

// values returns the values of the levels that placements name.
func (t *tree) values(leaf int32) []string {
	path := t.leaves[leaf].path
	if t.hosts {
		return path[len(path)-1:]
	}
	return path
}

// pathOf returns the values of a node's path and the ID of its leaf, nil if the tree does not have the node.
func (t *tree) pathOf(n *node) (path []string, id string) {
	for label, value := range t.def.NodeLabels { //berth:unordered all have to match
		if have, ok := n.Labels[label]; !ok || have != value {
			return nil, ""
		}
	}
	for _, label := range t.def.Levels {
		if _, ok := n.Labels[label]; !ok {
			return nil, ""
		}
	}
	if len(t.def.Levels) == 0 {
		return nil, ""
	}
	path = make([]string, len(t.def.Levels))
	for i, label := range t.def.Levels {
		path[i] = n.Labels[label]
	}
	if t.hosts {
		return path, path[len(path)-1]
	}
	return path, strings.Join(path, "/")
}

// fileAll files every node, in the order of paths: neighbors in the tree are then neighbors in memory.
func (t *tree) fileAll() {
	type placed struct {
		slot     int32
		path     []string
		leaf     string
		nodeName string
	}
	all := make([]placed, 0, len(t.s.nodeOf))
	for i := range t.s.nodes.All {
		if n := &t.s.nodes.All[i]; n.Name != "" {
			if path, id := t.pathOf(n); path != nil {
				all = append(all, placed{int32(i), path, id, n.Name})
			}
		}
	}
	slices.SortFunc(all, func(a, b placed) int {
		if c := slices.Compare(a.path, b.path); c != 0 {
			return c
		}
		return compare(a.nodeName, b.nodeName)
	})
	t.reserve(len(all))
	for _, p := range all {
		t.add(p.slot, p.path, p.leaf)
	}
}

// reserve makes room for leaves.
func (t *tree) reserve(leaves int) {
	if leaves == 0 {
		return
	}
	t.leafOf, t.leaves = make(map[string]int32, leaves), make([]leaf, 0, leaves)
	t.capacity = make([]resource.Amount, 0, leaves*t.s.stride)
	t.levels[t.lowest()].All = make([]domain, 0, leaves)
	t.s.reserveAccounts(leaves)
}

// fileNode puts a node where its labels say, or takes it out.
func (t *tree) fileNode(slot int32) {
	n := &t.s.nodes.All[slot]
	path, id := t.pathOf(n)
	was := slices.IndexFunc(n.members, func(m member) bool { return m.tree == t })
	if was >= 0 {
		at := n.members[was].leaf
		if path != nil && t.leaves[at].id == id {
			t.locateLeaf(at)
			t.recountLeaf(at)
			return
		}
		t.unfileNode(slot, at)
	}
	if path == nil {
		return
	}
	t.add(slot, path, id)
}

// add files a node of a path.
func (t *tree) add(slot int32, path []string, id string) {
	at, known := t.leafOf[id]
	if !known {
		at = t.addLeaf(path, id)
	}
	l, n := &t.leaves[at], &t.s.nodes.All[slot]
	i, _ := slices.BinarySearchFunc(l.nodes, slot, func(a, b int32) int {
		return compare(t.s.nodes.All[a].Name, t.s.nodes.All[b].Name)
	})
	l.nodes = slices.Insert(l.nodes, i, slot)
	n.members = append(n.members, member{t, at})
	if known {
		t.locateLeaf(at)
	}
	t.recountLeaf(at)
}

// unfileNode takes a node out of its leaf.
func (t *tree) unfileNode(slot, at int32) {
	n, l := &t.s.nodes.All[slot], &t.leaves[at]
	n.members = slices.DeleteFunc(n.members, func(m member) bool { return m.tree == t })
	l.nodes = slices.DeleteFunc(l.nodes, func(o int32) bool { return o == slot })
	if len(l.nodes) > 0 {
		t.locateLeaf(at)
		t.recountLeaf(at)
		return
	}
	t.active -= int(l.active)
	t.s.unlink(l.account, t, at)
	delete(t.leafOf, l.id)
	t.removeDomain(t.lowest(), at)
	t.leaves[at] = leaf{}
	t.revision = t.s.nextEdit()
}

// locateLeaf moves a leaf whose first node has another path by now. Only a hostname can have two.
func (t *tree) locateLeaf(at int32) {
	path, _ := t.pathOf(&t.s.nodes.All[t.leaves[at].nodes[0]])
	if path == nil || slices.Equal(path, t.leaves[at].path) {
		return
	}
	was, l := t.leaves[at], t.lowest()
	t.removeDomain(l, at)
	now := t.addDomain(path)
	t.growLeaves()
	t.leaves[at] = leaf{}
	was.path = path
	t.leaves[now] = was
	t.leafOf[was.id] = now
	t.s.unlink(was.account, t, at)
	t.s.link(was.account, t, now)
	for _, slot := range was.nodes {
		members := t.s.nodes.All[slot].members
		for i := range members {
			if members[i].tree == t {
				members[i].leaf = now
			}
		}
	}
}

func (t *tree) addLeaf(path []string, id string) int32 {
	at := t.addDomain(path)
	t.growLeaves()
	l := leaf{id: id, path: path, account: t.s.account(t.s.keyOf(t.flavor, t.def.Levels, path))}
	t.leaves[at], t.leafOf[id] = l, at
	t.s.link(l.account, t, at)
	return at
}

func (t *tree) growLeaves() {
	for len(t.leaves) < len(t.levels[t.lowest()].All) {
		t.leaves = append(t.leaves, leaf{})
	}
	t.capacity = extended(t.capacity, int32(len(t.leaves)-1), t.s.stride)
}

// recountLeaf recomputes the capacity of a leaf after a change of its nodes.
func (t *tree) recountLeaf(at int32) {
	l, stride := &t.leaves[at], t.s.stride
	sum := row(t.capacity, at, stride)
	clear(sum)
	t.active -= int(l.active)
	l.active = 0
	for _, slot := range l.nodes {
		n := &t.s.nodes.All[slot]
		if !n.active() || !t.counts(l, n) {
			continue
		}
		l.active++
		for c, amount := range row(t.s.net, slot, stride) {
			sum[c] = sum[c].Add(amount)
		}
	}
	t.active += int(l.active)
	t.revision = t.s.nextEdit()
	t.note(entryOf(t.lowest(), at, false))
}

// counts reports whether a node has the path of its leaf. Nodes of one hostname may differ: the first one decides.
func (t *tree) counts(l *leaf, n *node) bool {
	if !t.hosts || len(l.nodes) == 1 {
		return true
	}
	path, _ := t.pathOf(n)
	return slices.Equal(path, l.path)
}

// addDomain returns the lowest domain of a path, with everything above it.
func (t *tree) addDomain(path []string) int32 {
	parent := int32(-1)
	for l, value := range path {
		kids := t.kidsOf(l-1, parent)
		i, found := t.search(l, *kids, value)
		if found {
			parent = (*kids)[i]
			continue
		}
		id := t.levels[l].Put(domain{value: value, parent: parent, live: true})
		kids = t.kidsOf(l-1, parent)
		*kids = slices.Insert(*kids, i, id)
		if l > 0 {
			t.note(entryOf(l-1, parent, false))
		}
		t.note(entryOf(l, id, false))
		parent, t.stale = id, true
	}
	return parent
}

// removeDomain removes a domain, and what is above it and empty.
func (t *tree) removeDomain(l int, id int32) {
	for l >= 0 {
		d := &t.levels[l].All[id]
		if len(d.kids) > 0 {
			return
		}
		parent := d.parent
		kids := t.kidsOf(l-1, parent)
		if i, found := t.search(l, *kids, d.value); found {
			*kids = slices.Delete(*kids, i, i+1)
		}
		t.levels[l].Drop(id)
		t.note(entryOf(l, id, false))
		if l > 0 {
			t.note(entryOf(l-1, parent, false))
		}
		t.stale, l, id = true, l-1, parent
	}
}

// kidsOf returns the children of a domain; level -1 is above the top.
func (t *tree) kidsOf(l int, id int32) *[]int32 {
	if l < 0 {
		return &t.roots
	}
	return &t.levels[l].All[id].kids
}

// search finds a value among the children of one domain, which are of level l.
func (t *tree) search(l int, kids []int32, value string) (int, bool) {
	all := t.levels[l].All
	return slices.BinarySearchFunc(kids, value, func(id int32, v string) int { return compare(all[id].value, v) })
}

// number recomputes the order of domains by the values of their paths.
func (t *tree) number() {
	if !t.stale {
		return
	}
	t.stale = false
	level, next := slices.Clone(t.roots), []int32(nil)
	for l := range t.levels {
		all := t.levels[l].All
		next = next[:0]
		for i, id := range level {
			all[id].order = int32(i)
			next = append(next, all[id].kids...)
		}
		level, next = next, level
	}
}

// note adds an entry to the journal. Shapes that have not read the oldest entries when they are dropped start over.
func (t *tree) note(e entry) {
	n := len(t.journal)
	if len(t.shapes) == 0 { // without a reader the entry is dropped at once
		t.base, t.journal = t.base+n+1, t.journal[:0]
		return
	}
	if n > 0 && t.base+n > t.read && t.journal[n-1] == e {
		return
	}
	if len(t.journal) >= max(1024, 2*len(t.leaves)) {
		half := len(t.journal) / 2
		t.base += half
		t.journal = t.journal[:copy(t.journal, t.journal[half:])]
	}
	t.journal = append(t.journal, e)
}
