package quota

import "github.com/berth-project/berth/internal/core/resource"

// Charge adds usage to n and, past what n guarantees to itself, to its ancestors. A node below
// a cycle is charged alone. A saturated sum saturates the ancestors too. spec: 10 §4.3.2.
func (f *Forest) Charge(n Node, v resource.Vector) {
	f.version++
	path := f.nodes[n].path
	for _, e := range v {
		f.change(n, e.FR)
		amount := e.Amount
		for _, at := range path {
			if amount <= 0 {
				break
			}
			c := f.at(at, e.FR)
			before := c.flow()
			f.set(at, e.FR, c, c.usage.Add(amount))
			amount = c.flow().Sub(before)
		}
	}
}

// Release is the inverse of Charge.
func (f *Forest) Release(n Node, v resource.Vector) {
	f.version++
	path := f.nodes[n].path
	for _, e := range v {
		f.change(n, e.FR)
		amount := e.Amount
		for _, at := range path {
			if amount <= 0 {
				break
			}
			c := f.at(at, e.FR)
			before := c.flow()
			f.set(at, e.FR, c, c.usage.Sub(amount))
			amount = before.Sub(c.flow())
		}
	}
}

// Saturated reports whether the usage of one of v's FRs is saturated, at n or above. A release
// of it loses the sum: call Recount then.
func (f *Forest) Saturated(n Node, v resource.Vector) bool {
	for _, e := range v {
		for _, at := range f.nodes[n].path {
			if f.at(at, e.FR).usage == resource.Unlimited {
				return true
			}
		}
	}
	return false
}

// Recount replaces the usage of a ClusterQueue, and recomputes the usage of its cohorts from
// their children.
func (f *Forest) Recount(n Node, v resource.Vector) {
	f.version++
	row, path := f.row(n), f.nodes[n].path
	for i := range row {
		fr := resource.FR(i)
		f.change(n, fr)
		f.set(n, fr, &row[i], v.Of(fr))
		for _, at := range path[1:] {
			var sum resource.Amount
			for _, kid := range f.nodes[at].kids {
				sum = sum.Add(f.at(kid, fr).flow())
			}
			f.set(at, fr, f.at(at, fr), sum)
		}
	}
}

// change notes that the available amounts of fr in the tree of n have changed.
func (f *Forest) change(n Node, fr resource.FR) {
	if root := f.nodes[n].root; root != None {
		f.changed[int(root)*f.stride+int(fr)] = f.version
	}
}

// set changes the usage of c, the cell of fr at the node.
func (f *Forest) set(at Node, fr resource.FR, c *cell, usage resource.Amount) {
	if f.speculating > 0 {
		f.log = append(f.log, undo{at, fr, c.usage})
	}
	c.usage = usage
}

// Mark is a point that Rollback returns to.
type Mark int

// Mark begins a speculation. Marks nest; each must be rolled back, last first.
func (f *Forest) Mark() Mark {
	f.speculating++
	return Mark(len(f.log))
}

// Rollback undoes every charge, release and recount since m.
func (f *Forest) Rollback(m Mark) {
	if len(f.log) > int(m) {
		f.version++
	}
	for i := len(f.log) - 1; i >= int(m); i-- {
		u := f.log[i]
		f.at(u.at, u.fr).usage = u.was
		f.change(u.at, u.fr)
	}
	f.log = f.log[:m]
	f.speculating--
}

// Version grows with every change of a usage, a quota, a parent or a weight: a result is valid
// as long as the version is the same.
func (f *Forest) Version() uint64 { return f.version }

// Generation returns the allocatable generation of n: it grows when the tree of n is
// recomputed after an edit, and by Bump. A node that gets the number of a removed one
// continues its count. spec: 10 §4.3.6.
func (f *Forest) Generation(n Node) uint64 { return f.nodes[n].generation }

// Bump increments the generation of n for a change that the forest does not see: a workload of
// the queue was removed or replaced.
func (f *Forest) Bump(n Node) { f.nodes[n].generation++ }
