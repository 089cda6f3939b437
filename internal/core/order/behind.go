package order

import "github.com/berth-project/berth/internal/core/workload"

// position is the place of an active workload: its line among those with active classes, its class among the active ones of
// the line, and its index in that class.
type position struct{ line, class, at int }

// candidate is a workload at a position.
type candidate struct {
	lineHead
	position
}

// Behind appends up to n active workloads other than w to out, in the order of the line. It
// costs n·log n, however many are in line.
func (p *Pending) Behind(w *workload.Workload, n int, out []*workload.Workload) []*workload.Workload {
	var first *workload.Workload // the prioritized one, while it is due
	if c := p.prioritizedClass(); c != nil && c.stage == awake && p.prioritized != w {
		first = p.prioritized
	}
	returned := first
	next := &candidates{line: p} // those whose parents in all heaps were returned
	next.add(position{})
	for ; n > 0 && len(next.heap) > 0; n-- {
		x := next.heap[0]
		switch {
		case first != nil && x.standing >= p.standingOf(first):
			out, first = append(out, first), nil
			continue
		case x.Workload != w && x.Workload != returned:
			out = append(out, x.Workload)
		default:
			n++
		}
		next.heap.remove(0)
		next.addBehind(x.position)
	}
	return out
}

// candidates are a heap of the active workloads that may be the next.
type candidates struct {
	line *Pending
	heap heap[candidate]
}

func (c candidate) before(o candidate) bool { return c.lineHead.before(o.lineHead) }

func (c candidate) moved(int) {}

// add adds the workload at a position, if there is one.
func (c *candidates) add(x position) {
	l := c.line.activeLine(x.line)
	if l == nil {
		return
	}
	if x.class >= len(l.awake) || x.at >= len(l.awake[x.class].class.members) {
		return
	}
	c.heap.push(candidate{lineHead{l.standing, l.awake[x.class].class.members[x.at], l}, x})
}

// addBehind adds the workloads right behind a position, in all heaps.
func (c *candidates) addBehind(x position) {
	c.add(position{x.line, x.class, 2*x.at + 1})
	c.add(position{x.line, x.class, 2*x.at + 2})
	if x.at > 0 {
		return
	}
	c.add(position{x.line, 2*x.class + 1, 0})
	c.add(position{x.line, 2*x.class + 2, 0})
	if x.class > 0 {
		return
	}
	c.add(position{2*x.line + 1, 0, 0})
	c.add(position{2*x.line + 2, 0, 0})
}

// First returns the first n workloads in the order of Compare, active or not, without InadmissibleAlone. It costs a look at each
// class.
func (p *Pending) First(n int) (out []*workload.Workload) {
	var next heap[peer]
	p.each(func(c *class) { next.push(peer{c.members[0], c, 0}) })
	for ; n > 0 && len(next) > 0; n-- {
		x := next[0]
		out = append(out, x.Workload)
		next.remove(0)
		for at := 2*x.at + 1; at <= 2*x.at+2 && at < len(x.class.members); at++ {
			next.push(peer{x.class.members[at], x.class, at})
		}
	}
	return out
}

// peer is a workload at an index in its class.
type peer struct {
	member
	class *class
	at    int
}

func (x peer) before(o peer) bool { return x.member.before(o.member) }

func (peer) moved(int) {}
