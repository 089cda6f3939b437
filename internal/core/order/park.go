package order

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Figures are what a line asks about its queue as things are.
type Figures interface {
	// Available is how much of fr a workload can have.
	Available(fr resource.FR) resource.Amount
	// Winnable tells whether preemption might make least of fr available to w.
	Winnable(w *workload.Workload, fr resource.FR, least resource.Amount) bool
}

// Park is what a line remembers of a parked class, see Parks.
type Park struct {
	Member *workload.Workload // its head
	By     *workload.Workload // who was looked at; may have left the line since
	Wants  []workload.Want
	Tried  bool // looked at since the last release was dealt with
}

// list holds who watches an FR, sorted by how much of it is wanted at least. Past its
// end are shelves without tickets, kept for their memory.
type list struct {
	fr    resource.FR
	shelf []shelf
}

// shelf holds those that want the same: who is next in line comes first.
type shelf struct {
	least   resource.Amount
	tickets heap[ticket] // never empty
}

// Not every release is of use to a parked class, which may want several things at once.
// Of a clause that is not met, each offer lacks something: the class watches one lacking
// FR of each offer, and before it is there, releases of all others do not matter.
//
// A release does not wake everyone it could help: the first of them may take it all.
// The line notes what was released, and WakeNext wakes one class at a time, the next in
// line of those that may be met then, until there is none. A class that is parked, or is
// found meanwhile to lack something else, is in the pen and not on any shelf. The next
// release, or the end of this one, opens the pen. In the middle of a cycle, when figures
// are what they are for that cycle only, there are no releases: what a class lacks is
// chosen by figures that last.

// Park sets w aside with every active workload of its class, since what did not
// work for it won't for them, until wants may be met. Without wants only WakeAll helps.
// The line copies wants.
func (p *Pending) Park(w *workload.Workload, wants []workload.Want) {
	if c := p.park(w, w, wants); c != nil {
		p.toPen(c)
	}
}

// Restore parks the class of k.Member as Park(k.By, k.Wants) did in the line that k is
// from. By needs to have a UID only, if that is all that is left of it.
func (p *Pending) Restore(k Park, now Figures) {
	switch c := p.park(k.Member, k.By, k.Wants); {
	case c == nil:
	case k.Tried:
		p.toPen(c)
	default:
		p.file(c, now)
	}
}

// park returns the class that it parked, which is on no shelf yet; nil if there is none.
func (p *Pending) park(member, by *workload.Workload, wants []workload.Want) *class {
	c := p.classOf(member)
	if c == nil || c.parked {
		return nil
	}
	p.awake.remove(int(c.at))
	c.parked, c.by, c.at = true, by, int32(len(p.parked))
	p.parked = append(p.parked, c)
	p.actives -= len(c.line)
	if p.patterns == nil {
		p.patterns = &Patterns{}
	}
	c.wants.pack(wants, p.patterns)
	c.watch = c.watch[:0]
	return c
}

// toPen puts a parked class that is on no shelf into the pen.
func (p *Pending) toPen(c *class) {
	p.swap(c.at, p.pen)
	p.pen++
}

// swap exchanges two of the parked classes.
func (p *Pending) swap(i, j int32) {
	p.parked[i], p.parked[j] = p.parked[j], p.parked[i]
	p.parked[i].at, p.parked[j].at = i, j
}

// penned tells whether a parked class is in the pen, and not on any shelf.
func (p *Pending) penned(c *class) bool { return c.at < p.pen }

// file puts a parked class on the shelves of what it has to watch.
func (p *Pending) file(c *class, now Figures) {
	c.choose(p.wantsOf(c), now)
	for i := range c.watch {
		p.giveTicket(c, i)
	}
}

// wantsOf returns what a parked class wants. The slice is good until the next call, for
// whichever class and line.
func (p *Pending) wantsOf(c *class) []workload.Want {
	p.patterns.wants = c.wants.unpack(p.patterns.wants[:0])
	return p.patterns.wants
}

// giveTicket puts a class on the shelf of one thing that it watches.
func (p *Pending) giveTicket(c *class, watch int) {
	want := c.wants.at(c.watch[watch].want)
	at, found := p.find(want.FR)
	if !found {
		p.lists = slices.Insert(p.lists, at, list{fr: want.FR})
	}
	l := &p.lists[at]
	s, found := l.find(threshold(&want))
	if !found {
		l.add(s, threshold(&want))
	}
	c.stamp++
	c.watch[watch].stamp = c.stamp
	l.shelf[s].tickets.push(ticket{c.line[0], c, int32(watch), c.stamp})
}

// threshold is how much has to be available for a release to be worth a thought. What
// may be won in part can be met with anything.
func threshold(w *workload.Want) resource.Amount {
	if w.Winnable {
		return 0
	}
	return w.Least
}

func (p *Pending) find(fr resource.FR) (at int, found bool) {
	return slices.BinarySearchFunc(p.lists, fr, func(l list, fr resource.FR) int { return cmp.Compare(l.fr, fr) })
}

func (l *list) find(least resource.Amount) (at int, found bool) {
	return slices.BinarySearchFunc(l.shelf, least, func(s shelf, least resource.Amount) int { return cmp.Compare(s.least, least) })
}

// withdraw makes the tickets of a parked class void, or takes the class out of the pen.
func (p *Pending) withdraw(c *class) {
	if p.penned(c) {
		p.pen--
		p.swap(c.at, p.pen)
		return
	}
	void := len(c.watch)
	c.watch = c.watch[:0]
	p.voided(void)
}

// voided counts tickets that are not valid any more, and tidies up when there are many.
func (p *Pending) voided(tickets int) {
	p.void += tickets
	if p.void > maxVoid+4*len(p.parked) {
		p.tidy()
	}
}

// maxVoid is how many tickets that are void may lie around, beyond some for each class.
const maxVoid = 64

// tidy takes the tickets that are void off all shelves.
func (p *Pending) tidy() {
	for i := range p.lists {
		l := &p.lists[i]
		for s := len(l.shelf) - 1; s >= 0; s-- {
			all := l.shelf[s].tickets
			valid := all[:0]
			for _, t := range all {
				if t.valid() {
					valid.push(t)
				}
			}
			clear(all[len(valid):])
			if l.shelf[s].tickets = valid; len(valid) == 0 {
				l.drop(s)
			}
		}
	}
	p.void = 0
}

// add puts in a shelf, with the memory of one that was dropped.
func (l *list) add(s int, least resource.Amount) {
	fresh := shelf{least: least}
	if last := len(l.shelf); last < cap(l.shelf) {
		fresh.tickets = l.shelf[:last+1][last].tickets
	}
	l.shelf = slices.Insert(l.shelf, s, fresh)
}

// drop takes out a shelf with all its tickets, and keeps its memory for add, unless that
// is a lot.
func (l *list) drop(s int) {
	clear(l.shelf[s].tickets)
	empty := l.shelf[s].tickets[:0]
	if cap(empty) > spares {
		empty = nil
	}
	copy(l.shelf[s:], l.shelf[s+1:])
	last := len(l.shelf) - 1
	l.shelf[last] = shelf{tickets: empty}
	l.shelf = l.shelf[:last]
}

// shift gives a parked class whose head is another one tickets for its new place. In the
// pen it has none.
func (p *Pending) shift(c *class) {
	for i := range c.watch {
		p.giveTicket(c, i)
	}
	p.voided(len(c.watch))
}

// unpark takes a class whose wants have been withdrawn out of the parked ones, and
// forgets why it was there.
func (p *Pending) unpark(c *class) {
	last := len(p.parked) - 1
	p.swap(c.at, int32(last))
	p.parked[last] = nil
	p.parked = p.parked[:last]
	c.parked, c.by = false, nil
}

// rouse makes a parked class active whose wants have been withdrawn.
func (p *Pending) rouse(c *class) {
	p.unpark(c)
	p.awake.push(seat{c.line[0], c})
	p.actives += len(c.line)
}

// WantsOf returns what the class of w waits for, nil if it is not parked.
func (p *Pending) WantsOf(w *workload.Workload) []workload.Want {
	if c := p.classes[w.Class]; c != nil && c.parked && c.has(w) {
		return c.wants.unpack([]workload.Want{})
	}
	return nil
}

// Release notes that some of fr was released, and tells whether it may be of use to
// somebody parked here.
func (p *Pending) Release(fr resource.FR, now Figures) bool {
	if len(p.parked) == 0 {
		return false
	}
	p.openPen(now)
	at, found := p.find(fr)
	if !found || len(p.lists[at].shelf) == 0 {
		return false
	}
	// As long as the first shelf wants too much, it does not matter that its tickets may be
	// void: to find out is to visit a class.
	available := now.Available(fr)
	if p.lists[at].shelf[0].least > available || !p.stocked(at) || p.lists[at].shelf[0].least > available {
		return false
	}
	if i, noted := slices.BinarySearch(p.released, fr); !noted {
		p.released = slices.Insert(p.released, i, fr)
	}
	return true
}

// stocked tells whether a list has a shelf with a valid ticket. If so, its first shelf is
// that, and the first ticket there.
func (p *Pending) stocked(list int) bool {
	l := &p.lists[list]
	for len(l.shelf) > 0 {
		if l.shelf[0].tickets[0].valid() {
			return true
		}
		p.discard(l, 0)
	}
	return false
}

// discard takes the first ticket off a shelf, which is void.
func (p *Pending) discard(l *list, s int) {
	l.shelf[s].tickets.remove(0)
	p.void--
	if len(l.shelf[s].tickets) == 0 {
		l.drop(s)
	}
}

// openPen puts the classes in the pen on shelves again.
func (p *Pending) openPen(now Figures) {
	for _, c := range p.parked[:p.pen] {
		p.file(c, now)
	}
	p.pen = 0
}

// Released returns the FRs with releases that WakeNext has not dealt with, sorted.
func (p *Pending) Released() []resource.FR { return p.released }

// WakeNext makes one class active: of those that may be met by what was released, as
// things are now, the next in line, if it comes before whoever is head. It returns
// whether there was one. Once none is left, what was released is dealt with; behind a
// sticky head it does not look.
func (p *Pending) WakeNext(now Figures) bool {
	if len(p.released) == 0 {
		return false
	}
	head := p.Head()
	if head != nil && head == p.sticky {
		return false
	}
	for {
		next, at := p.next(now)
		if next == nil {
			p.released = p.released[:0]
			p.openPen(now)
			return false
		}
		if head != nil && Compare(head, next.head()) < 0 && next != p.favored() {
			return false
		}
		if p.lookElsewhere(next, at, now) {
			continue
		}
		p.withdraw(next)
		if !Lacks(next.head(), p.wantsOf(next), now) {
			p.rouse(next)
			return true
		}
		p.toPen(next)
	}
}

// lookElsewhere has a class whose offer still lacks something watch that instead, and
// tells whether it did.
func (p *Pending) lookElsewhere(c *class, at int32, now Figures) bool {
	if c.all {
		return false
	}
	d := demand{c.head(), p.wantsOf(c)}
	lack := d.lack(int(c.watch[at].want), now)
	if lack < 0 || d.wants[lack].Winnable {
		return false
	}
	c.watch[at].want = int32(lack)
	p.giveTicket(c, int(at))
	p.voided(1)
	return true
}

// next returns the class that comes first of those that watch what was released and of
// which enough is available, with what it watches; nil for none.
func (p *Pending) next(now Figures) (next *class, watch int32) {
	favored := p.favored()
	var best waiter
	for _, fr := range p.released {
		at, found := p.find(fr)
		if !found {
			continue
		}
		available := now.Available(fr)
		if favored != nil {
			if at := favored.watches(fr, available); at >= 0 {
				return favored, at
			}
		}
		l := &p.lists[at]
		for i := 0; i < len(l.shelf) && l.shelf[i].least <= available; {
			switch t := &l.shelf[i].tickets[0]; {
			case next != nil && !t.waiter.before(best): // valid or not
				i++
			case t.valid():
				best, next, watch = t.waiter, t.class, t.watch
				i++
			default:
				p.discard(l, i)
			}
		}
	}
	return next, watch
}

// WakeAll makes everyone active, and returns how many it woke.
func (p *Pending) WakeAll() int {
	before := p.actives
	for i := range p.lists {
		l := &p.lists[i]
		for s := range slices.Backward(l.shelf) {
			l.drop(s)
		}
	}
	p.released, p.pen, p.void = p.released[:0], 0, 0
	for _, c := range slices.Backward(p.parked) {
		c.watch = c.watch[:0]
		p.rouse(c)
	}
	aside := p.aside
	p.aside = aside[:0]
	p.members -= len(aside)
	for _, w := range aside {
		p.Add(w, true)
	}
	clear(aside)
	return p.actives - before
}

// Parks returns what Restore needs for the parked classes of a line with the same
// workloads, sorted by the UIDs of By and Member. SetAside does so for those of Aside,
// Stick for Sticky and Remind for Released.
func (p *Pending) Parks() []Park {
	parks := make([]Park, 0, len(p.parked))
	for _, c := range p.parked {
		parks = append(parks, Park{c.head(), c.by, c.wants.unpack(nil), p.penned(c)})
	}
	slices.SortFunc(parks, func(a, b Park) int {
		return cmp.Or(strings.Compare(a.By.UID, b.By.UID), strings.Compare(a.Member.UID, b.Member.UID))
	})
	return parks
}

// Remind gives the line the releases of the one that it is a copy of.
func (p *Pending) Remind(released []resource.FR) { p.released = slices.Clone(released) }
