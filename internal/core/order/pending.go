// Package order decides which workload is next: the line of a queue's pending workloads, the
// classes that a release of quota activates, and the tournament of the heads of several
// queues. spec: 10 §4.4, §4.5, 20 §4.2.
package order

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Compare is the order in one LocalQueue line, and in a queue whose lines are of equal standing: higher priority, then longer
// in line, then UID.
func Compare(a, b *workload.Workload) int {
	if a.Priority != b.Priority {
		return cmp.Compare(b.Priority, a.Priority)
	}
	if a.Since != b.Since {
		return cmp.Compare(a.Since, b.Since)
	}
	return strings.Compare(a.UID, b.UID)
}

// Pending is the line of one queue. A workload in it is either active, and is evaluated when
// it is the head, or inadmissible until a wake condition holds. The workloads of one class
// become inadmissible and active together, at the cost of one. A workload is in one line at
// most, and its Class, Line, Priority, Since and UID do not change meanwhile. The zero value is
// an empty line.
//
// The order is: the lower standing of the LocalQueue line, see SetStanding; the prioritized workload;
// Compare. The workloads of a class have the same Line. spec: 20 §4.4.
type Pending struct {
	classes      map[int32]*class     // by id, of all workloads but alone
	unnumbered   localLine            // of the workloads whose Line is 0
	lines        *numberedLines       // the other lines; nil for none
	tried        []*class             // the inadmissible classes evaluated since the last release, in no order
	filed        []uint64             // a bit for each slot: the class is filed
	inadmissible int                  // how many classes are tried or filed
	indexes      []wakeIndex          // in the order of findIndex
	released     []resource.FR        // not dealt with yet, sorted
	alone        []*workload.Workload // inadmissible for reasons of their own, in no order
	prioritized  *workload.Workload   // first of its standing whenever it is active: its victims are leaving
	patterns     *Patterns            // of the wants of inadmissible classes
	watch        func(*workload.Workload)
	thresholds   *Thresholds // of the tree of the queue, or nil
	now          Figures     // of the queue, with thresholds
	unfiled      bool        // it is in the list of thresholds
	packing      *Packing    // the one that is not complete, or nil
	chunks       []*chunk    // the memory of the classes, by slot/chunkLen; nil if unused
	spare        []int32     // the free slots

	wakes            Wakes
	actives, members int
	idle             int // index entries that do not count

	// The first memory of chunks and filed, inline because every evaluation reads them.
	fewChunks [6]*chunk
	fewFiled  [2]uint64
}

// Wakes counts the classes that releases have activated.
type Wakes struct {
	All  uint64
	Vain uint64 // in vain: the next evaluation made the class inadmissible again
}

// Wakes returns the counts since the line exists.
func (p *Pending) Wakes() Wakes { return p.wakes }

// spares is the number of free slots up to which unused chunks are kept.
const spares = 64

// Share makes the line share patterns with others. Call it before any workload is
// inadmissible.
func (p *Pending) Share(patterns *Patterns) { p.patterns = patterns }

// Watch makes the line call f with a member of a class that became active or inadmissible or lost its last member, with a workload
// that became inadmissible alone or active again, and with one that is prioritized. f only takes note.
func (p *Pending) Watch(f func(*workload.Workload)) { p.watch = f }

func (p *Pending) changed(w *workload.Workload) {
	if p.watch != nil {
		p.watch(w)
	}
}

// Head returns the next workload to evaluate, or nil.
func (p *Pending) Head() *workload.Workload {
	first := p.firstLine()
	if len(first.awake) == 0 {
		return nil
	}
	if c := p.prioritizedClass(); c != nil && c.stage == awake && p.lineOf(c).standing == first.standing {
		return p.prioritized
	}
	return first.awake[0].Workload
}

// prioritizedClass returns the class of the prioritized workload, or nil.
func (p *Pending) prioritizedClass() *class {
	if p.prioritized == nil {
		return nil
	}
	return p.classOf(p.prioritized)
}

// classOf returns the class that w is in, or nil. The head comes first, as the most frequent
// argument.
func (p *Pending) classOf(w *workload.Workload) *class {
	if first := p.firstLine(); len(first.awake) > 0 && first.awake[0].Workload == w {
		return first.awake[0].class
	}
	if c := p.classes[w.Class]; c != nil && c.has(w) {
		return c
	}
	return nil
}

// Add puts w into the line, unless it is in it. If its class is inadmissible, w is
// inadmissible with it, or activates it in a strict queue.
func (p *Pending) Add(w *workload.Workload, strict bool) {
	if p.isAlone(w) {
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
	c := p.allocate()
	p.classes[w.Class] = c
	c.members.push(member{rankOf(w), w})
	p.makeLine(w.Line).classes++
	p.pushActive(c)
	p.actives++
}

func (p *Pending) join(c *class, w *workload.Workload, strict bool) {
	p.changes(c)
	if c.stage != awake && strict {
		p.withdraw(c)
		p.activate(c)
	}
	joins := member{rankOf(w), w}
	if joins.before(c.members[0]) {
		p.removeEntries(c)
	}
	c.members.push(joins)
	if c.stage != awake {
		p.addEntries(c)
		return
	}
	p.actives++
	p.fixPlace(c)
}

// fixPlace updates the place of an active class after a change of its head.
func (p *Pending) fixPlace(c *class) {
	l := p.lineOf(c)
	l.awake[c.at].member = c.members[0]
	l.awake.fix(int(c.at))
	p.fixLine(l)
}

// Remove takes w out of the line, and reports whether it was in it.
func (p *Pending) Remove(w *workload.Workload) bool {
	if p.prioritized == w {
		p.prioritized = nil
	}
	if p.leaveClass(w) || p.leaveAlone(w) {
		p.members--
		return true
	}
	return false
}

// IsAlone reports whether w is inadmissible without its class.
func (p *Pending) IsAlone(w *workload.Workload) bool { return p.isAlone(w) }

// Evaluated returns the workload whose evaluation made a class inadmissible, nil for a class that is not. It may have left the line since.
func (p *Pending) Evaluated(class int32) *workload.Workload {
	if c := p.classes[class]; c != nil && c.stage != awake {
		return c.by
	}
	return nil
}

// EachInadmissible visits the inadmissible classes, each with its Evaluated, in no order.
func (p *Pending) EachInadmissible(visit func(class int32, by *workload.Workload)) {
	p.each(func(c *class) {
		if c.stage != awake {
			visit(c.id(), c.by)
		}
	})
}

func (p *Pending) isAlone(w *workload.Workload) bool {
	return int(w.HeapIndex) < len(p.alone) && p.alone[w.HeapIndex] == w
}

func (p *Pending) leaveAlone(w *workload.Workload) bool {
	if !p.isAlone(w) {
		return false
	}
	last := len(p.alone) - 1
	p.alone[w.HeapIndex] = p.alone[last]
	p.alone[w.HeapIndex].HeapIndex = w.HeapIndex
	p.alone[last] = nil
	p.alone = p.alone[:last]
	return true
}

func (p *Pending) leaveClass(w *workload.Workload) bool {
	c := p.classOf(w)
	if c == nil {
		return false
	}
	p.changes(c)
	if c.stage == awake {
		p.actives--
	}
	if c.head() == w {
		p.removeEntries(c)
	}
	if len(c.members) == 1 {
		p.drop(c)
		return true
	}
	wasHead := c.head() == w
	c.woken = c.woken && !wasHead
	c.members.remove(int(w.HeapIndex))
	switch {
	case !wasHead:
	case c.stage == awake:
		p.fixPlace(c)
	default:
		p.addEntries(c)
	}
	return true
}

// drop removes a class with its last member. It must be in no wake index.
func (p *Pending) drop(c *class) {
	p.changed(c.head())
	l := p.lineOf(c)
	if c.stage == awake {
		p.removeActive(c)
	} else {
		p.withdraw(c)
		p.inadmissible--
		c.stage = awake
	}
	delete(p.classes, c.id())
	c.members.remove(0)
	p.free(c)
	l.classes--
	p.sweepLine(l)
}

// Representative returns the equivalent workload whose evaluation made w inadmissible, nil if
// that is w itself or w is active. It may have left the line since: then only its UID is
// valid.
func (p *Pending) Representative(w *workload.Workload) *workload.Workload {
	if c := p.classOf(w); c != nil && c.stage != awake && c.by != w {
		return c.by
	}
	return nil
}

// SetInadmissibleAlone makes w inadmissible without its class: the reason is w itself, not
// quota.
func (p *Pending) SetInadmissibleAlone(w *workload.Workload) {
	if p.leaveClass(w) {
		w.HeapIndex = int32(len(p.alone))
		p.alone = append(p.alone, w)
		p.changed(w)
	}
}

// Prioritize makes w the first of its standing whenever it is active, because its victims are
// leaving, until it leaves the line or another workload is prioritized.
func (p *Pending) Prioritize(w *workload.Workload) {
	p.prioritized = w
	p.changed(w)
}

// Prioritized returns the workload of Prioritize, or nil.
func (p *Pending) Prioritized() *workload.Workload { return p.prioritized }

// Active returns the number of active workloads.
func (p *Pending) Active() int { return p.actives }

// Inadmissible returns the number of inadmissible workloads.
func (p *Pending) Inadmissible() int { return p.members - p.actives }

// InadmissibleAlone returns the workloads of SetInadmissibleAlone, in the order of the line.
func (p *Pending) InadmissibleAlone() []*workload.Workload {
	alone := slices.Clone(p.alone)
	slices.SortFunc(alone, p.compare)
	return alone
}

// All returns all workloads in line: the head first, the inadmissible ones after the active.
func (p *Pending) All() []*workload.Workload {
	all := make([]*workload.Workload, 0, p.members)
	for i := 0; ; i++ {
		l := p.activeLine(i)
		if l == nil {
			break
		}
		for _, s := range l.awake {
			all = s.class.appendTo(all)
		}
	}
	active := len(all)
	p.each(func(c *class) {
		if c.stage != awake {
			all = c.appendTo(all)
		}
	})
	all = append(all, p.alone...)
	slices.SortFunc(all[:active], p.compare)
	slices.SortFunc(all[active:], p.compare)
	if i := slices.Index(all[:active], p.prioritized); i > 0 {
		first := slices.IndexFunc(all[:i], func(w *workload.Workload) bool { return p.standingOf(w) == p.standingOf(p.prioritized) })
		if first >= 0 {
			copy(all[first+1:i+1], all[first:i])
			all[first] = p.prioritized
		}
	}
	return all
}

func (c *class) appendTo(all []*workload.Workload) []*workload.Workload {
	for _, w := range c.members {
		all = append(all, w.Workload)
	}
	return all
}
