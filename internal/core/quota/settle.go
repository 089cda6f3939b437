package quota

import (
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
)

// Settle works out anew the quota and the cohorts' usage of the trees that were edited,
// both the one that a node left and the one it came to, and returns their roots, sorted;
// a node below a cycle counts as its own root. The list is good until the next Settle.
//
// Every question asks for a settled forest. Charges and releases may come before:
// what the queues use is taken as it then is. Between Mark and Rollback there must be
// no edit. spec: 10 §4.3.5.
func (f *Forest) Settle() []Node {
	f.settled = f.settled[:0]
	for _, n := range f.edited {
		nd := &f.nodes[n]
		nd.edited = false
		switch {
		case !nd.used:
		case nd.root == None:
			f.settled = append(f.settled, n)
		default:
			f.settled = append(f.settled, nd.root)
		}
	}
	f.edited = f.edited[:0]
	slices.Sort(f.settled)
	f.settled = slices.Compact(f.settled)
	for _, n := range f.settled {
		f.version++
		f.gather(n)
		f.spread(n)
		for i := range f.row(n) {
			f.change(n, resource.FR(i))
		}
	}
	return f.settled
}

// kidsOf are the children that count: below a cycle a node has what it has alone.
func (f *Forest) kidsOf(n Node) []Node {
	if f.nodes[n].root == None {
		return nil
	}
	return f.nodes[n].kids
}

// gather works out what comes from below: subtree quota, usage, what is listed, height.
func (f *Forest) gather(n Node) {
	nd, row := &f.nodes[n], f.row(n)
	nd.generation++
	nd.height = 0
	for i := range row {
		c := &row[i]
		c.subtree, c.listed = c.nominal, c.own
		if nd.cohort {
			c.usage = 0
		}
	}
	for _, kid := range f.kidsOf(n) {
		f.gather(kid)
		nd.height = max(nd.height, f.nodes[kid].height+1)
		below := f.row(kid)
		for i := range row {
			c, k := &row[i], &below[i]
			c.subtree = c.subtree.Add(k.subtree.Sub(k.guaranteed))
			c.usage = c.usage.Add(k.flow())
			c.listed = c.listed || k.listed
		}
	}
	for i := range row {
		c := &row[i]
		c.guaranteed = 0
		if c.lend != NoLimit {
			c.guaranteed = max(0, c.subtree.Sub(c.lend))
		}
	}
}

// spread works out what comes from above: the potential, and what a cohort can lend.
func (f *Forest) spread(n Node) {
	nd, row := &f.nodes[n], f.row(n)
	for i := range row {
		c := &row[i]
		switch {
		case nd.root == None:
			c.potential = 0
		case nd.parent == None:
			c.potential = c.subtree
		default:
			c.potential = c.guaranteed.Add(f.at(nd.parent, resource.FR(i)).potential)
			if c.borrow != NoLimit {
				c.potential = min(c.potential, c.subtree.Add(c.borrow))
			}
		}
	}
	if nd.cohort {
		f.sumLendable(n, row)
	}
	for _, kid := range f.kidsOf(n) {
		f.spread(kid)
	}
}

// sumLendable adds up the potential of each resource, and notes the sum at the first FR
// of the resource, which stays the first when others come. spec: 20 §4.1.
func (f *Forest) sumLendable(n Node, row []cell) {
	var sum resource.Amount
	for _, o := range f.byKind {
		sum = sum.Add(row[o.fr].potential)
		if o.last {
			f.lendable[int(n)*f.stride+int(o.first)] = sum
			sum = 0
		}
	}
}
