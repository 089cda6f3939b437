// Package quota is the forest of ClusterQueues and Cohorts: the quota of each
// flavor-resource, how much of it is lent and borrowed, what is available, and fair shares.
//
// A node is a ClusterQueue (leaf) or a Cohort. For every flavor-resource (FR) it has
// a nominal quota N, an optional borrowing limit B and lending limit L, and a usage U:
//
//	S  subtree quota   N + Σ over children (S − G)
//	G  guaranteed      S − L where L is set, else 0: never visible to the parent
//	la local           max(0, G − U): guaranteed and unused
//
// Usage of a child reaches its parent only past what the child guarantees to itself.
// Questions cost the depth of the tree; an edit costs the nodes of the trees it concerns,
// at the next Recompute. A Forest answers and is edited; only a Dimension, which package
// ledger has, is charged. spec: 10 §4.3, 20 §4.1.
package quota

import (
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
)

// Node is the index of a ClusterQueue or Cohort in its forest.
type Node int32

// None is the absence of a node.
const None Node = -1

// NoLimit is the value of a borrowing or lending limit that is not set.
const NoLimit resource.Amount = -1

// Cell is the quota of a node of one FR.
type Cell struct {
	FR      resource.FR
	Nominal resource.Amount // ≥ 0
	Borrow  resource.Amount // borrowing limit, ≥ 0 or NoLimit
	Lend    resource.Amount // lending limit, ≥ 0 or NoLimit
}

// Forest holds every node's quota and usage in one dense array indexed by
// node·stride + FR. It is part of a Dimension, and not safe for concurrent use.
type Forest struct {
	table *resource.Table
	nodes []node
	free  []Node // numbers of removed nodes

	cells    []cell
	rooms    []room            // indexed as cells
	changed  []uint64          // of a root, the version of the last change in its tree to an FR; indexed as cells
	lendable []resource.Amount // of a cohort, at the first FR of a resource; indexed as cells
	stride   int
	frs      int         // every FR below it has room
	byKind   []kindOrder // those FRs, grouped by resource

	edited     []Node // since the last Recompute
	recomputed []Node // the result of the last Recompute

	version uint64
}

type node struct {
	name       string
	parent     Node
	root       Node   // None below a cycle
	path       []Node // itself and its ancestors up to the root; below a cycle itself
	kids       []Node // sorted
	weight     Weight
	generation uint64
	height     int32
	cohort     bool
	used       bool
	edited     bool // it is in Forest.edited
}

// cell is the figures of one FR of one node, as large as a cache line.
type cell struct {
	nominal, borrow, lend resource.Amount // set by SetQuota
	usage                 resource.Amount
	// Computed by Recompute.
	subtree, guaranteed, potential resource.Amount
	own                            bool // SetQuota lists the FR
	listed                         bool // the node or something below it lists the FR
	keeps                          bool // something below the node guarantees quota to itself
}

var blank = cell{borrow: NoLimit, lend: NoLimit}

// room is the available amount of one FR at one node, and its bottleneck. It is computed on
// demand and valid until a change of that FR in the tree: most queries of a cycle repeat.
type room struct {
	version   uint64 // as in Forest.changed, 0 for never
	available resource.Amount
	at        Node // see Bottleneck
	limited   bool
}

// kindOrder is an FR, the first one of its resource, and whether it is the last one.
type kindOrder struct {
	fr, first resource.FR
	last      bool
}

// Add makes a node without parent or quota. A cohort may have children. The name is
// for messages and for breaking ties.
func (f *Forest) Add(name string, cohort bool) Node {
	var n Node
	if last := len(f.free) - 1; last >= 0 {
		n, f.free = f.free[last], f.free[:last]
	} else {
		n = Node(len(f.nodes))
		f.nodes = append(f.nodes, node{})
		for range f.stride {
			f.cells = append(f.cells, blank)
		}
		f.rooms = append(f.rooms, make([]room, f.stride)...)
		f.changed = append(f.changed, make([]uint64, f.stride)...)
		f.lendable = append(f.lendable, make([]resource.Amount, f.stride)...)
	}
	nd := &f.nodes[n]
	*nd = node{
		name: name, cohort: cohort, used: true, weight: DefaultWeight, parent: None, root: n,
		path: append(nd.path[:0], n), kids: nd.kids[:0], generation: nd.generation, edited: nd.edited,
	}
	f.touch(n)
	return n
}

// Remove removes a node. Its children lose their parent; its own usage must have been
// released. Its number is reused.
func (f *Forest) Remove(n Node) {
	kids := f.nodes[n].kids
	for _, kid := range slices.Backward(kids) { // SetParent removes each from the list
		f.SetParent(kid, None)
	}
	f.SetParent(n, None)
	for i := range f.row(n) {
		f.row(n)[i] = blank
	}
	clear(f.lendable[int(n)*f.stride : (int(n)+1)*f.stride])
	f.version++
	nd := &f.nodes[n]
	nd.name, nd.used, nd.root, nd.path = "", false, None, nd.path[:0]
	f.free = append(f.free, n)
}

// SetParent moves n with its subtree below parent, or makes it a root with None.
func (f *Forest) SetParent(n, parent Node) {
	was := f.nodes[n].parent
	if was == parent {
		return
	}
	f.touch(n)
	if was != None {
		f.touch(was)
		kids := f.nodes[was].kids
		i, _ := slices.BinarySearch(kids, n)
		f.nodes[was].kids = slices.Delete(kids, i, i+1)
	}
	f.nodes[n].parent = parent
	if parent != None {
		kids := f.nodes[parent].kids
		i, _ := slices.BinarySearch(kids, n)
		f.nodes[parent].kids = slices.Insert(kids, i, n)
	}
	f.hang(n, f.findRoot(n), n)
}

// findRoot returns the root above n, None in a cycle.
func (f *Forest) findRoot(n Node) Node {
	for range f.nodes {
		p := f.nodes[n].parent
		if p == None {
			return n
		}
		n = p
	}
	return None
}

// hang sets root and path of n and of its subtree. In a cycle the walk returns to where it
// began, top, and nowhere else, since a node has one parent.
func (f *Forest) hang(n, root, top Node) {
	nd := &f.nodes[n]
	nd.root = root
	nd.path = append(nd.path[:0], n)
	switch {
	case root == None:
		f.touch(n)
	case nd.parent != None:
		nd.path = append(nd.path, f.nodes[nd.parent].path...)
	}
	for _, kid := range nd.kids {
		if kid != top {
			f.hang(kid, root, top)
		}
	}
}

// SetQuota replaces the quota of n.
func (f *Forest) SetQuota(n Node, cells []Cell) {
	f.touch(n)
	for _, c := range cells {
		f.Reach(c.FR)
	}
	row := f.row(n)
	for i := range row {
		c := &row[i]
		c.nominal, c.borrow, c.lend, c.own = 0, NoLimit, NoLimit, false
	}
	for _, said := range cells {
		c := &row[said.FR]
		c.nominal, c.borrow, c.lend, c.own = said.Nominal, said.Borrow, said.Lend, true
	}
}

// SetWeight gives n its weight in fair sharing, ≥ 0. It changes
// shares at once, and no quota. spec: 20 §4.1.
func (f *Forest) SetWeight(n Node, w Weight) {
	f.version++
	f.nodes[n].weight = w
}

// Reach makes room for fr, a pair of the forest's table. It precedes charges and queries of an
// FR without quota at any node.
func (f *Forest) Reach(fr resource.FR) {
	for ; f.frs <= int(fr); f.frs++ {
		f.insert(resource.FR(f.frs))
	}
	if f.frs > f.stride {
		f.grow(max(f.frs, 2*f.stride, 4))
	}
}

// insert adds fr after the others of its resource.
func (f *Forest) insert(fr resource.FR) {
	for i, o := range f.byKind {
		if o.last && f.table.ResourceOf(o.fr) == f.table.ResourceOf(fr) {
			f.byKind[i].last = false
			f.byKind = slices.Insert(f.byKind, i+1, kindOrder{fr, o.first, true})
			return
		}
	}
	f.byKind = append(f.byKind, kindOrder{fr, fr, true})
}

func (f *Forest) grow(stride int) {
	cells := make([]cell, len(f.nodes)*stride)
	for i := range cells {
		cells[i] = blank
	}
	f.cells = widen(f.cells, cells, f.stride, stride)
	f.rooms = widen(f.rooms, make([]room, len(cells)), f.stride, stride)
	f.changed = widen(f.changed, make([]uint64, len(cells)), f.stride, stride)
	f.lendable = widen(f.lendable, make([]resource.Amount, len(cells)), f.stride, stride)
	f.stride = stride
}

// widen copies rows into longer ones.
func widen[T any](from, to []T, was, stride int) []T {
	for n := range len(to) / stride {
		copy(to[n*stride:], from[n*was:(n+1)*was])
	}
	return to
}

// touch notes that the tree of n has to be recomputed.
func (f *Forest) touch(n Node) {
	f.version++
	if !f.nodes[n].edited {
		f.nodes[n].edited = true
		f.edited = append(f.edited, n)
	}
}

// row is the cells of n, up to the last FR in use.
func (f *Forest) row(n Node) []cell {
	first := int(n) * f.stride
	return f.cells[first : first+f.frs]
}

func (f *Forest) at(n Node, fr resource.FR) *cell { return &f.cells[int(n)*f.stride+int(fr)] }

// local is the guaranteed quota that the node does not use.
func (c *cell) local() resource.Amount { return max(0, c.guaranteed.Sub(c.usage)) }

// flow is the usage that is visible to the parent.
func (c *cell) flow() resource.Amount { return max(0, c.usage.Sub(c.guaranteed)) }
