package order

import (
	"cmp"

	"github.com/berth-project/berth/internal/core/workload"
)

// Standing is the place of a LocalQueue line among the lines of one queue: the lowest comes first. Lines of equal standing are
// as one line. spec: 20 §4.4.
type Standing int64

// localLine is a LocalQueue line: the workloads of one number workload.Workload.Line. The active classes are two heaps, of
// the lines and in each line, so that a change of a standing moves one item, and what is inadmissible does not notice it.
// While no workload has a number and no line a standing, there is no heap of lines.
//
//	numberedLines.heads ──► localLine ──► awake ──► class ──► members
type localLine struct {
	number   int32
	index    int32 // in Pending.lines, from 1; 0 is Pending.unnumbered
	at       int32 // in numberedLines.heads
	classes  int32 // active or not
	standing Standing
	awake    heap[activeClass]
}

// lineHead is an item of the heap of the lines with active classes. It contains the head, so that comparisons do not visit
// the lines.
type lineHead struct {
	standing Standing
	member
	line *localLine
}

func (h lineHead) before(o lineHead) bool {
	if h.standing != o.standing {
		return h.standing < o.standing
	}
	return h.member.before(o.member)
}

func (h lineHead) moved(i int) { h.line.at = int32(i) }

// numberedLines are the lines with a number other than 0. A line exists while it has classes or a standing.
type numberedLines struct {
	heads   heap[lineHead] // the lines with active classes, with a number or not
	all     []*localLine   // nil where one was removed
	free    []int32        // the indexes of removed ones, from 1
	indexes map[int32]int32
}

// line returns the line of a number, nil if there is none.
func (p *Pending) line(number int32) *localLine {
	if number == 0 {
		return &p.unnumbered
	}
	if p.lines == nil {
		return nil
	}
	if index, known := p.lines.indexes[number]; known {
		return p.lines.all[index-1]
	}
	return nil
}

// standingAt returns the standing of the line of an index.
func (p *Pending) standingAt(index int) Standing {
	if index == 0 {
		return p.unnumbered.standing
	}
	return p.lines.all[index-1].standing
}

// lineOf returns the line of a class.
func (p *Pending) lineOf(c *class) *localLine {
	if p.lines == nil {
		return &p.unnumbered
	}
	return p.line(c.head().Line)
}

// makeLine returns the line of a number, a new one on first use.
func (p *Pending) makeLine(number int32) *localLine {
	if l := p.line(number); l != nil {
		return l
	}
	if p.lines == nil {
		p.lines = &numberedLines{indexes: map[int32]int32{}}
		p.fixLine(&p.unnumbered)
	}
	n := p.lines
	l := &localLine{number: number}
	if last := len(n.free) - 1; last >= 0 {
		l.index, n.free = n.free[last], n.free[:last]
		n.all[l.index-1] = l
	} else {
		n.all = append(n.all, l)
		l.index = int32(len(n.all))
	}
	n.indexes[number] = l.index
	return l
}

// sweepLine forgets a line without classes and standing.
func (p *Pending) sweepLine(l *localLine) {
	if l.index == 0 || l.classes > 0 || l.standing != 0 {
		return
	}
	for i := range p.indexes {
		if s := &p.indexes[i]; int(l.index) <= len(s.others) {
			s.others[l.index-1] = noEntries
		}
	}
	n := p.lines
	n.all[l.index-1] = nil
	n.free = append(n.free, l.index)
	if delete(n.indexes, l.number); len(n.indexes) == 0 {
		p.lines = nil
	}
}

// SetStanding sets the standing of the line of a number, which is 0 until then. It costs the logarithm of the number of lines.
func (p *Pending) SetStanding(number int32, standing Standing) {
	l := p.line(number)
	if l == nil {
		if standing == 0 {
			return
		}
		l = p.makeLine(number)
	}
	l.standing = standing
	if n := p.lines; n != nil && n.has(l) {
		n.heads[l.at].standing = standing
		n.heads.fix(int(l.at))
	}
	p.sweepLine(l)
}

// has reports whether a line is in the heap of lines.
func (n *numberedLines) has(l *localLine) bool {
	return int(l.at) < len(n.heads) && n.heads[l.at].line == l
}

// firstLine returns the line of the first active class, an empty one if there is none.
func (p *Pending) firstLine() *localLine {
	if p.lines == nil || len(p.lines.heads) == 0 {
		return &p.unnumbered
	}
	return p.lines.heads[0].line
}

// activeLine returns the line at an index of the heap of lines, nil past its end.
func (p *Pending) activeLine(i int) *localLine {
	switch {
	case p.lines == nil && i == 0:
		return &p.unnumbered
	case p.lines == nil || i >= len(p.lines.heads):
		return nil
	}
	return p.lines.heads[i].line
}

// fixLine updates the place of a line after a change of its active classes.
func (p *Pending) fixLine(l *localLine) {
	n := p.lines
	if n == nil {
		return
	}
	switch in := n.has(l); {
	case len(l.awake) == 0 && in:
		n.heads.remove(int(l.at))
	case len(l.awake) == 0:
	case !in:
		n.heads.push(lineHead{l.standing, l.awake[0].member, l})
	case n.heads[l.at].member != l.awake[0].member:
		n.heads[l.at].member = l.awake[0].member
		n.heads.fix(int(l.at))
	}
}

// pushActive adds a class to the active ones of its line.
func (p *Pending) pushActive(c *class) {
	l := p.lineOf(c)
	l.awake.push(activeClass{c.members[0], c})
	p.fixLine(l)
}

// removeActive removes a class from the active ones of its line.
func (p *Pending) removeActive(c *class) {
	l := p.lineOf(c)
	l.awake.remove(int(c.at))
	p.fixLine(l)
}

// standingOf returns the standing of a workload in line.
func (p *Pending) standingOf(w *workload.Workload) Standing {
	if p.lines == nil {
		return p.unnumbered.standing
	}
	if l := p.line(w.Line); l != nil {
		return l.standing
	}
	return 0
}

// compare is the order of two workloads in line that are not prioritized: the lower standing, then as Compare.
func (p *Pending) compare(a, b *workload.Workload) int {
	if p.lines != nil {
		if first := cmp.Compare(p.standingOf(a), p.standingOf(b)); first != 0 {
			return first
		}
	}
	return Compare(a, b)
}

// passes reports whether an inadmissible class comes before the head. A prioritized workload comes first of its
// standing.
func (p *Pending) passes(c *class, head *workload.Workload) bool {
	if p.lines != nil {
		if first := cmp.Compare(p.lineOf(c).standing, p.standingOf(head)); first != 0 {
			return first < 0
		}
	}
	switch {
	case head == p.prioritized:
		return false
	case c == p.prioritizedClass():
		return true
	}
	return Compare(head, c.head()) >= 0
}
