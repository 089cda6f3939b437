package order

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// plain is a line without cleverness: a list that is sorted when it is looked at.
//
// It does not know what a class watches, only what the line owes it: a look, once it is
// met as far as anyone can tell after a release of something it wants.
type plain struct {
	*yard
	all      []*workload.Workload
	parked   map[int32]*lot
	aside    map[*workload.Workload]bool
	released []resource.FR // as the line has it
	sticky   *workload.Workload
}

// lot is a parked class.
type lot struct {
	by     *workload.Workload
	wants  []workload.Want
	looked bool // since the last release, or the end of the one before
	owed   bool
}

func (p *plain) isParked(w *workload.Workload) bool {
	_, parked := p.parked[w.Class]
	return parked || p.aside[w]
}

func (p *plain) list() (active, parked []*workload.Workload) {
	for _, w := range p.all {
		if p.isParked(w) {
			parked = append(parked, w)
		} else {
			active = append(active, w)
		}
	}
	slices.SortFunc(active, Compare)
	slices.SortFunc(parked, Compare)
	if i := slices.Index(active, p.sticky); p.sticky != nil && i > 0 {
		active = slices.Insert(slices.Delete(active, i, i+1), 0, p.sticky)
	}
	return active, parked
}

// class returns who is in a class and not aside, in order.
func (p *plain) class(id int32) (members []*workload.Workload) {
	for _, w := range p.all {
		if w.Class == id && !p.aside[w] {
			members = append(members, w)
		}
	}
	slices.SortFunc(members, Compare)
	return members
}

// tidy forgets classes that nobody is in any more.
func (p *plain) tidy() {
	for id := range p.parked {
		if len(p.class(id)) == 0 {
			delete(p.parked, id)
		}
	}
}

func (p *plain) parks() []Park {
	parks := []Park{}
	for id, k := range p.parked {
		parks = append(parks, Park{p.class(id)[0], k.by, k.wants, k.looked})
	}
	slices.SortFunc(parks, func(a, b Park) int {
		return cmp.Or(strings.Compare(a.By.UID, b.By.UID), strings.Compare(a.Member.UID, b.Member.UID))
	})
	return parks
}

func (p *plain) head() *workload.Workload {
	if active, _ := p.list(); len(active) > 0 {
		return active[0]
	}
	return nil
}

// lacks reports whether some clause has no offer of which everything is there.
func (p *plain) lacks(wants []workload.Want) bool {
	met := map[uint8]map[uint16]bool{} // by clause and offer
	for _, w := range wants {
		if met[w.Clause] == nil {
			met[w.Clause] = map[uint16]bool{}
		}
		enough := w.Least <= p.Available(w.FR) || w.Winnable && p.Winnable(nil, w.FR, w.Least)
		before, seen := met[w.Clause][w.Offer]
		met[w.Clause][w.Offer] = enough && (before || !seen)
	}
	for _, offers := range met {
		if !slices.Contains(slices.Collect(maps.Values(offers)), true) {
			return true
		}
	}
	return false
}

// uses reports whether one of what was released is wanted, in so far as there is enough.
func (p *plain) uses(k *lot) bool {
	return slices.ContainsFunc(k.wants, func(w workload.Want) bool {
		return slices.Contains(p.released, w.FR) && (w.Winnable || w.Least <= p.Available(w.FR))
	})
}

// release notes who is owed a look.
func (p *plain) release(fr resource.FR) {
	if !slices.Contains(p.released, fr) {
		p.released = append(p.released, fr)
	}
	for _, k := range p.parked {
		k.looked = false
		if !p.lacks(k.wants) && p.uses(k) {
			k.owed = true
		}
	}
}

// before is the order of the line, the sticky workload first.
func (p *plain) before(a, b *workload.Workload) bool {
	if (a == p.sticky) != (b == p.sticky) {
		return a == p.sticky
	}
	return Compare(a, b) < 0
}

// next returns who comes first of those that are owed a look and may be met now, or nil.
func (p *plain) next() (next *workload.Workload) {
	for id, k := range p.parked {
		if k.looked || !k.owed || p.lacks(k.wants) || !p.uses(k) {
			continue
		}
		for _, w := range p.class(id) {
			if next == nil || p.before(w, next) {
				next = w
			}
		}
	}
	return next
}

// agree compares everything that can be asked of a line with its twin.
func agree(t *rapid.T, twin *plain, line *Pending) {
	t.Helper()
	active, parked := twin.list()
	if diff := gocmp.Diff(keys(append(slices.Clone(active), parked...)), keys(line.All())); diff != "" {
		t.Fatalf("in line (-twin +line):\n%s", diff)
	}
	if line.Active() != len(active) || line.Parked() != len(parked) {
		t.Fatalf("%d active and %d parked, want %d and %d", line.Active(), line.Parked(), len(active), len(parked))
	}
	if head := twin.head(); line.Head() != head || line.Sticky() != twin.sticky {
		t.Fatalf("head is %v and sticky %v, want %v and %v", line.Head(), line.Sticky(), head, twin.sticky)
	}
	for _, w := range twin.all {
		var by *workload.Workload
		var wants []workload.Want
		if k, is := twin.parked[w.Class]; is && !twin.aside[w] {
			wants = k.wants
			if k.by != w {
				by = k.by
			}
		}
		if line.ParkedBy(w) != by || !slices.Equal(line.WantsOf(w), wants) {
			t.Fatalf("%s is parked by %v for %v, want %v and %v", w.Key, line.ParkedBy(w), line.WantsOf(w), by, wants)
		}
	}
	if !slices.IsSorted(line.Released()) || len(slices.Compact(slices.Clone(line.Released()))) != len(line.Released()) {
		t.Fatalf("released are %v", line.Released())
	}
	if next := twin.next(); next != nil && len(line.Released()) == 0 {
		t.Fatalf("%s is owed a look, and nothing is noted", next.Key)
	}
	sameParks(t, twin.parks(), line.Parks())
	aside := slices.DeleteFunc(slices.Clone(parked), func(w *workload.Workload) bool { return !twin.aside[w] })
	if !slices.Equal(line.Aside(), aside) {
		t.Fatalf("aside are %v, want %v", keys(line.Aside()), keys(aside))
	}
	sound(t, line)
}

// sameParks: whoever had a look is in the pen, and so may be others.
func sameParks(t *rapid.T, want, got []Park) {
	t.Helper()
	same := slices.EqualFunc(want, got, func(a, b Park) bool {
		return a.Member.UID == b.Member.UID && a.By.UID == b.By.UID && (b.Tried || !a.Tried) && slices.Equal(a.Wants, b.Wants)
	})
	if !same {
		t.Fatalf("parks are %v, want %v", got, want)
	}
}

// tester is a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// sound checks what the line keeps for itself: each class is where its stage says, whoever is
// filed has a ticket for each thing that it watches, and every ticket is one that a class
// knows of, at its place on the right shelf.
func sound(t tester, line *Pending) {
	t.Helper()
	classes, parked, idle, listed := 0, 0, 0, map[resource.FR]int{}
	line.each(func(c *class) {
		classes++
		if line.classes[c.id()] != c || line.class(c.slot) != c {
			t.Fatalf("class %d is not found", c.id())
		}
		if c.stage != awake {
			parked++
		}
		if c.stage != filed {
			idle += c.listed()
		}
		soundClass(t, line, c, listed)
	})
	if len(line.classes) != classes || len(line.awake)+parked != classes || line.parked != parked || len(line.pen) > parked {
		t.Fatalf("%d classes of %d, %d awake and %d parked, want %d, of which %d in the pen",
			len(line.classes), classes, len(line.awake), line.parked, parked, len(line.pen))
	}
	if line.idle != idle {
		t.Fatalf("%d tickets do not count, and %d are counted", idle, line.idle)
	}
	used := int32(0)
	for _, k := range line.chunks {
		if k != nil {
			used += k.used
		}
	}
	if int(used) != classes || len(line.spare) != len(line.chunks)*chunkLen-classes {
		t.Fatalf("%d classes use %d, and %d are spare in %d chunks", classes, used, len(line.spare), len(line.chunks))
	}
	fr := resource.FR(-1)
	for i := range line.shelves {
		s := &line.shelves[i]
		if s.fr <= fr {
			t.Fatalf("the shelf of %d comes after that of %d", s.fr, fr)
		}
		fr = s.fr
		if n := soundShelf(t, line, s); n != listed[fr] {
			t.Fatalf("%d tickets for %d, and %d classes have one", n, fr, listed[fr])
		}
	}
}

// soundClass checks a class, and counts what it has tickets for.
func soundClass(t tester, line *Pending, c *class, listed map[resource.FR]int) {
	t.Helper()
	if counts := line.isFiled(c.slot); counts != (c.stage == filed) {
		t.Fatalf("the tickets of class %d count: %v; it is at stage %d", c.id(), counts, c.stage)
	}
	switch c.stage {
	case awake:
		if s := line.awake[c.at]; s.class != c || s.waiter != c.line[0] {
			t.Fatalf("class %d has the seat of %s, and its head is %s", c.id(), s.UID, c.head().UID)
		}
	case penned:
		if line.pen[c.at] != c {
			t.Fatalf("class %d is not in the pen at %d", c.id(), c.at)
		}
	case filed:
		if c.watches == 0 && c.pattern != nil {
			t.Fatalf("class %d watches nothing", c.id())
		}
	}
	frs, watched := map[resource.FR]bool{}, c.watch()
	for i := range watched {
		w := &watched[i]
		fr, tk := c.ticketFor(w)
		if frs[fr] {
			t.Fatalf("class %d watches %d twice", c.id(), fr)
		}
		frs[fr] = true
		if !w.listed && c.stage == filed {
			t.Fatalf("class %d has no ticket for %d", c.id(), fr)
		}
		if !w.listed {
			continue
		}
		listed[fr]++
		s := line.shelf(fr)
		if has := s.at(line.find(s, &tk)); has == nil || *has != tk {
			t.Fatalf("the ticket of class %d for %d is not at its place", c.id(), fr)
		}
	}
}

// soundShelf checks the order on a shelf, and counts its tickets.
func soundShelf(t tester, line *Pending, s *shelf) (tickets int) {
	t.Helper()
	var last *ticket
	for i, block := range s.blocks {
		if len(block) > blockLen || len(block) == 0 && len(s.blocks) > 1 || i > 0 && fewTogether(s.blocks[i-1], block) {
			t.Fatalf("block %d of %d on the shelf of %d has %d tickets", i, len(s.blocks), s.fr, len(block))
		}
		for j := range block {
			if last != nil && line.compare(last, &block[j]) >= 0 {
				t.Fatalf("on the shelf of %d, %v comes after %v", s.fr, block[j], *last)
			}
			last = &block[j]
			tickets++
		}
	}
	first := none
	if tickets > 0 {
		first = s.blocks[0][0].least
	}
	if s.first != first {
		t.Fatalf("the shelf of %d begins with %d, want %d", s.fr, s.first, first)
	}
	return tickets
}

// restore replaces the line by what a snapshot would make of it, with copies of the same
// workloads, on which the twin goes on as well.
func (m *machine) restore(*rapid.T) {
	old, fresh := m.line, &Pending{}
	copies := map[*workload.Workload]*workload.Workload{nil: nil}
	of := func(w *workload.Workload) *workload.Workload {
		if copies[w] == nil && w != nil { // it has left
			copies[w] = &workload.Workload{UID: w.UID}
		}
		return copies[w]
	}
	for i, w := range m.twin.all {
		clone := *w
		clone.Spot = 0
		copies[w], m.twin.all[i] = &clone, &clone
	}
	for _, w := range old.All() {
		fresh.Add(of(w), false)
	}
	for _, w := range old.Aside() {
		fresh.SetAside(of(w))
	}
	for _, k := range old.Parks() {
		fresh.Restore(Park{of(k.Member), of(k.By), k.Wants, k.Tried}, m.twin)
	}
	fresh.Remind(old.Released())
	fresh.Stick(of(old.Sticky()))
	for _, k := range m.twin.parked {
		k.by = of(k.by)
	}
	aside := map[*workload.Workload]bool{}
	for w := range m.twin.aside {
		aside[of(w)] = true
	}
	m.twin.aside, m.twin.sticky, m.line = aside, of(m.twin.sticky), fresh
}

// machine drives a line and its twin through the same events.
type machine struct {
	line   *Pending
	twin   *plain
	serial int
	buffer []workload.Want // the caller's, used again and again
}

func pick(t *rapid.T, from []*workload.Workload) *workload.Workload {
	if len(from) == 0 {
		t.Skip("nobody there")
	}
	return rapid.SampledFrom(from).Draw(t, "who")
}

func (m *machine) add(t *rapid.T) {
	m.serial++
	class := rapid.Int32Range(0, 7).Draw(t, "class")
	w := &workload.Workload{
		UID: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "uid"), "-", m.serial), Key: fmt.Sprint("w", m.serial), Class: class, Priority: int64(class / 4),
		Since: workload.Instant(rapid.IntRange(0, 1).Draw(t, "since")), Spot: rapid.Int32Range(0, 3).Draw(t, "stale spot"),
	}
	strict := rapid.IntRange(0, 5).Draw(t, "strict") == 5
	if strict {
		delete(m.twin.parked, class)
	}
	m.twin.all = append(m.twin.all, w)
	m.line.Add(w, strict)
}

func (m *machine) addAgain(t *rapid.T) { m.line.Add(pick(t, m.twin.all), true) }

func (m *machine) remove(t *rapid.T) {
	w := pick(t, m.twin.all)
	m.twin.all = slices.DeleteFunc(m.twin.all, func(o *workload.Workload) bool { return o == w })
	delete(m.twin.aside, w)
	if m.twin.sticky == w {
		m.twin.sticky = nil
	}
	m.twin.tidy()
	if !m.line.Remove(w) || m.line.Remove(w) {
		t.Fatal("not removed exactly once")
	}
}

func (m *machine) park(t *rapid.T) { m.parkOne(t, pick(t, m.twin.all)) }

func (m *machine) parkOne(t *rapid.T, w *workload.Workload) {
	m.buffer = m.buffer[:0]
	for clause := range rapid.Uint8Range(0, 2).Draw(t, "clauses") {
		offer := uint16(0) // of another flavor than the others: no FR is in two of them
		for _, fr := range rapid.SliceOfNDistinct(rapid.IntRange(0, testFRs-1), 1, testFRs, rapid.ID[int]).Draw(t, "frs") {
			m.buffer = append(m.buffer, workload.Want{
				FR: resource.FR(fr), Least: resource.Amount(rapid.SampledFrom([]int{0, 1, 3, 4, 6}).Draw(t, "least")), Clause: clause, Offer: offer,
				Winnable: rapid.IntRange(0, 3).Draw(t, "winnable") == 3,
			})
			if rapid.Bool().Draw(t, "next offer") {
				offer++
			}
		}
	}
	if _, is := m.twin.parked[w.Class]; !is && !m.twin.aside[w] {
		m.twin.parked[w.Class] = &lot{by: w, wants: slices.Clone(m.buffer), looked: len(m.twin.released) > 0}
	}
	if !m.twin.aside[w] {
		m.line.Park(w, m.buffer)
	}
}

func (m *machine) setAside(t *rapid.T) {
	w := pick(t, m.twin.all)
	m.twin.aside[w] = true
	m.twin.tidy()
	m.line.SetAside(w)
}

func (m *machine) stick(t *rapid.T) {
	m.twin.sticky = pick(t, m.twin.all)
	m.line.Stick(m.twin.sticky)
}

// use changes what is in use of an FR, by the queue or its neighbour, or what can be won.
// The line hears of it whenever there is more, and sometimes else.
func (m *machine) use(t *rapid.T) {
	fr := resource.FR(rapid.IntRange(0, testFRs-1).Draw(t, "fr"))
	before, extra := m.twin.Available(fr), m.twin.extra[fr]
	amount := resource.Amount(rapid.IntRange(0, 6).Draw(t, "amount"))
	switch rapid.IntRange(0, 4).Draw(t, "what") {
	case 0:
		m.twin.extra[fr] = amount / 2
	case 1:
		m.twin.use(m.twin.other, fr, amount/2)
	default:
		m.twin.use(m.twin.node, fr, amount)
	}
	if m.twin.Available(fr) > before || m.twin.extra[fr] > extra || rapid.IntRange(0, 3).Draw(t, "told") == 3 {
		m.release(t, fr)
	}
}

func (m *machine) release(t *rapid.T, fr resource.FR) {
	was := slices.Clone(m.line.Released())
	noted := m.line.Release(fr, m.twin)
	if noted {
		was = slices.Compact(slices.Sorted(slices.Values(append(was, fr))))
	}
	if !slices.Equal(m.line.Released(), was) {
		t.Fatalf("after a release of %d, noted: %v, there are %v, want %v", fr, noted, m.line.Released(), was)
	}
	m.twin.release(fr)
	m.twin.released = slices.Clone(was)
}

// wakeNext: only with somebody at the head may the line keep what was released although
// nobody is left that it may help.
func (m *machine) wakeNext(t *rapid.T) {
	head, next := m.twin.head(), m.twin.next()
	want := next != nil && (head == nil || m.twin.before(next, head))
	if got := m.line.WakeNext(m.twin); got != want {
		t.Fatalf("woke %v, want %v", got, want)
	}
	if want {
		delete(m.twin.parked, next.Class)
		return
	}
	m.twin.released = slices.Clone(m.line.Released())
	if len(m.twin.released) > 0 {
		if head == nil {
			t.Fatalf("nobody is left, and not dealt with are %v", m.twin.released)
		}
		return
	}
	if next != nil {
		t.Fatalf("%s is owed a look, and all is dealt with", next.Key)
	}
	for _, k := range m.twin.parked {
		k.looked, k.owed = false, false
	}
}

// look parks the head, as if it had been looked at in vain.
func (m *machine) look(t *rapid.T) {
	head := m.twin.head()
	if head == nil {
		t.Skip("nobody there")
	}
	m.parkOne(t, head)
}

func (m *machine) wakeAll(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") < 3 {
		t.Skip("not now")
	}
	_, parked := m.twin.list()
	clear(m.twin.parked)
	clear(m.twin.aside)
	m.twin.released = nil
	if n := m.line.WakeAll(); n != len(parked) || len(m.line.Released()) > 0 {
		t.Fatalf("woke %d, want %d; released are %v", n, len(parked), m.line.Released())
	}
}

// TestPendingTwin: the line is, after every event, the one that sorting would give.
func TestPendingTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{line: &Pending{}, twin: &plain{
			yard: newYard(), parked: map[int32]*lot{}, aside: map[*workload.Workload]bool{},
		}}
		rt.Repeat(map[string]func(*rapid.T){
			"":          func(t *rapid.T) { agree(t, m.twin, m.line) },
			"add":       m.add,
			"add more":  m.add,
			"add again": m.addAgain,
			"remove":    m.remove,
			"park":      m.park,
			"park more": m.park,
			"set aside": m.setAside,
			"stick":     m.stick,
			"look":      m.look,
			"use":       m.use,
			"use more":  m.use,
			"wake next": m.wakeNext,
			"and next":  m.wakeNext,
			"wake all":  m.wakeAll,
			"restore":   m.restore,
		})
	})
}
