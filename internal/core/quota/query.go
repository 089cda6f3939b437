package quota

import "github.com/berth-project/berth/internal/core/resource"

// Name returns the name that n was added with.
func (f *Forest) Name(n Node) string { return f.nodes[n].name }

// Parent returns the node above n, or None.
func (f *Forest) Parent(n Node) Node { return f.nodes[n].parent }

// Root returns the root of n's tree, or None when its ancestors form a cycle: such
// a node has no quota until an edit breaks the cycle.
func (f *Forest) Root(n Node) Node { return f.nodes[n].root }

// Kids returns the children of n, sorted. Not to be modified, and valid until the next edit.
func (f *Forest) Kids(n Node) []Node { return f.nodes[n].kids }

// IsCohort reports whether n is a Cohort, not a ClusterQueue.
func (f *Forest) IsCohort(n Node) bool { return f.nodes[n].cohort }

// Nominal returns n's own quota of fr.
func (f *Forest) Nominal(n Node, fr resource.FR) resource.Amount { return f.at(n, fr).nominal }

// Subtree returns the quota of n's subtree that is n's or visible to it.
func (f *Forest) Subtree(n Node, fr resource.FR) resource.Amount { return f.at(n, fr).subtree }

// Usage returns what is charged to n.
func (f *Forest) Usage(n Node, fr resource.FR) resource.Amount { return f.at(n, fr).usage }

// BorrowLimit returns n's borrowing limit of fr, NoLimit when unset.
func (f *Forest) BorrowLimit(n Node, fr resource.FR) resource.Amount { return f.at(n, fr).borrow }

// LendLimit returns n's lending limit of fr, NoLimit when unset.
func (f *Forest) LendLimit(n Node, fr resource.FR) resource.Amount { return f.at(n, fr).lend }

// Local returns the part of n's guaranteed quota that it does not use.
func (f *Forest) Local(n Node, fr resource.FR) resource.Amount { return f.at(n, fr).local() }

// Bottleneck returns the node that limits the available amount of n: the root if its quota is
// used up or, with limited, the lowest node whose borrowing limit binds. Below a cycle it is
// None.
func (f *Forest) Bottleneck(n Node, fr resource.FR) (at Node, limited bool) {
	r := f.room(n, fr)
	return r.at, r.limited
}

// Most returns an amount of fr of which no node in the tree of n has more available: Unlimited if one of them guarantees quota to itself.
func (f *Forest) Most(n Node, fr resource.FR) resource.Amount {
	root := f.nodes[n].root
	if root == None {
		return 0
	}
	top := f.at(root, fr)
	if top.keeps {
		return resource.Unlimited
	}
	return max(0, top.subtree.Sub(top.usage))
}

var closed = room{at: None}

// room returns the available amount of fr at n.
func (f *Forest) room(n Node, fr resource.FR) *room {
	nd := &f.nodes[n]
	if nd.root == None {
		return &closed
	}
	r := &f.rooms[int(n)*f.stride+int(fr)]
	if version := f.changed[int(nd.root)*f.stride+int(fr)]; r.version != version || version == 0 {
		f.measure(nd, fr, r)
		r.version = version
	}
	return r
}

// measure computes the available amount of fr at nd.
func (f *Forest) measure(nd *node, fr resource.FR, r *room) {
	top := f.at(nd.root, fr)
	available := top.subtree.Sub(top.usage)
	r.at, r.limited = nd.root, false
	for i := len(nd.path) - 2; i >= 0; i-- {
		c := f.at(nd.path[i], fr)
		if c.borrow != NoLimit {
			if limit := c.borrowable(); limit <= available {
				r.at, r.limited, available = nd.path[i], true, limit
			}
		}
		available = c.local().Add(available)
	}
	r.available = max(0, available)
}

// borrowable is the most that a node with a borrowing limit may take from its parent, its own
// lent quota included.
func (c *cell) borrowable() resource.Amount {
	return c.subtree.Sub(c.guaranteed).Sub(c.flow()).Add(c.borrow)
}

// Potential returns how much of fr a workload of n could take in an empty forest.
func (f *Forest) Potential(n Node, fr resource.FR) resource.Amount { return f.at(n, fr).potential }

// Borrowing reports whether n would use more than its own quota with v more.
// spec: 10 §4.3.3.
func (f *Forest) Borrowing(n Node, fr resource.FR, v resource.Amount) bool {
	c := f.at(n, fr)
	return c.subtree < c.usage.Add(v)
}

// WithinNominal reports whether n uses no more than its own quota of every fr.
func (f *Forest) WithinNominal(n Node, frs []resource.FR) bool {
	for _, fr := range frs {
		if f.Borrowing(n, fr, 0) {
			return false
		}
	}
	return true
}

// Level returns how far up the tree n would have to borrow for v more of fr: 0 within its own
// quota, else the height of the lowest cohort that has enough. mayReclaim reports whether
// quota of that subtree could be reclaimed from other nodes. spec: 10 §4.3.3.
func (f *Forest) Level(n Node, fr resource.FR, v resource.Amount) (level int, mayReclaim bool) {
	path := f.nodes[n].path
	last := len(path) - 1
	if last == 0 {
		return 0, false
	}
	for i, at := range path[:last] {
		switch c := f.at(at, fr); {
		case c.subtree < c.usage.Add(v):
			v = v.Sub(c.local())
		case i == 0:
			return 0, true
		default:
			return int(f.nodes[at].height), true
		}
	}
	return int(f.nodes[path[last]].height), false
}
