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
	// Winnable reports whether preemption might make least of fr available to w.
	Winnable(w *workload.Workload, fr resource.FR, least resource.Amount) bool
}

// Park is what a line remembers of a parked class, see Parks.
type Park struct {
	Member *workload.Workload // its head
	By     *workload.Workload // who was looked at; may have left the line since
	Wants  []workload.Want
	Tried  bool // looked at since the last release was dealt with
}

// Not every release is of use to a parked class, which may want several things at once.
// Of a clause that is not met, each offer lacks something: the class watches one lacking
// FR of each offer, and before it is there, releases of all others do not matter.
//
// A release does not wake everyone it could help: the first of them may take it all.
// The line notes what was released, and WakeNext wakes one class at a time, the next in
// line of those that may be met then, until there is none. A class that is parked, or is
// found meanwhile to lack something else, is in the pen, where its tickets do not count.
// The next release, or the end of this one, opens the pen. In the middle of a cycle, when figures
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

// park returns the class that it parked, which is in no pen yet nor filed; nil if there is
// none.
func (p *Pending) park(member, by *workload.Workload, wants []workload.Want) *class {
	c := p.classOf(member)
	if c == nil || c.stage != awake {
		return nil
	}
	p.awake.remove(int(c.at))
	p.parked++
	p.actives -= len(c.line)
	c.by = by
	if p.patterns == nil {
		p.patterns = &Patterns{}
	}
	p.setWants(c, wants)
	return c
}

// toPen puts a parked class into the pen.
func (p *Pending) toPen(c *class) {
	c.stage, c.at = penned, int32(len(p.pen))
	p.pen = append(p.pen, c)
}

// file has the tickets of a parked class count, once it has one for each thing that it has
// to watch. Where it may watch what it did before, that is what it watches.
func (p *Pending) file(c *class, now Figures) {
	if c.pattern != nil && !c.lacksStill(now) {
		p.watchAnew(c, now)
	}
	c.stage = filed
	p.idle -= c.listed()
	p.filed[c.slot/64] |= 1 << (c.slot % 64)
	p.giveTickets(c)
}

// watchAnew chooses what a class has to watch, and takes it off the shelves of all else.
func (p *Pending) watchAnew(c *class, now Figures) {
	had := append(p.patterns.had[:0], c.watch()...)
	p.patterns.had = had
	c.choose(p.wantsOf(c), now)
	watched := c.watch()
	for i := range watched {
		if at := slices.Index(had, watch{watched[i].want, true}); at >= 0 {
			had[at].listed, watched[i].listed = false, true
		}
	}
	for _, w := range had {
		if w.listed {
			p.takeTicket(c, &w)
		}
	}
}

// wantsOf returns what a parked class wants. The slice is good until the next call, for
// whichever class and line.
func (p *Pending) wantsOf(c *class) []workload.Want {
	p.patterns.wants = c.unpack(p.patterns.wants[:0])
	return p.patterns.wants
}

// withdraw has the tickets of a parked class no longer count, or takes the class out of the
// pen.
func (p *Pending) withdraw(c *class) {
	if c.stage == filed {
		p.filed[c.slot/64] &^= 1 << (c.slot % 64)
		p.idle += c.listed()
		return
	}
	last := len(p.pen) - 1
	p.pen[c.at] = p.pen[last]
	p.pen[c.at].at = c.at
	p.pen[last] = nil
	p.pen = p.pen[:last]
}

// counts reports whether the ticket at a place does. Where all do, there is no need to look.
func (p *Pending) counts(s *shelf, x place) bool {
	return p.idle == 0 || p.isFiled(s.at(x).slot)
}

func (p *Pending) isFiled(slot int32) bool { return p.filed[slot/64]>>(slot%64)&1 > 0 }

// rouse makes a parked class active that has been withdrawn, and forgets why it was parked.
func (p *Pending) rouse(c *class) {
	p.parked--
	c.stage, c.by = awake, nil
	p.awake.push(seat{c.line[0], c})
	p.actives += len(c.line)
}

// WantsOf returns what the class of w waits for, nil if it is not parked.
func (p *Pending) WantsOf(w *workload.Workload) []workload.Want {
	if c := p.classes[w.Class]; c != nil && c.stage != awake && c.has(w) {
		return c.unpack([]workload.Want{})
	}
	return nil
}

// Release notes that some of fr was released, and tells whether it may be of use to
// somebody parked here.
func (p *Pending) Release(fr resource.FR, now Figures) bool {
	if p.parked == 0 {
		return false
	}
	p.openPen(now)
	s := p.shelf(fr)
	if s == nil || s.first == none || !p.stocked(s, now.Available(fr)) {
		return false
	}
	if i, noted := slices.BinarySearch(p.released, fr); !noted {
		p.released = slices.Insert(p.released, i, fr)
	}
	return true
}

// stocked reports whether a shelf has a ticket that counts, for so much or less. As long as
// the first one wants more, it does not matter whether it counts.
func (p *Pending) stocked(s *shelf, available resource.Amount) bool {
	for s.first != none && s.first <= available {
		if p.counts(s, place{}) {
			return true
		}
		p.discard(s, place{})
	}
	return false
}

// openPen files the classes in the pen.
func (p *Pending) openPen(now Figures) {
	for i, c := range p.pen {
		p.file(c, now)
		p.pen[i] = nil
	}
	p.pen = p.pen[:0]
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
		wants := p.wantsOf(next)
		if p.lookElsewhere(next, at, wants, now) {
			continue
		}
		p.withdraw(next)
		if !Lacks(next.head(), wants, now) {
			p.rouse(next)
			return true
		}
		p.toPen(next)
	}
}

// lookElsewhere has a class whose offer still lacks something watch that instead, and
// tells whether it did.
func (p *Pending) lookElsewhere(c *class, at int, wants []workload.Want, now Figures) bool {
	if c.all {
		return false
	}
	d, w := demand{c.head(), wants}, &c.watch()[at]
	lack := d.lack(int(w.want), now)
	if lack < 0 || d.wants[lack].Winnable {
		return false
	}
	p.takeTicket(c, w)
	w.want = uint16(lack)
	p.giveTicket(c, w)
	return true
}

// next returns the class that comes first of those that watch what was released and of
// which enough is available, with what it watches; nil for none.
func (p *Pending) next(now Figures) (next *class, watch int) {
	favored := p.favored()
	var best ticket
	var of resource.FR
	found := false
	for _, fr := range p.released {
		s := p.shelf(fr)
		if s == nil {
			continue
		}
		available := now.Available(fr)
		if favored != nil && favored.stage == filed {
			if at := favored.watchesSoMuch(fr, available); at >= 0 {
				return favored, at
			}
		}
		for x := (place{}); ; {
			t := s.at(x)
			switch {
			case t == nil || t.least > available:
			case found && p.inLine(t, &best) >= 0: // whether it counts or not
				x = s.past(x)
				continue
			case p.counts(s, x):
				best, of, found = *t, fr, true
				x = s.past(x)
				continue
			default:
				x = p.discard(s, x)
				continue
			}
			break
		}
	}
	if !found {
		return nil, 0
	}
	next = p.class(best.slot)
	return next, next.watching(of)
}

// WakeAll makes everyone active, and returns how many it woke.
func (p *Pending) WakeAll() int {
	before := p.actives
	for i := range p.shelves {
		p.shelves[i].clear()
	}
	clear(p.filed)
	clear(p.pen)
	p.released, p.pen, p.idle = p.released[:0], p.pen[:0], 0
	p.each(func(c *class) {
		c.watches = 0
		if c.stage != awake {
			p.rouse(c)
		}
	})
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
	parks := make([]Park, 0, p.parked)
	p.each(func(c *class) {
		if c.stage != awake {
			parks = append(parks, Park{c.head(), c.by, c.unpack(nil), c.stage == penned})
		}
	})
	slices.SortFunc(parks, func(a, b Park) int {
		return cmp.Or(strings.Compare(a.By.UID, b.By.UID), strings.Compare(a.Member.UID, b.Member.UID))
	})
	return parks
}

// Remind gives the line the releases of the one that it is a copy of.
func (p *Pending) Remind(released []resource.FR) { p.released = slices.Clone(released) }
