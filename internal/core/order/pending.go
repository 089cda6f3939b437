// Package order decides who is next: the line of a queue's pending workloads, whom of
// them a release of quota wakes, and the tournament of the heads of several queues.
// spec: 10 §4.4, §4.5, 20 §4.2.
package order

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Compare is the order in one queue: higher priority, then longer in line, then UID.
func Compare(a, b *workload.Workload) int {
	if a.Priority != b.Priority {
		return cmp.Compare(b.Priority, a.Priority)
	}
	if a.Since != b.Since {
		return cmp.Compare(a.Since, b.Since)
	}
	return strings.Compare(a.UID, b.UID)
}

// Pending is the line of one queue. A workload in it is either active, and will be
// looked at when it gets to the head, or parked until it is woken. Workloads of one
// class are parked and woken together, at the cost of one. A workload is in one line
// at most, and its Class, Priority, Since and UID do not change while it is. The zero
// value is an empty line.
type Pending struct {
	classes  map[int32]*class     // of everyone but those aside
	awake    heap[seat]           // the classes that are not parked
	pen      []*class             // those that are and had their look, in no order
	filed    []uint64             // by slot, whether the tickets of a class count: it is parked, and not in the pen
	parked   int                  // how many classes are, in the pen or not
	shelves  []shelf              // the tickets, sorted by FR
	released []resource.FR        // and not dealt with, sorted
	aside    []*workload.Workload // parked alone, in no order
	sticky   *workload.Workload   // goes before all others: its victims are leaving
	patterns *Patterns            // of what the parked ones want
	chunks   []*chunk             // the memory of the classes, by slot/chunkLen; nil where none is in use
	spare    []int32              // the slots of classes that nobody is in

	actives, members int
	idle             int // tickets that do not count

	// The memory that chunks and filed begin with: every look needs them, and what is
	// elsewhere takes time to come.
	fewChunks [6]*chunk
	fewFiled  [2]uint64
}

// spares is for how many classes that nobody is in memory is kept, and some for those beside
// them.
const spares = 64

// Share has the line keep what it can share with others there. Call it before anyone
// is parked.
func (p *Pending) Share(patterns *Patterns) { p.patterns = patterns }

// Head returns who is next, or nil.
func (p *Pending) Head() *workload.Workload {
	if c := p.favored(); c != nil && c.stage == awake {
		return p.sticky
	}
	if len(p.awake) == 0 {
		return nil
	}
	return p.awake[0].Workload
}

// favored returns the class of the sticky workload, or nil.
func (p *Pending) favored() *class {
	if p.sticky == nil {
		return nil
	}
	return p.classOf(p.sticky)
}

// classOf returns the class that w is in, or nil. Most often asked about is the head.
func (p *Pending) classOf(w *workload.Workload) *class {
	if len(p.awake) > 0 && p.awake[0].Workload == w {
		return p.awake[0].class
	}
	if c := p.classes[w.Class]; c != nil && c.has(w) {
		return c
	}
	return nil
}

// Add puts w into the line; if it is there already, nothing happens. Where the queue
// lets others pass, a workload of a class that is parked joins its class; in a strict
// queue it wakes it.
func (p *Pending) Add(w *workload.Workload, strict bool) {
	if p.isAside(w) {
		return
	}
	c := p.classes[w.Class]
	switch {
	case c == nil:
		p.open(w)
	case c.has(w):
		return
	default:
		p.join(c, w, strict)
	}
	p.members++
}

// open makes a class with w as its only member.
func (p *Pending) open(w *workload.Workload) {
	if p.classes == nil {
		p.classes = map[int32]*class{}
	}
	c := p.take()
	p.classes[w.Class] = c
	c.line.push(waiter{rankOf(w), w})
	p.awake.push(seat{c.line[0], c})
	p.actives++
}

func (p *Pending) join(c *class, w *workload.Workload, strict bool) {
	if c.stage != awake && strict {
		p.withdraw(c)
		p.rouse(c)
	}
	joins := waiter{rankOf(w), w}
	if joins.before(c.line[0]) {
		p.takeTickets(c)
	}
	c.line.push(joins)
	if c.stage != awake {
		p.giveTickets(c)
		return
	}
	p.actives++
	p.reseat(c)
}

// reseat gives an awake class the place that its head has by now.
func (p *Pending) reseat(c *class) {
	p.awake[c.at].waiter = c.line[0]
	p.awake.fix(int(c.at))
}

// Remove takes w out of the line and tells whether it was in it.
func (p *Pending) Remove(w *workload.Workload) bool {
	if p.sticky == w {
		p.sticky = nil
	}
	if p.leaveClass(w) || p.leaveAside(w) {
		p.members--
		return true
	}
	return false
}

func (p *Pending) isAside(w *workload.Workload) bool {
	return int(w.Spot) < len(p.aside) && p.aside[w.Spot] == w
}

func (p *Pending) leaveAside(w *workload.Workload) bool {
	if !p.isAside(w) {
		return false
	}
	last := len(p.aside) - 1
	p.aside[w.Spot] = p.aside[last]
	p.aside[w.Spot].Spot = w.Spot
	p.aside[last] = nil
	p.aside = p.aside[:last]
	return true
}

func (p *Pending) leaveClass(w *workload.Workload) bool {
	c := p.classOf(w)
	if c == nil {
		return false
	}
	if c.stage == awake {
		p.actives--
	}
	if c.head() == w {
		p.takeTickets(c)
	}
	if len(c.line) == 1 {
		p.drop(c)
		return true
	}
	wasHead := c.head() == w
	c.line.remove(int(w.Spot))
	switch {
	case !wasHead:
	case c.stage == awake:
		p.reseat(c)
	default:
		p.giveTickets(c)
	}
	return true
}

// drop takes out a class with its last member, by whom it is found. It is on no shelf.
func (p *Pending) drop(c *class) {
	if c.stage == awake {
		p.awake.remove(int(c.at))
	} else {
		p.withdraw(c)
		p.parked--
		c.stage = awake
	}
	delete(p.classes, c.id())
	c.line.remove(0)
	p.giveBack(c)
}

// ParkedBy returns the workload for whose sake w is parked without a look of its own,
// or nil. That one may have left the line since, and be good for its UID only.
func (p *Pending) ParkedBy(w *workload.Workload) *workload.Workload {
	if c := p.classOf(w); c != nil && c.stage != awake && c.by != w {
		return c.by
	}
	return nil
}

// SetAside parks w alone: the reason lies in itself, not in quota.
func (p *Pending) SetAside(w *workload.Workload) {
	if p.leaveClass(w) {
		w.Spot = int32(len(p.aside))
		p.aside = append(p.aside, w)
	}
}

// Stick makes w the head whenever it is active: it waits for its victims to leave.
// It stays so until it leaves the line, or another takes its place.
func (p *Pending) Stick(w *workload.Workload) { p.sticky = w }

// Sticky returns the workload that is head whenever it is active, or nil.
func (p *Pending) Sticky() *workload.Workload { return p.sticky }

// Active returns how many are not parked.
func (p *Pending) Active() int { return p.actives }

// Parked returns how many are parked.
func (p *Pending) Parked() int { return p.members - p.actives }

// Aside returns who is parked alone, in the order of the line.
func (p *Pending) Aside() []*workload.Workload {
	aside := slices.Clone(p.aside)
	slices.SortFunc(aside, Compare)
	return aside
}

// All returns everyone in line: the head first, the parked after the active ones.
func (p *Pending) All() []*workload.Workload {
	all := make([]*workload.Workload, 0, p.members)
	for _, s := range p.awake {
		all = s.class.appendTo(all)
	}
	active := len(all)
	p.each(func(c *class) {
		if c.stage != awake {
			all = c.appendTo(all)
		}
	})
	all = append(all, p.aside...)
	slices.SortFunc(all[:active], Compare)
	slices.SortFunc(all[active:], Compare)
	if i := slices.Index(all[:active], p.sticky); i > 0 {
		copy(all[1:], all[:i])
		all[0] = p.sticky
	}
	return all
}

func (c *class) appendTo(all []*workload.Workload) []*workload.Workload {
	for _, w := range c.line {
		all = append(all, w.Workload)
	}
	return all
}
