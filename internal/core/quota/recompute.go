package quota

import (
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
)

// Recompute computes the quota and the cohorts' usage of the edited trees, both the one that a
// node left and the one that it joined, and returns their roots, sorted; a node below a cycle
// is its own root. The slice is valid until the next call.
//
// Every other query requires it after an edit. Charges and releases may precede it. Between
// Mark and Rollback there must be no edit. spec: 10 §4.3.5.
func (f *Forest) Recompute() []Node {
	f.recomputed = f.recomputed[:0]
	for _, n := range f.edited {
		nd := &f.nodes[n]
		nd.edited = false
		switch {
		case !nd.used:
		case nd.root == None:
			f.recomputed = append(f.recomputed, n)
		default:
			f.recomputed = append(f.recomputed, nd.root)
		}
	}
	f.edited = f.edited[:0]
	slices.Sort(f.recomputed)
	f.recomputed = slices.Compact(f.recomputed)
	for _, n := range f.recomputed {
		f.version++
		f.computeUp(n)
		f.computeDown(n)
		for i := range f.row(n) {
			f.change(n, resource.FR(i))
		}
	}
	return f.recomputed
}

// kidsOf are the children that count: none below a cycle.
func (f *Forest) kidsOf(n Node) []Node {
	if f.nodes[n].root == None {
		return nil
	}
	return f.nodes[n].kids
}

// computeUp computes the figures that depend on children: subtree quota, usage, listed, height.
func (f *Forest) computeUp(n Node) {
	nd, row := &f.nodes[n], f.row(n)
	nd.generation++
	nd.height = 0
	for i := range row {
		c := &row[i]
		c.subtree, c.listed, c.keeps = c.nominal, c.own, false
		if nd.cohort {
			c.usage = 0
		}
	}
	for _, kid := range f.kidsOf(n) {
		f.computeUp(kid)
		nd.height = max(nd.height, f.nodes[kid].height+1)
		below := f.row(kid)
		for i := range row {
			c, k := &row[i], &below[i]
			c.subtree = c.subtree.Add(k.subtree.Sub(k.guaranteed))
			c.usage = c.usage.Add(k.flow())
			c.listed = c.listed || k.listed
			c.keeps = c.keeps || k.keeps || k.guaranteed > 0
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

// computeDown computes the figures that depend on the parent: the potential, and the quota
// that a cohort can lend.
func (f *Forest) computeDown(n Node) {
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
		f.computeDown(kid)
	}
}

// sumLendable sums the potential of each resource. It stores the sum at the first FR of the
// resource, which does not change when FRs are added. spec: 20 §4.1.
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
