package quota

import "github.com/berth-project/berth/internal/core/resource"

// Dimension is quota as a dimension of package ledger, which alone has one: a forest that can be
// charged. Speculation is an undo log, never a copy.
type Dimension struct {
	Forest
	log         []undo
	speculating int
}

type undo struct {
	at  Node
	fr  resource.FR
	was resource.Amount
}

// NewDimension returns a forest without nodes that counts the FRs of t.
func NewDimension(t *resource.Table) Dimension { return Dimension{Forest: Forest{table: t}} }

// Charge adds usage to n and, past what n guarantees to itself, to its ancestors. A node below
// a cycle is charged alone. A saturated sum saturates the ancestors too. spec: 10 §4.3.2.
func (d *Dimension) Charge(n Node, v resource.Vector) {
	d.version++
	path := d.nodes[n].path
	for _, e := range v {
		if int(e.FR) >= d.frs {
			d.Reach(e.FR)
		}
		d.change(n, e.FR)
		amount := e.Amount
		for _, at := range path {
			if amount <= 0 {
				break
			}
			c := d.at(at, e.FR)
			before := c.flow()
			d.set(at, e.FR, c, c.usage.Add(amount))
			amount = c.flow().Sub(before)
		}
	}
}

// Release is the inverse of Charge.
func (d *Dimension) Release(n Node, v resource.Vector) {
	d.version++
	path := d.nodes[n].path
	for _, e := range v {
		d.change(n, e.FR)
		amount := e.Amount
		for _, at := range path {
			if amount <= 0 {
				break
			}
			c := d.at(at, e.FR)
			before := c.flow()
			d.set(at, e.FR, c, c.usage.Sub(amount))
			amount = before.Sub(c.flow())
		}
	}
}

// Available returns how much of fr a workload of n can still take, own and borrowed,
// never below 0, and nothing below a cycle. spec: 10 §4.3.2.
func (d *Dimension) Available(n Node, fr resource.FR) resource.Amount { return d.room(n, fr).available }

// Fits reports whether all of v can be charged to n now.
func (d *Dimension) Fits(n Node, v resource.Vector) bool {
	if d.nodes[n].root == None {
		return false
	}
	for _, e := range v {
		if e.Amount > d.Available(n, e.FR) {
			return false
		}
	}
	return true
}

// Saturated reports whether the usage of one of v's FRs is saturated, at n or above. A release
// of it loses the sum: call Recount then.
func (d *Dimension) Saturated(n Node, v resource.Vector) bool {
	for _, e := range v {
		for _, at := range d.nodes[n].path {
			if d.at(at, e.FR).usage == resource.Unlimited {
				return true
			}
		}
	}
	return false
}

// Recount replaces the usage of a ClusterQueue, and recomputes the usage of its cohorts from
// their children.
func (d *Dimension) Recount(n Node, v resource.Vector) {
	d.version++
	row, path := d.row(n), d.nodes[n].path
	for i := range row {
		fr := resource.FR(i)
		d.change(n, fr)
		d.set(n, fr, &row[i], v.Of(fr))
		for _, at := range path[1:] {
			var sum resource.Amount
			for _, kid := range d.nodes[at].kids {
				sum = sum.Add(d.at(kid, fr).flow())
			}
			d.set(at, fr, d.at(at, fr), sum)
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
func (d *Dimension) set(at Node, fr resource.FR, c *cell, usage resource.Amount) {
	if d.speculating > 0 {
		d.log = append(d.log, undo{at, fr, c.usage})
	}
	c.usage = usage
}

// Mark is a point that Rollback returns to.
type Mark int

// Mark begins a speculation. Marks nest; each must be rolled back, last first.
func (d *Dimension) Mark() Mark {
	d.speculating++
	return Mark(len(d.log))
}

// Speculates reports whether a mark is not rolled back yet.
func (d *Dimension) Speculates() bool { return d.speculating > 0 }

// Rollback undoes every charge, release and recount since m.
func (d *Dimension) Rollback(m Mark) {
	if len(d.log) > int(m) {
		d.version++
	}
	for i := len(d.log) - 1; i >= int(m); i-- {
		u := d.log[i]
		d.at(u.at, u.fr).usage = u.was
		d.change(u.at, u.fr)
	}
	d.log = d.log[:m]
	d.speculating--
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
func (d *Dimension) Bump(n Node) { d.nodes[n].generation++ }
