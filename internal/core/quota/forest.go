// Package quota is the forest of ClusterQueues and Cohorts: who owns how much of
// which flavor-resource, how much of it flows to whom, and what is left.
//
// A node is a ClusterQueue (leaf) or a Cohort. For every flavor-resource (FR) it has
// a nominal quota N, an optional borrowing limit B and lending limit L, and a usage U:
//
//	S  subtree quota   N + Σ over children (S − G)
//	G  guaranteed      S − L where L is set, else 0: what the parent never sees
//	la local           max(0, G − U): guaranteed and unused
//
// Usage of a child reaches its parent only past what the child guarantees to itself.
// Charge, Release and the questions cost the depth of the tree; speculation is an
// undo log, never a copy. spec: 10 §4.3.
package quota

import "github.com/berth-project/berth/internal/core/resource"

// Node is the index of a ClusterQueue or Cohort in its forest.
type Node int32

// None is the absence of a node.
const None Node = -1

// NoLimit is the value of a borrowing or lending limit that is not set.
const NoLimit resource.Amount = -1

// Cell is what a node says about one FR.
type Cell struct {
	FR      resource.FR
	Nominal resource.Amount // ≥ 0
	Borrow  resource.Amount // borrowing limit, ≥ 0 or NoLimit
	Lend    resource.Amount // lending limit, ≥ 0 or NoLimit
}

// Forest holds every node's quota and usage in dense arrays indexed by
// node·stride + FR.
type Forest struct {
	nodes  []node
	stride int

	nominal, borrow, lend, subtree, usage []resource.Amount

	log         []undo
	speculating int
	stale       bool
}

type node struct {
	parent Node
	kids   []Node
	root   Node // None below a cycle
	height int32
	cohort bool
	used   bool
}

type undo struct {
	index int32
	was   resource.Amount
}

// NewForest returns an empty forest.
func NewForest() *Forest { return &Forest{} }

// Add makes a node without parent or quota. A cohort may have children.
func (f *Forest) Add(cohort bool) Node {
	f.stale = true
	fresh := node{parent: None, root: None, cohort: cohort, used: true}
	for i := range f.nodes {
		if !f.nodes[i].used {
			f.nodes[i] = fresh
			return Node(i)
		}
	}
	f.nodes = append(f.nodes, fresh)
	f.grow(f.stride)
	return Node(len(f.nodes) - 1)
}

// Remove takes a node out. Its children lose their parent; its own usage must have
// been released.
func (f *Forest) Remove(n Node) {
	f.stale = true
	for i := range f.nodes {
		if f.nodes[i].parent == n {
			f.nodes[i].parent = None
		}
	}
	f.nodes[n] = node{parent: None, root: None}
	row := int(n) * f.stride
	for i := row; i < row+f.stride; i++ {
		f.nominal[i], f.borrow[i], f.lend[i], f.usage[i] = 0, NoLimit, NoLimit, 0
	}
}

// SetParent hangs n below parent, or makes it a root with None.
func (f *Forest) SetParent(n, parent Node) {
	f.nodes[n].parent = parent
	f.stale = true
}

// SetQuota replaces everything that n says about quota.
func (f *Forest) SetQuota(n Node, cells []Cell) {
	f.stale = true
	for _, c := range cells {
		f.Reach(c.FR)
	}
	row := int(n) * f.stride
	for i := row; i < row+f.stride; i++ {
		f.nominal[i], f.borrow[i], f.lend[i] = 0, NoLimit, NoLimit
	}
	for _, c := range cells {
		i := row + int(c.FR)
		f.nominal[i], f.borrow[i], f.lend[i] = c.Nominal, c.Borrow, c.Lend
	}
}

// Reach makes room for fr. Charging or asking about an FR that no node has quota
// for needs it first.
func (f *Forest) Reach(fr resource.FR) {
	if int(fr) >= f.stride {
		f.grow(max(int(fr)+1, 2*f.stride, 4))
	}
}

func (f *Forest) grow(stride int) {
	cells := len(f.nodes) * stride
	regrow := func(old []resource.Amount, blank resource.Amount) []resource.Amount {
		fresh := make([]resource.Amount, cells)
		for i := range fresh {
			fresh[i] = blank
		}
		for n := 0; f.stride > 0 && n*f.stride < len(old); n++ {
			copy(fresh[n*stride:], old[n*f.stride:(n+1)*f.stride])
		}
		return fresh
	}
	f.nominal, f.subtree = regrow(f.nominal, 0), regrow(f.subtree, 0)
	f.borrow, f.lend = regrow(f.borrow, NoLimit), regrow(f.lend, NoLimit)
	f.usage = regrow(f.usage, 0)
	f.stride = stride
}

// Settle recomputes roots, heights, subtree quotas and the cohorts' usage after
// edits. Every question and charge asks for a settled forest; an unedited one is
// settled at no cost. spec: 10 §4.3.5.
func (f *Forest) Settle() {
	if !f.stale {
		return
	}
	f.stale = false
	for i := range f.nodes {
		f.nodes[i].kids = f.nodes[i].kids[:0]
		f.nodes[i].height = 0
		f.nodes[i].root = f.findRoot(Node(i))
	}
	for i := range f.nodes {
		if p := f.nodes[i].parent; p != None && f.nodes[i].used {
			f.nodes[p].kids = append(f.nodes[p].kids, Node(i))
		}
	}
	for i := range f.nodes {
		switch n := Node(i); f.nodes[i].root {
		case n:
			f.settleTree(n)
		case None:
			f.settleAlone(n)
		}
	}
}

// settleAlone gives a node below a cycle what it has without its tree.
func (f *Forest) settleAlone(n Node) {
	row := int(n) * f.stride
	copy(f.subtree[row:row+f.stride], f.nominal[row:row+f.stride])
	if f.nodes[n].cohort {
		clear(f.usage[row : row+f.stride])
	}
}

// findRoot walks up, and gives None when it walks in a circle.
func (f *Forest) findRoot(n Node) Node {
	if !f.nodes[n].used {
		return None
	}
	for range f.nodes {
		p := f.nodes[n].parent
		if p == None {
			return n
		}
		n = p
	}
	return None
}

func (f *Forest) settleTree(n Node) {
	nd := &f.nodes[n]
	row := int(n) * f.stride
	copy(f.subtree[row:row+f.stride], f.nominal[row:row+f.stride])
	if nd.cohort {
		clear(f.usage[row : row+f.stride])
	}
	for _, kid := range nd.kids {
		f.settleTree(kid)
		nd.height = max(nd.height, 1, f.nodes[kid].height+1)
		for r := range f.stride {
			i, k := row+r, int(kid)*f.stride+r
			g := f.guaranteed(k)
			f.subtree[i] = f.subtree[i].Add(f.subtree[k].Sub(g))
			f.usage[i] = f.usage[i].Add(max(0, f.usage[k].Sub(g)))
		}
	}
}

func (f *Forest) guaranteed(i int) resource.Amount {
	if f.lend[i] == NoLimit {
		return 0
	}
	return max(0, f.subtree[i].Sub(f.lend[i]))
}

func (f *Forest) local(i int) resource.Amount {
	return max(0, f.guaranteed(i).Sub(f.usage[i]))
}

// Charge adds usage to n and, past what n guarantees to itself, to its ancestors.
// A node below a cycle is charged alone. spec: 10 §4.3.2.
func (f *Forest) Charge(n Node, v resource.Vector) {
	for _, e := range v {
		for at, amount := n, e.Amount; at != None && amount > 0; at = f.up(at) {
			i := int(at)*f.stride + int(e.FR)
			free := f.local(i)
			f.set(i, f.usage[i].Add(amount))
			amount = amount.Sub(free)
		}
	}
}

// Release is the inverse of Charge.
func (f *Forest) Release(n Node, v resource.Vector) {
	for _, e := range v {
		for at, amount := n, e.Amount; at != None && amount > 0; at = f.up(at) {
			i := int(at)*f.stride + int(e.FR)
			stored := f.usage[i].Sub(f.guaranteed(i))
			f.set(i, f.usage[i].Sub(amount))
			amount = min(amount, max(0, stored))
		}
	}
}

// Saturated tells whether the usage of one of v's FRs is past counting, at n or above.
// What is released from there is lost: Recount then.
func (f *Forest) Saturated(n Node, v resource.Vector) bool {
	for _, e := range v {
		for at := n; at != None; at = f.up(at) {
			if f.usage[f.at(at, e.FR)] == resource.Unlimited {
				return true
			}
		}
	}
	return false
}

// Recount replaces the usage of a ClusterQueue, and works out anew that of the cohorts.
func (f *Forest) Recount(n Node, v resource.Vector) {
	row := int(n) * f.stride
	clear(f.usage[row : row+f.stride])
	for _, e := range v {
		f.usage[row+int(e.FR)] = e.Amount
	}
	f.stale = true
	f.Settle()
}

func (f *Forest) up(n Node) Node {
	if f.nodes[n].root == None {
		return None
	}
	return f.nodes[n].parent
}

func (f *Forest) set(i int, a resource.Amount) {
	if f.speculating > 0 {
		f.log = append(f.log, undo{int32(i), f.usage[i]})
	}
	f.usage[i] = a
}

// Mark is a point that Rollback returns to.
type Mark int

// Mark begins a speculation. Marks nest; each must be rolled back, last first.
func (f *Forest) Mark() Mark {
	f.speculating++
	return Mark(len(f.log))
}

// Rollback undoes every charge and release since m.
func (f *Forest) Rollback(m Mark) {
	for i := len(f.log) - 1; i >= int(m); i-- {
		f.usage[f.log[i].index] = f.log[i].was
	}
	f.log = f.log[:m]
	f.speculating--
}
