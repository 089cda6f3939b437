// Package order decides who is next: the line of a queue's pending workloads, and
// the order of the heads of several queues. spec: 10 §4.4, §4.5.
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
	return cmp.Or(
		cmp.Compare(b.Priority, a.Priority),
		cmp.Compare(a.Since, b.Since),
		strings.Compare(a.UID, b.UID),
	)
}

// Pending is the line of one queue. A workload in it is either active, and will be
// looked at when it gets to the head, or parked until Wake. Workloads of one class
// are parked and woken together, at the cost of one. The zero value is an empty line.
type Pending struct {
	classes map[int32]*class     // of everyone but those aside
	awake   heap[*class]         // the classes that are not parked
	parked  map[int32]*class     // those that are
	aside   []*workload.Workload // parked alone
	sticky  *workload.Workload   // goes before all others: its victims are leaving

	actives, members int
}

// class is the line of those that no decision can tell apart but by age.
type class struct {
	line   heap[*workload.Workload] // never empty
	parked bool
	wants  []resource.FR      // while parked: a release of one of these may help
	by     *workload.Workload // while parked: who was looked at
}

func (c *class) head() *workload.Workload { return c.line.items[0] }

// Head returns who is next, or nil.
func (p *Pending) Head() *workload.Workload {
	if p.sticky != nil {
		if c := p.classes[p.sticky.Class]; c != nil && !c.parked && c.line.has(p.sticky) {
			return p.sticky
		}
	}
	if len(p.awake.items) == 0 {
		return nil
	}
	return p.awake.items[0].head()
}

// Add puts w into the line. Where the queue lets others pass, a workload of a class
// that is parked joins its class; in a strict queue it wakes it.
func (p *Pending) Add(w *workload.Workload, strict bool) {
	if p.classes == nil {
		p.classes, p.parked = map[int32]*class{}, map[int32]*class{}
		p.awake = newHeap(func(a, b *class) int { return Compare(a.head(), b.head()) })
	}
	c := p.classes[w.Class]
	if c == nil {
		c = &class{line: newHeap(Compare)}
		p.classes[w.Class] = c
	}
	if c.parked && strict {
		p.rouse(w.Class, c)
	}
	c.line.push(w)
	p.members++
	if !c.parked {
		p.actives++
		p.awake.push(c)
		p.awake.fix(c)
	}
}

// Remove takes w out of the line and tells whether it was in it.
func (p *Pending) Remove(w *workload.Workload) bool {
	if p.sticky == w {
		p.sticky = nil
	}
	return p.leaveClass(w) || p.leaveAside(w)
}

func (p *Pending) leaveAside(w *workload.Workload) bool {
	i := slices.Index(p.aside, w)
	if i < 0 {
		return false
	}
	p.aside = slices.Delete(p.aside, i, i+1)
	p.members--
	return true
}

func (p *Pending) leaveClass(w *workload.Workload) bool {
	c := p.classes[w.Class]
	if c == nil || !c.line.has(w) {
		return false
	}
	p.members--
	if !c.parked {
		p.actives--
	}
	if len(c.line.items) == 1 { // gone with its last member, who is still needed to find it
		p.awake.remove(c)
		delete(p.parked, w.Class)
		delete(p.classes, w.Class)
		return true
	}
	c.line.remove(w)
	p.awake.fix(c)
	return true
}

// Park sets w aside with every active workload of its class, since what did not
// work for it won't for them, until a release of something it wants.
func (p *Pending) Park(w *workload.Workload, wants []resource.FR) {
	c := p.classes[w.Class]
	if c == nil || c.parked {
		return
	}
	p.awake.remove(c)
	c.parked, c.wants, c.by = true, wants, w
	p.parked[w.Class] = c
	p.actives -= len(c.line.items)
}

// ParkedBy returns the workload for whose sake w is parked without a look of its own,
// or nil.
func (p *Pending) ParkedBy(w *workload.Workload) *workload.Workload {
	if c := p.parked[w.Class]; c != nil && c.by != w && c.line.has(w) {
		return c.by
	}
	return nil
}

// SetAside parks w alone: the reason lies in itself, not in quota.
func (p *Pending) SetAside(w *workload.Workload) {
	if p.leaveClass(w) {
		p.aside = append(p.aside, w)
		p.members++
	}
}

// Wake makes the classes active that want one of the released FRs, and returns how
// many workloads it woke.
func (p *Pending) Wake(released []resource.FR) int {
	before := p.actives
	for id, c := range p.parked { //berth:unordered the heap orders what is pushed
		if slices.ContainsFunc(c.wants, func(fr resource.FR) bool { return slices.Contains(released, fr) }) {
			p.rouse(id, c)
		}
	}
	return p.actives - before
}

// WakeAll makes everyone active, and returns how many it woke.
func (p *Pending) WakeAll() int {
	before := p.actives
	for id, c := range p.parked { //berth:unordered the heap orders what is pushed
		p.rouse(id, c)
	}
	aside := p.aside
	p.aside = nil
	p.members -= len(aside)
	for _, w := range aside {
		p.Add(w, true)
	}
	return p.actives - before
}

func (p *Pending) rouse(id int32, c *class) {
	delete(p.parked, id)
	c.parked, c.wants, c.by = false, nil, nil
	p.awake.push(c)
	p.actives += len(c.line.items)
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

// All returns everyone in line: the head first, the parked after the active ones.
func (p *Pending) All() []*workload.Workload {
	active := make([]*workload.Workload, 0, p.members)
	parked := slices.Clone(p.aside)
	for _, c := range p.classes { //berth:unordered sorted below
		if c.parked {
			parked = append(parked, c.line.items...)
		} else {
			active = append(active, c.line.items...)
		}
	}
	slices.SortFunc(active, Compare)
	slices.SortFunc(parked, Compare)
	if i := slices.Index(active, p.sticky); i > 0 {
		active = slices.Insert(slices.Delete(active, i, i+1), 0, p.sticky)
	}
	return append(active, parked...)
}
