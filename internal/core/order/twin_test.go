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

// plain is a line without cleverness: a list that is sorted when it is evaluated at.
//
// It does not know what a class watches, only what the line owes it: an evaluation, once it is
// met as far as anyone can tell after a release of something it wants.
type plain struct {
	*yard
	all          []*workload.Workload
	inadmissible map[int32]*lot
	alone        map[*workload.Workload]bool
	released     []resource.FR // as the line has it
	prioritized  *workload.Workload
	standings    map[int32]Standing // by workload.Workload.Line
}

// lot is an inadmissible class.
type lot struct {
	by        *workload.Workload
	wants     []workload.Want
	evaluated bool // since the last release, or the end of the one before
	owed      bool
}

func (p *plain) isInadmissible(w *workload.Workload) bool {
	_, inadmissible := p.inadmissible[w.Class]
	return inadmissible || p.alone[w]
}

func (p *plain) list() (active, inadmissible []*workload.Workload) {
	for _, w := range p.all {
		if p.isInadmissible(w) {
			inadmissible = append(inadmissible, w)
		} else {
			active = append(active, w)
		}
	}
	slices.SortFunc(active, p.compare)
	slices.SortFunc(inadmissible, p.compareUnprioritized)
	return active, inadmissible
}

// class returns who is in a class and not alone, in order.
func (p *plain) class(id int32) (members []*workload.Workload) {
	for _, w := range p.all {
		if w.Class == id && !p.alone[w] {
			members = append(members, w)
		}
	}
	slices.SortFunc(members, Compare)
	return members
}

// tidy forgets classes without workloads.
func (p *plain) tidy() {
	for id := range p.inadmissible {
		if len(p.class(id)) == 0 {
			delete(p.inadmissible, id)
		}
	}
}

func (p *plain) classes() []InadmissibleClass {
	classes := []InadmissibleClass{}
	for id, k := range p.inadmissible {
		classes = append(classes, InadmissibleClass{p.class(id)[0], k.by, k.wants, k.evaluated})
	}
	slices.SortFunc(classes, func(a, b InadmissibleClass) int {
		return cmp.Or(strings.Compare(a.By.UID, b.By.UID), strings.Compare(a.Member.UID, b.Member.UID))
	})
	return classes
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

// uses reports whether a released FR is wanted and available.
func (p *plain) uses(k *lot) bool {
	return slices.ContainsFunc(k.wants, func(w workload.Want) bool {
		return slices.Contains(p.released, w.FR) && (w.Winnable || w.Least <= p.Available(w.FR))
	})
}

// release notes who is owed an evaluation.
func (p *plain) release(fr resource.FR) {
	if !slices.Contains(p.released, fr) {
		p.released = append(p.released, fr)
	}
	for _, k := range p.inadmissible {
		k.evaluated = false
		if !p.lacks(k.wants) && p.uses(k) {
			k.owed = true
		}
	}
}

// compare is the order of the line: the lower standing, the prioritized workload, and then that of one queue without standings.
func (p *plain) compare(a, b *workload.Workload) int {
	switch x, y := p.standings[a.Line], p.standings[b.Line]; {
	case x != y:
		return cmp.Compare(x, y)
	case a == b:
		return 0
	case a == p.prioritized:
		return -1
	case b == p.prioritized:
		return 1
	}
	return Compare(a, b)
}

func (p *plain) compareUnprioritized(a, b *workload.Workload) int {
	return cmp.Or(cmp.Compare(p.standings[a.Line], p.standings[b.Line]), Compare(a, b))
}

func (p *plain) before(a, b *workload.Workload) bool { return p.compare(a, b) < 0 }

// next returns the first workload of an inadmissible class that has to be evaluated and may fit, or nil.
func (p *plain) next() (next *workload.Workload) {
	for id, k := range p.inadmissible {
		if k.evaluated || !k.owed || p.lacks(k.wants) || !p.uses(k) {
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
	active, inadmissible := twin.list()
	if diff := gocmp.Diff(keys(append(slices.Clone(active), inadmissible...)), keys(line.All())); diff != "" {
		t.Fatalf("in line (-twin +line):\n%s", diff)
	}
	if line.Active() != len(active) || line.Inadmissible() != len(inadmissible) {
		t.Fatalf("%d active and %d inadmissible, want %d and %d", line.Active(), line.Inadmissible(), len(active), len(inadmissible))
	}
	if head := twin.head(); line.Head() != head || line.Prioritized() != twin.prioritized {
		t.Fatalf("head is %v and prioritized %v, want %v and %v", line.Head(), line.Prioritized(), head, twin.prioritized)
	}
	for _, w := range twin.all {
		var by *workload.Workload
		var wants []workload.Want
		if k, is := twin.inadmissible[w.Class]; is && !twin.alone[w] {
			wants = k.wants
			if k.by != w {
				by = k.by
			}
		}
		if line.Representative(w) != by || !slices.Equal(line.WantsOf(w), wants) {
			t.Fatalf("%s is inadmissible by %v for %v, want %v and %v", w.Key, line.Representative(w), line.WantsOf(w), by, wants)
		}
	}
	if !slices.IsSorted(line.Released()) || len(slices.Compact(slices.Clone(line.Released()))) != len(line.Released()) {
		t.Fatalf("released are %v", line.Released())
	}
	if next := twin.next(); next != nil && len(line.Released()) == 0 {
		t.Fatalf("%s is owed an evaluation, and nothing is noted", next.Key)
	}
	sameClasses(t, twin.classes(), packAtOnce(line).Unpack())
	alone := slices.DeleteFunc(slices.Clone(inadmissible), func(w *workload.Workload) bool { return !twin.alone[w] })
	if !slices.Equal(line.InadmissibleAlone(), alone) {
		t.Fatalf("alone are %v, want %v", keys(line.InadmissibleAlone()), keys(alone))
	}
	sound(t, line)
}

// sameClasses: every class that was evaluated is tried, and others may be.
func sameClasses(t *rapid.T, want, got []InadmissibleClass) {
	t.Helper()
	same := slices.EqualFunc(want, got, func(a, b InadmissibleClass) bool {
		return a.Member.UID == b.Member.UID && a.By.UID == b.By.UID && (b.Tried || !a.Tried) && slices.Equal(a.Wants, b.Wants)
	})
	if !same {
		t.Fatalf("classes are %v, want %v", got, want)
	}
}

// tester is a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// sound checks the internal state of the line: each class is where its stage says, a filed
// class has an entry for each condition, and every entry is that of a condition, at its place.
func sound(t tester, line *Pending) {
	t.Helper()
	classes, inadmissible, idle, listed := 0, 0, 0, map[resource.FR]int{}
	line.each(func(c *class) {
		classes++
		if line.classes[c.id()] != c || line.class(c.slot) != c {
			t.Fatalf("class %d is not found", c.id())
		}
		if c.stage != awake {
			inadmissible++
		}
		if c.stage != filed {
			idle += c.listed()
		}
		soundClass(t, line, c, listed)
	})
	active := soundLines(t, line)
	if len(line.classes) != classes || active+inadmissible != classes || line.inadmissible != inadmissible || len(line.tried) > inadmissible {
		t.Fatalf("%d classes of %d, %d awake and %d inadmissible, want %d, of which %d tried",
			len(line.classes), classes, active, line.inadmissible, inadmissible, len(line.tried))
	}
	if line.idle != idle {
		t.Fatalf("%d entries do not count, and %d are counted", idle, line.idle)
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
	for i := range line.indexes {
		s := &line.indexes[i]
		if s.fr <= fr {
			t.Fatalf("the index of %d comes after that of %d", s.fr, fr)
		}
		fr = s.fr
		if n := soundIndex(t, line, s); n != listed[fr] {
			t.Fatalf("%d entries for %d, and %d classes have one", n, fr, listed[fr])
		}
	}
}

// soundLines checks the heap of lines, and counts the active classes: each line with one is in the heap, at its place, with
// its head, and there is no line without classes and standing.
func soundLines(t tester, line *Pending) (active int) {
	t.Helper()
	classes := map[int32]int32{} // by number of the line
	line.each(func(c *class) {
		classes[c.head().Line]++
		for _, w := range c.members {
			if w.Line != c.head().Line {
				t.Fatalf("class %d is in two lines", c.id())
			}
		}
	})
	if line.lines == nil {
		if l := &line.unnumbered; l.number != 0 || l.index != 0 || l.classes != classes[0] || len(classes) > 1 {
			t.Fatalf("line %d at %d has %d classes of %v", l.number, l.index, l.classes, classes)
		}
		return len(line.unnumbered.awake)
	}
	all := append([]*localLine{&line.unnumbered}, line.lines.all...)
	heads := 0
	for i, l := range all {
		if l == nil {
			if !slices.Contains(line.lines.free, int32(i)) {
				t.Fatalf("the index %d is lost", i)
			}
			continue
		}
		if line.line(l.number) != l || l.index != int32(i) || l.classes != classes[l.number] || i > 0 && l.classes == 0 && l.standing == 0 {
			t.Fatalf("line %d at %d has the index %d, %d classes of %d and standing %d", l.number, i, l.index, l.classes, classes[l.number], l.standing)
		}
		active += len(l.awake)
		if line.lines.has(l) != (len(l.awake) > 0) {
			t.Fatalf("line %d has %d active classes, and is in the heap: %v", l.number, len(l.awake), line.lines.has(l))
		}
		if len(l.awake) == 0 {
			continue
		}
		heads++
		h := line.lines.heads[l.at]
		if h.standing != l.standing || h.member != l.awake[0].member || h.before(line.lines.heads[(max(l.at, 1)-1)/2]) {
			t.Fatalf("line %d of standing %d and head %s is in the heap with %v", l.number, l.standing, l.awake[0].UID, h)
		}
	}
	if heads != len(line.lines.heads) {
		t.Fatalf("%d lines have active classes, and %d are in the heap", heads, len(line.lines.heads))
	}
	return active
}

// soundClass checks a class, and counts its entries.
func soundClass(t tester, line *Pending, c *class, listed map[resource.FR]int) {
	t.Helper()
	if counts := line.isFiled(c.slot); counts != (c.stage == filed) {
		t.Fatalf("the entries of class %d count: %v; it is at stage %d", c.id(), counts, c.stage)
	}
	switch c.stage {
	case awake:
		if s := line.lineOf(c).awake[c.at]; s.class != c || s.member != c.members[0] {
			t.Fatalf("class %d has the seat of %s, and its head is %s", c.id(), s.UID, c.head().UID)
		}
	case tried:
		if line.tried[c.at] != c {
			t.Fatalf("class %d is not tried at %d", c.id(), c.at)
		}
	case filed:
		if c.nconditions == 0 && c.pattern != nil {
			t.Fatalf("class %d watches nothing", c.id())
		}
	}
	frs, watched := map[resource.FR]bool{}, c.conditions()
	for i := range watched {
		w := &watched[i]
		fr, tk := c.entryFor(w)
		if frs[fr] {
			t.Fatalf("class %d watches %d twice", c.id(), fr)
		}
		frs[fr] = true
		if !w.listed && c.stage == filed {
			t.Fatalf("class %d has no entry for %d", c.id(), fr)
		}
		if !w.listed {
			continue
		}
		listed[fr]++
		s := line.wakeIndex(fr).line(int(line.lineOf(c).index))
		if has := s.at(line.find(s, &tk)); has == nil || *has != tk {
			t.Fatalf("the entry of class %d for %d is not at its place", c.id(), fr)
		}
	}
}

// soundIndex checks a wake index, and counts its entries.
func soundIndex(t tester, line *Pending, s *wakeIndex) (entries int) {
	t.Helper()
	for i := range s.len() {
		entries += soundEntries(t, line, s.line(i))
	}
	for i := range s.others {
		if first := s.others[i].first; first != none && first < s.low {
			t.Fatalf("the index of %d begins with %d, and no entry is to be below %d", s.fr, first, s.low)
		}
	}
	if s.isEmpty() != (entries == 0) {
		t.Fatalf("the index of %d has %d entries, and is empty: %v", s.fr, entries, s.isEmpty())
	}
	return entries
}

// soundEntries checks the order of the entries of a line, and counts them.
func soundEntries(t tester, line *Pending, s *entries) (entries int) {
	t.Helper()
	var last *indexEntry
	for i, block := range s.blocks {
		if len(block) > blockLen || len(block) == 0 && len(s.blocks) > 1 || i > 0 && fewTogether(s.blocks[i-1], block) {
			t.Fatalf("block %d of %d has %d entries", i, len(s.blocks), len(block))
		}
		for j := range block {
			if last != nil && line.compareEntries(last, &block[j]) >= 0 {
				t.Fatalf("%v comes after %v", block[j], *last)
			}
			last = &block[j]
			entries++
		}
	}
	first := none
	if entries > 0 {
		first = s.blocks[0][0].least
	}
	if s.first != first {
		t.Fatalf("the entries begin with %d, want %d", s.first, first)
	}
	return entries
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
		clone.HeapIndex = 0
		copies[w], m.twin.all[i] = &clone, &clone
	}
	for number, standing := range m.twin.standings {
		fresh.SetStanding(number, standing)
	}
	for _, w := range old.All() {
		fresh.Add(of(w), false)
	}
	for _, w := range old.InadmissibleAlone() {
		fresh.SetInadmissibleAlone(of(w))
	}
	packing := old.BeginPacking()
	packing.complete()
	packing.Restore(fresh, of, m.twin)
	fresh.SetReleased(old.Released())
	fresh.Prioritize(of(old.Prioritized()))
	for _, k := range m.twin.inadmissible {
		k.by = of(k.by)
	}
	alone := map[*workload.Workload]bool{}
	for w := range m.twin.alone {
		alone[of(w)] = true
	}
	m.twin.alone, m.twin.prioritized, m.line = alone, of(m.twin.prioritized), fresh
}

// machine drives a line and its twin through the same events.
type machine struct {
	line   *Pending
	twin   *plain
	lines  int32 // how many LocalQueue lines there are; 0 is one without a number
	serial int
	buffer []workload.Want // the caller's, used again and again
}

func pick(t *rapid.T, from []*workload.Workload) *workload.Workload {
	if len(from) == 0 {
		t.Skip("none there")
	}
	return rapid.SampledFrom(from).Draw(t, "who")
}

func (m *machine) add(t *rapid.T) {
	m.serial++
	class := rapid.Int32Range(0, 7).Draw(t, "class")
	w := &workload.Workload{
		UID: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "uid"), "-", m.serial), Key: fmt.Sprint("w", m.serial), Class: class, Priority: int64(class / 4), Line: m.lineOf(class),
		Since: workload.Instant(rapid.IntRange(0, 1).Draw(t, "since")), HeapIndex: rapid.Int32Range(0, 3).Draw(t, "stale spot"),
	}
	strict := rapid.IntRange(0, 5).Draw(t, "strict") == 5
	if strict {
		delete(m.twin.inadmissible, class)
	}
	m.twin.all = append(m.twin.all, w)
	m.line.Add(w, strict)
}

// lineOf is the line of a class: without a number for some.
func (m *machine) lineOf(class int32) int32 {
	if m.lines == 0 {
		return 0
	}
	return class % (m.lines + 1) * 100
}

// setStanding changes the standing of a line, of a few values so that some are equal.
func (m *machine) setStanding(t *rapid.T) {
	if m.lines == 0 {
		t.Skip("no lines")
	}
	number := rapid.Int32Range(1, m.lines+1).Draw(t, "line") * 100 // the last one is of no class
	standing := Standing(rapid.SampledFrom([]int{0, 1, 2, -1}).Draw(t, "standing"))
	_, inadmissible := m.twin.list()
	m.twin.standings[number] = standing
	m.line.SetStanding(number, standing)
	for _, w := range inadmissible {
		if c := m.line.classes[w.Class]; !m.line.IsAlone(w) && c.stage == awake {
			t.Fatalf("%s is active after a change of a standing", w.Key)
		}
	}
}

func (m *machine) addAgain(t *rapid.T) { m.line.Add(pick(t, m.twin.all), true) }

func (m *machine) remove(t *rapid.T) {
	w := pick(t, m.twin.all)
	m.twin.all = slices.DeleteFunc(m.twin.all, func(o *workload.Workload) bool { return o == w })
	delete(m.twin.alone, w)
	if m.twin.prioritized == w {
		m.twin.prioritized = nil
	}
	m.twin.tidy()
	if !m.line.Remove(w) || m.line.Remove(w) {
		t.Fatal("not removed exactly once")
	}
}

func (m *machine) setInadmissible(t *rapid.T) { m.setOneInadmissible(t, pick(t, m.twin.all)) }

func (m *machine) setOneInadmissible(t *rapid.T, w *workload.Workload) {
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
	if _, is := m.twin.inadmissible[w.Class]; !is && !m.twin.alone[w] {
		m.twin.inadmissible[w.Class] = &lot{by: w, wants: slices.Clone(m.buffer), evaluated: len(m.twin.released) > 0}
	}
	if !m.twin.alone[w] {
		m.line.SetInadmissible(w, m.buffer)
	}
}

func (m *machine) setAlone(t *rapid.T) {
	w := pick(t, m.twin.all)
	m.twin.alone[w] = true
	m.twin.tidy()
	m.line.SetInadmissibleAlone(w)
}

func (m *machine) prioritize(t *rapid.T) {
	m.twin.prioritized = pick(t, m.twin.all)
	m.line.Prioritize(m.twin.prioritized)
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

// wakeNext: the line may keep releases that help no class only while it has a head.
func (m *machine) wakeNext(t *rapid.T) {
	head, next := m.twin.head(), m.twin.next()
	want := next != nil && (head == nil || m.twin.before(next, head))
	if got := m.line.WakeNext(m.twin); got != want {
		t.Fatalf("woke %v, want %v", got, want)
	}
	if want {
		delete(m.twin.inadmissible, next.Class)
		return
	}
	m.twin.released = slices.Clone(m.line.Released())
	if len(m.twin.released) > 0 {
		if head == nil {
			t.Fatalf("none is left, and not dealt with are %v", m.twin.released)
		}
		return
	}
	if next != nil {
		t.Fatalf("%s is owed an evaluation, and all is dealt with", next.Key)
	}
	for _, k := range m.twin.inadmissible {
		k.evaluated, k.owed = false, false
	}
}

// look classes the head, as if it had been evaluated at without success.
func (m *machine) evaluate(t *rapid.T) {
	head := m.twin.head()
	if head == nil {
		t.Skip("none there")
	}
	m.setOneInadmissible(t, head)
}

func (m *machine) wakeAll(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") < 3 {
		t.Skip("not now")
	}
	_, inadmissible := m.twin.list()
	clear(m.twin.inadmissible)
	clear(m.twin.alone)
	m.twin.released = nil
	if n := m.line.WakeAll(); n != len(inadmissible) || len(m.line.Released()) > 0 {
		t.Fatalf("woke %d, want %d; released are %v", n, len(inadmissible), m.line.Released())
	}
}

// TestPendingTwin: the line is, after every event, the one that sorting would give.
func TestPendingTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{line: &Pending{}, lines: rapid.SampledFrom([]int32{0, 2, 3, 7}).Draw(rt, "lines"), twin: &plain{
			yard: newYard(), inadmissible: map[int32]*lot{}, alone: map[*workload.Workload]bool{}, standings: map[int32]Standing{},
		}}
		rt.Repeat(map[string]func(*rapid.T){
			"":                   func(t *rapid.T) { agree(t, m.twin, m.line) },
			"add":                m.add,
			"add more":           m.add,
			"add again":          m.addAgain,
			"remove":             m.remove,
			"park":               m.setInadmissible,
			"park more":          m.setInadmissible,
			"inadmissible alone": m.setAlone,
			"prioritize":         m.prioritize,
			"set standing":       m.setStanding,
			"set other standing": m.setStanding,
			"evaluate":           m.evaluate,
			"use":                m.use,
			"use more":           m.use,
			"wake next":          m.wakeNext,
			"and next":           m.wakeNext,
			"wake all":           m.wakeAll,
			"restore":            m.restore,
		})
	})
}
