package quota

import "github.com/berth-project/berth/internal/core/resource"

// Parent returns the node above n, or None.
func (f *Forest) Parent(n Node) Node { return f.nodes[n].parent }

// Root returns the root of n's tree, or None when its ancestors form a cycle: such
// a node has no quota until an edit breaks the cycle.
func (f *Forest) Root(n Node) Node { return f.nodes[n].root }

// Kids returns the children of n, in order of their numbers. Not to be modified.
func (f *Forest) Kids(n Node) []Node { return f.nodes[n].kids }

// IsCohort tells a Cohort from a ClusterQueue.
func (f *Forest) IsCohort(n Node) bool { return f.nodes[n].cohort }

// Nominal returns n's own quota of fr.
func (f *Forest) Nominal(n Node, fr resource.FR) resource.Amount { return f.nominal[f.at(n, fr)] }

// Subtree returns the quota of n's subtree that is n's or visible to it.
func (f *Forest) Subtree(n Node, fr resource.FR) resource.Amount { return f.subtree[f.at(n, fr)] }

// Usage returns what is charged to n.
func (f *Forest) Usage(n Node, fr resource.FR) resource.Amount { return f.usage[f.at(n, fr)] }

// BorrowLimit returns n's borrowing limit of fr, NoLimit when unset.
func (f *Forest) BorrowLimit(n Node, fr resource.FR) resource.Amount { return f.borrow[f.at(n, fr)] }

func (f *Forest) at(n Node, fr resource.FR) int { return int(n)*f.stride + int(fr) }

// Local returns what n guarantees to itself and does not use.
func (f *Forest) Local(n Node, fr resource.FR) resource.Amount { return f.local(f.at(n, fr)) }

// Available returns how much of fr a workload of n can still take, own and borrowed,
// never below 0, and nothing below a cycle. spec: 10 §4.3.2.
func (f *Forest) Available(n Node, fr resource.FR) resource.Amount {
	if f.nodes[n].root == None {
		return 0
	}
	return max(0, f.avail(n, fr))
}

func (f *Forest) avail(n Node, fr resource.FR) resource.Amount {
	i := f.at(n, fr)
	p := f.up(n)
	if p == None {
		return f.subtree[i].Sub(f.usage[i])
	}
	fromParent := f.avail(p, fr)
	if f.borrow[i] != NoLimit {
		g := f.guaranteed(i)
		stored := f.subtree[i].Sub(g).Sub(max(0, f.usage[i].Sub(g)))
		fromParent = min(fromParent, stored.Add(f.borrow[i]))
	}
	return f.local(i).Add(fromParent)
}

// Potential returns how much of fr a workload of n could take in an empty forest.
func (f *Forest) Potential(n Node, fr resource.FR) resource.Amount {
	i := f.at(n, fr)
	if f.nodes[n].root == None {
		return 0
	}
	p := f.up(n)
	if p == None {
		return f.subtree[i]
	}
	total := f.guaranteed(i).Add(f.Potential(p, fr))
	if f.borrow[i] != NoLimit {
		total = min(total, f.subtree[i].Add(f.borrow[i]))
	}
	return total
}

// Borrowing tells whether n would use more than its own with v more.
// spec: 10 §4.3.3.
func (f *Forest) Borrowing(n Node, fr resource.FR, v resource.Amount) bool {
	i := f.at(n, fr)
	return f.subtree[i] < f.usage[i].Add(v)
}

// WithinNominal tells whether n uses no more than its own of every fr.
func (f *Forest) WithinNominal(n Node, frs []resource.FR) bool {
	for _, fr := range frs {
		if f.Borrowing(n, fr, 0) {
			return false
		}
	}
	return true
}

// Level says how far up the tree n would have to borrow for v more of fr: 0 within
// its own quota, else the height of the lowest cohort that has enough. mayReclaim
// tells whether quota that belongs to that subtree could be won back from outside.
// spec: 10 §4.3.3.
func (f *Forest) Level(n Node, fr resource.FR, v resource.Amount) (level int, mayReclaim bool) {
	p := f.up(n)
	if p == None || !f.Borrowing(n, fr, v) {
		return 0, p != None
	}
	rest := v.Sub(f.Local(n, fr))
	for at := p; ; {
		if !f.Borrowing(at, fr, rest) {
			return int(f.nodes[at].height), f.up(at) != None
		}
		up := f.up(at)
		if up == None {
			return int(f.nodes[at].height), false
		}
		rest = rest.Sub(f.Local(at, fr))
		at = up
	}
}

// Fits tells whether all of v can be charged to n now.
func (f *Forest) Fits(n Node, v resource.Vector) bool {
	if f.nodes[n].root == None {
		return false
	}
	for _, e := range v {
		if e.Amount > f.Available(n, e.FR) {
			return false
		}
	}
	return true
}
