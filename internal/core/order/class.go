package order

import (
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// class is the workloads of one equivalence class, which differ only in age, in order.
// There can be as many classes as workloads, and an evaluation visits several, so a class is
// small and contains all that an evaluation reads: first, few and four are the memory of
// short lists. The classes of a queue are adjacent in memory, see chunk.
type class struct {
	at    int32 // index in localLine.awake or Pending.tried
	slot  int32 // see Pending.chunks
	stage stage
	all   bool // all of its clauses were met: it has a condition on every want
	woken bool // a release has activated it, and it was not evaluated since

	// Wants, conditions and index entries stay while it is active or tried: most often they are
	// the same when it is filed again.
	nconditions uint16 // number of conditions
	packedWants
	four [4]condition // the conditions, unless there are more

	members heap[member]       // never empty while the class is in use
	first   [1]member          // the first memory of members
	by      *workload.Workload // while inadmissible: the workload that was evaluated
}

// more is the memory of lists that do not fit into a class.
type more struct {
	amounts    []resource.Amount
	conditions []condition
}

// stage is the state of a class.
type stage int8

const (
	awake stage = iota // active
	tried              // inadmissible, and evaluated since the last release
	filed              // inadmissible, and its index entries count
)

func (c *class) head() *workload.Workload { return c.members[0].Workload }

// id is the number of the class.
func (c *class) id() int32 { return c.head().Class }

func (c *class) has(w *workload.Workload) bool {
	return int(w.HeapIndex) < len(c.members) && c.members[w.HeapIndex].Workload == w
}

// activeClass is an item of the heap of the active classes of one line. It contains the head, so
// that comparisons do not visit the classes.
type activeClass struct {
	member
	class *class
}

func (s activeClass) before(o activeClass) bool { return s.member.before(o.member) }

func (s activeClass) moved(i int) { s.class.at = int32(i) }

// condition is a wake condition of a class: a want of which enough has to be available.
type condition struct {
	want   uint16 // index of the want
	listed bool   // it is in its wake index, for the present head
}

// conditions returns the wake conditions of the class.
func (c *class) conditions() []condition {
	if int(c.nconditions) > len(c.four) {
		return c.more.conditions
	}
	return c.four[:c.nconditions]
}

// appendCondition adds a wake condition.
func (c *class) appendCondition(w condition) {
	n := int(c.nconditions)
	c.nconditions++
	if n < len(c.four) {
		c.four[n] = w
		return
	}
	m := c.spill()
	if n == len(c.four) {
		m.conditions = append(m.conditions[:0], c.four[:]...)
	}
	m.conditions = append(m.conditions, w)
}

// satisfiedBy returns the index of the condition on fr that the available amount satisfies,
// else −1.
func (c *class) satisfiedBy(fr resource.FR, available resource.Amount) int {
	for i, w := range c.conditions() {
		if want := c.want(w.want); want.FR == fr && threshold(&want) <= available {
			return i
		}
	}
	return -1
}

// conditionOn returns the index of the condition on fr.
func (c *class) conditionOn(fr resource.FR) int {
	return slices.IndexFunc(c.conditions(), func(w condition) bool { return c.pattern.each[w.want].fr == fr })
}

// stillLacks reports whether the class may keep its conditions: every one is a want that is
// lacking, and only a release can change that. Where preemption may win something, there is a
// condition on every want, see choose.
func (c *class) stillLacks(now Figures) bool {
	if c.all || c.nconditions == 0 {
		return false
	}
	for _, w := range c.conditions() {
		if want := c.want(w.want); want.Least <= now.Available(want.FR) {
			return false
		}
	}
	return true
}

// choose chooses the wake conditions of the class: one want that is lacking for each offer of
// one clause that is not met, or all wants if every clause is met or preemption may win one
// of those chosen. In the latter case admissions, which are no releases, may make the wants
// available, so any release has to activate the class. The conditions are in no wake index
// yet.
func (c *class) choose(wants []workload.Want, now Figures) {
	d := demand{c.head(), wants}
	add := func(want int) { c.add(want, wants) }
	for from := 0; from < len(wants); {
		c.nconditions, c.all = 0, false
		to, met := d.clause(from, now, add)
		if !met && !c.winnable(wants) {
			return
		}
		if !met {
			break
		}
		from = to
	}
	c.nconditions, c.all = 0, true
	for i := range wants {
		c.add(i, wants)
	}
}

// listed returns how many conditions are in a wake index.
func (c *class) listed() (entries int) {
	for _, w := range c.conditions() {
		if w.listed {
			entries++
		}
	}
	return entries
}

// winnable reports whether preemption may win the want of a condition.
func (c *class) winnable(wants []workload.Want) bool {
	for _, w := range c.conditions() {
		if wants[w.want].Winnable {
			return true
		}
	}
	return false
}

// add adds a condition on a want: one for each FR, with the lowest threshold.
func (c *class) add(want int, wants []workload.Want) {
	watched := c.conditions()
	for i := range watched {
		if other := &wants[watched[i].want]; other.FR == wants[want].FR {
			if threshold(&wants[want]) < threshold(other) {
				watched[i].want = uint16(want)
			}
			return
		}
	}
	c.appendCondition(condition{want: uint16(want)})
}

// rank is the part of the order in line that decides most comparisons, copied to where it is
// compared.
type rank struct {
	priority int64
	since    workload.Instant
}

func rankOf(w *workload.Workload) rank { return rank{w.Priority, w.Since} }

// member is a workload of a class.
type member struct {
	rank
	*workload.Workload
}

func (w member) before(o member) bool {
	switch {
	case w.priority != o.priority:
		return w.priority > o.priority
	case w.since != o.since:
		return w.since < o.since
	}
	return w.UID < o.UID
}

func (w member) moved(i int) { w.HeapIndex = int32(i) }

// chunk is the memory of some classes. A class without members is free.
type chunk struct {
	classes [chunkLen]class
	used    int32
}

// chunkLen makes a chunk nearly as large as one of the allocator's size classes.
const chunkLen = 17

// class returns the class of a slot.
func (p *Pending) class(slot int32) *class { return &p.chunks[slot/chunkLen].classes[slot%chunkLen] }

// allocate returns a free class.
func (p *Pending) allocate() *class {
	if p.chunks == nil {
		p.chunks, p.filed = p.fewChunks[:0], p.fewFiled[:0]
	}
	if len(p.spare) == 0 {
		slot := int32(len(p.chunks)) * chunkLen
		p.chunks = append(p.chunks, nil)
		for int(slot+chunkLen-1)/64 >= len(p.filed) {
			p.filed = append(p.filed, 0)
		}
		for i := slot + chunkLen - 1; i >= slot; i-- {
			p.spare = append(p.spare, i)
		}
	}
	last := len(p.spare) - 1
	slot := p.spare[last]
	p.spare = p.spare[:last]
	k := p.chunks[slot/chunkLen]
	if k == nil {
		k = &chunk{}
		p.chunks[slot/chunkLen] = k
	}
	k.used++
	c := &k.classes[slot%chunkLen]
	c.slot = slot
	if c.members == nil {
		c.members = c.first[:0]
	}
	return c
}

// free frees a class that its last member has left.
func (p *Pending) free(c *class) {
	if cap(c.members) > spares {
		c.members = c.first[:0]
	}
	c.pattern, c.nconditions, c.by, c.woken = nil, 0, nil, false
	p.spare = append(p.spare, c.slot)
	k := c.slot / chunkLen
	if p.chunks[k].used--; p.chunks[k].used == 0 && len(p.spare) > spares {
		p.chunks[k] = nil
	}
}

// setWants sets the wants of a class. Index entries are kept if the wants are the same.
func (p *Pending) setWants(c *class, wants []workload.Want) {
	if c.wants(wants) {
		return
	}
	p.removeEntries(c)
	c.nconditions = 0
	p.patterns.pack(wants, c)
}

// each visits every class in use.
func (p *Pending) each(visit func(*class)) {
	for _, k := range p.chunks {
		if k == nil {
			continue
		}
		for i := range k.classes {
			if c := &k.classes[i]; len(c.members) > 0 {
				visit(c)
			}
		}
	}
}
