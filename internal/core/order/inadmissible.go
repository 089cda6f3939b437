package order

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Figures are the amounts of a queue at present.
type Figures interface {
	// Available is how much of fr a workload can get.
	Available(fr resource.FR) resource.Amount
	// AtMost is a bound of a measure, which may cost far less than the measure itself.
	AtMost(fr resource.FR) resource.Amount
	// Winnable reports whether preemption might make least of fr available to w.
	Winnable(w *workload.Workload, fr resource.FR, least resource.Amount) bool
}

// InadmissibleClass is the memory of an inadmissible class, see Packing.
type InadmissibleClass struct {
	Member *workload.Workload // its head
	By     *workload.Workload // the workload that was evaluated; may have left the line since
	Wants  []workload.Want
	Tried  bool // evaluated since the last release was dealt with
}

// A release is not of use to every inadmissible class, which may want several things at once:
// each offer of a clause that is not met lacks something, and the class has a wake condition
// on one lacking FR of each offer. Until one of them holds, other releases do not matter.
//
// A release does not activate all classes that it could help, since the first of them may use
// all of it. The line notes the FRs that were released, and Next returns one class at a
// time to wake: the next in line whose conditions hold, until there is none. A class that becomes
// inadmissible meanwhile is tried: its conditions do not count before the next release, or
// the end of this one, files it. Within a cycle, when figures are valid for that cycle only,
// there are no releases: conditions are chosen by figures that last.

// SetInadmissible makes w and every active workload of its class inadmissible until wants may
// be met; without wants, until WakeAll. The line copies wants.
func (p *Pending) SetInadmissible(w *workload.Workload, wants []workload.Want) {
	if c := p.setInadmissible(w, w, wants); c != nil {
		p.addTried(c)
	}
}

// Restore makes the class of k.Member inadmissible as it was in the line that k is from. Of
// k.By only the UID is read.
func (p *Pending) Restore(k InadmissibleClass, now Figures) {
	switch c := p.setInadmissible(k.Member, k.By, k.Wants); {
	case c == nil:
	case k.Tried:
		p.addTried(c)
	default:
		p.file(c, now)
	}
}

// setInadmissible returns the class that it made inadmissible, neither tried nor filed yet;
// nil if there is none.
func (p *Pending) setInadmissible(member, by *workload.Workload, wants []workload.Want) *class {
	c := p.classOf(member)
	if c == nil || c.stage != awake {
		return nil
	}
	p.changes(c)
	p.removeActive(c)
	if c.woken {
		c.woken = false
		p.wakes.Vain++
	}
	p.inadmissible++
	p.actives -= len(c.members)
	c.by = by
	if p.patterns == nil {
		p.patterns = &Patterns{}
	}
	p.setWants(c, wants)
	p.changed(member)
	return c
}

// addTried makes an inadmissible class tried.
func (p *Pending) addTried(c *class) {
	c.stage, c.at = tried, int32(len(p.tried))
	p.tried = append(p.tried, c)
	p.thresholds.add(p)
}

// file makes the wake conditions of an inadmissible class count. It keeps them if they are
// still lacking, and chooses others if not.
func (p *Pending) file(c *class, now Figures) {
	p.changes(c)
	if c.pattern != nil && !c.stillLacks(now) {
		p.chooseAgain(c, now)
	}
	c.stage = filed
	p.idle -= c.listed()
	p.filed[c.slot/64] |= 1 << (c.slot % 64)
	p.addEntries(c)
}

// chooseAgain chooses the conditions of a class, and removes the others from their indexes.
func (p *Pending) chooseAgain(c *class, now Figures) {
	had := append(p.patterns.had[:0], c.conditions()...)
	p.patterns.had = had
	c.choose(p.wantsOf(c), now)
	watched := c.conditions()
	for i := range watched {
		if at := slices.Index(had, condition{watched[i].want, true}); at >= 0 {
			had[at].listed, watched[i].listed = false, true
		}
	}
	for _, w := range had {
		if w.listed {
			p.removeEntry(c, &w)
		}
	}
}

// wantsOf returns the wants of an inadmissible class. The slice is valid until the next call,
// for any class and line.
func (p *Pending) wantsOf(c *class) []workload.Want {
	p.patterns.wants = c.unpack(p.patterns.wants[:0])
	return p.patterns.wants
}

// withdraw makes an inadmissible class neither tried nor filed.
func (p *Pending) withdraw(c *class) {
	p.changes(c)
	if c.stage == filed {
		p.filed[c.slot/64] &^= 1 << (c.slot % 64)
		p.idle += c.listed()
		return
	}
	last := len(p.tried) - 1
	p.tried[c.at] = p.tried[last]
	p.tried[c.at].at = c.at
	p.tried[last] = nil
	p.tried = p.tried[:last]
}

// counts reports whether the entry at a place counts.
func (p *Pending) counts(s *entries, x place) bool {
	return p.idle == 0 || p.isFiled(s.at(x).slot)
}

func (p *Pending) isFiled(slot int32) bool { return p.filed[slot/64]>>(slot%64)&1 > 0 }

// activate makes a withdrawn class active.
func (p *Pending) activate(c *class) {
	p.changes(c)
	p.inadmissible--
	c.stage, c.by = awake, nil
	p.pushActive(c)
	p.actives += len(c.members)
	p.changed(c.head())
}

// WantsOf returns the wants of the class of w, nil if it is not inadmissible.
func (p *Pending) WantsOf(w *workload.Workload) []workload.Want {
	if c := p.classes[w.Class]; c != nil && c.stage != awake && c.has(w) {
		return c.unpack([]workload.Want{})
	}
	return nil
}

// Release notes that some of fr was released, and reports whether it may be of use to an
// inadmissible class.
func (p *Pending) Release(fr resource.FR, now Figures) bool {
	if p.inadmissible == 0 {
		return false
	}
	p.fileTried(now)
	s := p.wakeIndex(fr)
	if s == nil || s.isEmpty() || (fr < 0 && now.AtMost(fr) < s.least()) || !p.stocked(s, now.Available(fr)) {
		return false
	}
	if i, noted := slices.BinarySearch(p.released, fr); !noted {
		p.released = slices.Insert(p.released, i, fr)
	}
	return true
}

// stocked reports whether an entry of the index counts and is satisfied by the available
// amount. It discards the entries before that one.
func (p *Pending) stocked(s *wakeIndex, available resource.Amount) bool {
	if p.lineStocked(s.fr, &s.unnumbered, available) {
		return true
	}
	if available < s.low {
		return false
	}
	low := resource.Unlimited
	for i := range s.others {
		l := &s.others[i]
		if p.lineStocked(s.fr, l, available) {
			return true
		}
		if l.first != none {
			low = min(low, l.first)
		}
	}
	s.low = low
	return false
}

// lineStocked is stocked for the entries of one line.
func (p *Pending) lineStocked(fr resource.FR, l *entries, available resource.Amount) bool {
	for l.satisfied(available) {
		if p.counts(l, place{}) {
			return true
		}
		p.discard(fr, l, place{})
	}
	return false
}

// fileTried files the tried classes.
func (p *Pending) fileTried(now Figures) {
	for i, c := range p.tried {
		p.file(c, now)
		p.tried[i] = nil
	}
	p.tried = p.tried[:0]
}

// Released returns the FRs with releases that Next has not dealt with, sorted.
func (p *Pending) Released() []resource.FR { return p.released }

// Next returns the head of an inadmissible class, and the wants of that, which are met: the next in line of the classes
// that the releases so far may help, if it comes before the head; nil for none. Without one the releases
// are dealt with, which does not happen while the head is prioritized. The wants are valid until the next call.
func (p *Pending) Next(now Figures) (*workload.Workload, []workload.Want) {
	if len(p.released) == 0 {
		return nil, nil
	}
	head := p.Head()
	held := head != nil && head == p.prioritized
	if held && p.lines == nil {
		return nil, nil
	}
	for {
		next, at := p.next(now)
		if next == nil && !held {
			p.released = p.released[:0]
			p.fileTried(now)
			return nil, nil
		}
		if next == nil || (head != nil && !p.passes(next, head)) {
			return nil, nil
		}
		wants := p.wantsOf(next)
		if p.replaceCondition(next, at, wants, now) {
			continue
		}
		if !Lacks(next.head(), wants, now) {
			return next.head(), wants
		}
		p.withdraw(next)
		p.addTried(next)
	}
}

// Wake activates the class of w, which is inadmissible, whether or not its conditions hold.
func (p *Pending) Wake(w *workload.Workload) {
	c := p.classes[w.Class]
	p.withdraw(c)
	p.activate(c)
	c.woken = true
	p.wakes.All++
}

// Lacks reports whether the wants of a workload that Next returned are no longer met.
func (p *Pending) Lacks(w *workload.Workload, now Figures) bool {
	return Lacks(w, p.wantsOf(p.classes[w.Class]), now)
}

// replaceCondition replaces the condition at an index, if its offer still lacks another want,
// with one on that want, and reports whether it did.
func (p *Pending) replaceCondition(c *class, at int, wants []workload.Want, now Figures) bool {
	if c.all {
		return false
	}
	d, w := demand{c.head(), wants}, &c.conditions()[at]
	lack := d.lack(int(w.want), now)
	if lack < 0 || d.wants[lack].Winnable {
		return false
	}
	p.removeEntry(c, w)
	w.want = uint16(lack)
	p.addEntry(c, w)
	return true
}

// next returns the first class in line with a condition on a released FR that holds, and the
// index of that condition; nil for none. It visits the lines with such a condition and, in each that
// may be the first, the thresholds up to the available amount.
func (p *Pending) next(now Figures) (next *class, at int) {
	b := best{p: p}
	if next, at = p.nextPrioritized(now); next != nil {
		if p.lines == nil {
			return next, at
		}
		b.bound, b.bounded = p.lineOf(next).standing, true
	}
	measures := p.releasedMeasures()
	for _, fr := range p.released[len(measures):] {
		if s := p.wakeIndex(fr); s != nil {
			b.searchIndex(s, now.Available(fr))
		}
	}
	if len(measures) > 0 {
		b.searchMeasures(measures, now)
	}
	if !b.found {
		return next, at
	}
	next = p.class(b.slot)
	return next, next.conditionOn(b.fr)
}

// nextPrioritized returns the class of the prioritized workload, and the index of a condition on a released FR that holds;
// nil if there is none.
func (p *Pending) nextPrioritized(now Figures) (c *class, at int) {
	if c = p.prioritizedClass(); c == nil || c.stage != filed {
		return nil, 0
	}
	for _, fr := range p.released {
		if c.conditionOn(fr) < 0 {
			continue
		}
		if at := c.satisfiedBy(fr, now.Available(fr)); at >= 0 {
			return c, at
		}
	}
	return nil, 0
}

// best is the first entry in line found so far.
type best struct {
	p *Pending
	indexEntry
	fr       resource.FR
	standing Standing
	found    bool
	bound    Standing // of the prioritized class: only a lower one comes before it
	bounded  bool

	line Standing // the standing of the line that is searched
}

// allows begins the search of the entries of a line of some standing, and reports whether one of them may be the first in line.
func (b *best) allows(standing Standing) bool {
	b.line = standing
	return (!b.bounded || b.line < b.bound) && (!b.found || b.line <= b.standing)
}

// searchIndex searches the entries on one FR.
func (b *best) searchIndex(s *wakeIndex, available resource.Amount) {
	for i := range s.len() {
		if l := s.line(i); l.satisfied(available) && b.allows(b.p.standingAt(i)) {
			b.search(s.fr, l, available)
		}
	}
}

// search searches the entries of a line on one FR.
func (b *best) search(fr resource.FR, l *entries, available resource.Amount) {
	for x := (place{}); ; {
		t := l.at(x)
		switch {
		case t == nil || t.least > available:
			return
		case b.found && b.line == b.standing && b.p.inLine(t, &b.indexEntry) >= 0: // whether or not it counts
			x = l.past(x)
		case b.p.counts(l, x):
			b.indexEntry, b.fr, b.standing, b.found = *t, fr, b.line, true
			x = l.past(x)
		default:
			x = b.p.discard(fr, l, x)
		}
	}
}

// WakeAll makes all workloads active, and returns how many were not.
func (p *Pending) WakeAll() int {
	before := p.actives
	for i := range p.indexes {
		for at := range p.indexes[i].len() {
			p.indexes[i].line(at).clear()
		}
	}
	clear(p.filed)
	clear(p.tried)
	p.released, p.tried, p.idle = p.released[:0], p.tried[:0], 0
	p.each(func(c *class) {
		c.nconditions = 0
		if c.stage != awake {
			p.activate(c)
		}
	})
	alone := p.alone
	p.alone = alone[:0]
	p.members -= len(alone)
	for _, w := range alone {
		p.Add(w, true)
		p.changed(w)
	}
	clear(alone)
	return p.actives - before
}

// PackedClasses are the inadmissible classes of a line at one moment, as the line stores them.
type PackedClasses []packedClass

type packedClass struct {
	member, by *workload.Workload
	tried      bool
	wants      packedWants
}

// Unpack returns the classes, sorted by the UIDs of By and Member. The line may change meanwhile.
func (k PackedClasses) Unpack() []InadmissibleClass {
	classes := make([]InadmissibleClass, len(k))
	for i := range k {
		p := &k[i]
		classes[i] = InadmissibleClass{p.member, p.by, p.wants.unpack(nil), p.tried}
	}
	slices.SortFunc(classes, func(a, b InadmissibleClass) int {
		return cmp.Or(strings.Compare(a.By.UID, b.By.UID), strings.Compare(a.Member.UID, b.Member.UID))
	})
	return classes
}

// SetReleased sets the result of Released.
func (p *Pending) SetReleased(released []resource.FR) { p.released = slices.Clone(released) }
