package order

import (
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// class is the line of those that no decision can tell apart but by age. There can be
// as many as there are workloads, and a look goes to several, so it is small and holds all
// that a look needs of it: the line of one sits in first, what it wants and watches in few
// and four. Those of a queue lie side by side in memory, see chunk.
type class struct {
	at    int32 // its index among the awake ones or in the pen
	slot  int32 // see Pending.chunks
	stage stage
	all   bool // everything that it wants was met one by one: it watches all of it

	// What it wants and watches, and its tickets, stay while it is awake or in the pen: most
	// often they are the same when it is filed again.
	watches uint16             // how many things it watches
	pattern *pattern           // of what it wants, nil for nothing
	few     [3]resource.Amount // the amounts of that, each once, unless they are more
	four    [4]watch           // what it watches of it, unless that is more
	more    *more

	line  heap[waiter]       // never empty while the class is in use
	first [1]waiter          // the memory that line begins with
	by    *workload.Workload // while parked: who was looked at
}

// more is what does not fit into a class.
type more struct {
	amounts []resource.Amount
	watch   []watch
}

// stage is where a class is on its way round.
type stage int8

const (
	awake  stage = iota
	penned       // parked, and looked at since the last release
	filed        // parked, and its tickets count
)

func (c *class) head() *workload.Workload { return c.line[0].Workload }

// id is the number of the class.
func (c *class) id() int32 { return c.head().Class }

func (c *class) has(w *workload.Workload) bool {
	return int(w.Spot) < len(c.line) && c.line[w.Spot].Workload == w
}

// seat is the place of an awake class among the others: with its head, which decides
// about that, so that to compare two of them no class has to be visited.
type seat struct {
	waiter
	class *class
}

func (s seat) before(o seat) bool { return s.waiter.before(o.waiter) }

func (s seat) moved(i int) { s.class.at = int32(i) }

// watch is a want that a class waits for.
type watch struct {
	want   uint16 // its index
	listed bool   // there is a ticket for it, for the present head
}

// watch returns what the class watches.
func (c *class) watch() []watch {
	if int(c.watches) > len(c.four) {
		return c.more.watch
	}
	return c.four[:c.watches]
}

// alsoWatch adds something to what the class watches.
func (c *class) alsoWatch(w watch) {
	n := int(c.watches)
	c.watches++
	if n < len(c.four) {
		c.four[n] = w
		return
	}
	m := c.spill()
	if n == len(c.four) {
		m.watch = append(m.watch[:0], c.four[:]...)
	}
	m.watch = append(m.watch, w)
}

// spill returns where things are that do not fit into the class.
func (c *class) spill() *more {
	if c.more == nil {
		c.more = &more{}
	}
	return c.more
}

// watchesSoMuch returns which of the things that the class watches is fr, if so much of it
// is enough, else −1.
func (c *class) watchesSoMuch(fr resource.FR, available resource.Amount) int {
	for i, w := range c.watch() {
		if want := c.want(w.want); want.FR == fr && threshold(&want) <= available {
			return i
		}
	}
	return -1
}

// watching returns which of the things that the class watches is fr.
func (c *class) watching(fr resource.FR) int {
	return slices.IndexFunc(c.watch(), func(w watch) bool { return c.pattern.each[w.want].fr == fr })
}

// lacksStill reports whether the class may watch what it did: each of those is lacking, and
// nothing but a release can change that. What preemption might win it watches together with
// all else only, see choose.
func (c *class) lacksStill(now Figures) bool {
	if c.all || c.watches == 0 {
		return false
	}
	for _, w := range c.watch() {
		if want := c.want(w.want); want.Least <= now.Available(want.FR) {
			return false
		}
	}
	return true
}

// choose finds what the class has to watch of its wants: what the offers of one clause
// lack that is not met, or everything if all are. What preemption might win may come to be
// had by others being admitted, which is no release, so then any release is to be looked at.
// None of it is listed.
func (c *class) choose(wants []workload.Want, now Figures) {
	d := demand{c.head(), wants}
	add := func(want int) { c.add(want, wants) }
	for from := 0; from < len(wants); {
		c.watches, c.all = 0, false
		to, met := d.clause(from, now, add)
		if !met && !c.winnable(wants) {
			return
		}
		if !met {
			break
		}
		from = to
	}
	c.watches, c.all = 0, true
	for i := range wants {
		c.add(i, wants)
	}
}

// listed is how many tickets the class has.
func (c *class) listed() (tickets int) {
	for _, w := range c.watch() {
		if w.listed {
			tickets++
		}
	}
	return tickets
}

// winnable reports whether something that the class watches may be won by preemption.
func (c *class) winnable(wants []workload.Want) bool {
	for _, w := range c.watch() {
		if wants[w.want].Winnable {
			return true
		}
	}
	return false
}

// add watches a want, once an FR, with the least of what is wanted of it.
func (c *class) add(want int, wants []workload.Want) {
	watched := c.watch()
	for i := range watched {
		if other := &wants[watched[i].want]; other.FR == wants[want].FR {
			if threshold(&wants[want]) < threshold(other) {
				watched[i].want = uint16(want)
			}
			return
		}
	}
	c.alsoWatch(watch{want: uint16(want)})
}

// rank is what decides about the place of most workloads, kept where it is compared.
type rank struct {
	priority int64
	since    workload.Instant
}

func rankOf(w *workload.Workload) rank { return rank{w.Priority, w.Since} }

// waiter is a workload in the line of its class.
type waiter struct {
	rank
	*workload.Workload
}

func (w waiter) before(o waiter) bool {
	switch {
	case w.priority != o.priority:
		return w.priority > o.priority
	case w.since != o.since:
		return w.since < o.since
	}
	return w.UID < o.UID
}

func (w waiter) moved(i int) { w.Spot = int32(i) }

// chunk is the memory of some classes. Whether one is free its line says: nobody is in it.
type chunk struct {
	classes [chunkLen]class
	used    int32
}

// chunkLen is so many that of what the allocator hands out for a chunk little is wasted.
const chunkLen = 17

// class returns the class of a slot.
func (p *Pending) class(slot int32) *class { return &p.chunks[slot/chunkLen].classes[slot%chunkLen] }

// take returns a class that nobody is in.
func (p *Pending) take() *class {
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
	if c.line == nil {
		c.line = c.first[:0]
	}
	return c
}

// giveBack takes back a class that its last member has left.
func (p *Pending) giveBack(c *class) {
	if cap(c.line) > spares {
		c.line = c.first[:0]
	}
	c.pattern, c.watches, c.by = nil, 0, nil
	p.spare = append(p.spare, c.slot)
	k := c.slot / chunkLen
	if p.chunks[k].used--; p.chunks[k].used == 0 && len(p.spare) > spares {
		p.chunks[k] = nil
	}
}

// setWants gives a class its wants. It keeps the tickets that it has if those are the same.
func (p *Pending) setWants(c *class, wants []workload.Want) {
	if c.wants(wants) {
		return
	}
	p.takeTickets(c)
	c.watches = 0
	p.patterns.pack(wants, c)
}

// each visits every class that somebody is in.
func (p *Pending) each(visit func(*class)) {
	for _, k := range p.chunks {
		if k == nil {
			continue
		}
		for i := range k.classes {
			if c := &k.classes[i]; len(c.line) > 0 {
				visit(c)
			}
		}
	}
}
