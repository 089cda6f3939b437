package order

import (
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// class is the line of those that no decision can tell apart but by age. There can be
// as many as there are workloads, so it is small: the line of one sits in first, and what
// only parked ones have is apart. Those of a queue lie side by side in memory, see chunk.
type class struct {
	at    int32 // its index among the awake ones or in the pen
	slot  int32 // see Pending.chunks
	stage stage
	line  heap[waiter]       // never empty while the class is in use
	first [1]waiter          // the memory that line begins with
	by    *workload.Workload // while parked: who was looked at
	*watcher
}

// stage is where a class is on its way round.
type stage int8

const (
	awake  stage = iota
	penned       // parked, and looked at since the last release
	filed        // parked, and its tickets count
)

// watcher is what a class has from the first time that it wants something. What it wants and
// watches, and its tickets, stay while it is awake or in the pen: most often they are the
// same when it is filed again.
type watcher struct {
	wants packed             // what has to be met
	watch []watch            // what it waits for of that
	all   bool               // everything was met one by one: it watches all of it
	few   [3]resource.Amount // the memory that wants begins with
	four  [4]watch           // and that of watch
}

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

// watches returns which of the things that the class watches is fr, if so much of it is
// enough, else −1.
func (c *class) watches(fr resource.FR, available resource.Amount) int {
	if c.watcher == nil {
		return -1
	}
	for i, w := range c.watch {
		if want := c.wants.at(int(w.want)); want.FR == fr && threshold(&want) <= available {
			return i
		}
	}
	return -1
}

// watching returns which of the things that the class watches is fr.
func (c *class) watching(fr resource.FR) int {
	return slices.IndexFunc(c.watch, func(w watch) bool { return c.wants.pattern.each[w.want].fr == fr })
}

// lacksStill tells whether the class may watch what it did: each of those is lacking, and
// nothing but a release can change that.
func (c *class) lacksStill(now Figures) bool {
	if c.all || len(c.watch) == 0 {
		return false
	}
	for _, w := range c.watch {
		if want := c.wants.at(int(w.want)); want.Winnable || want.Least <= now.Available(want.FR) {
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
		c.watch, c.all = c.watch[:0], false
		to, met := d.clause(from, now, add)
		if !met && !c.winnable(wants) {
			return
		}
		if !met {
			break
		}
		from = to
	}
	c.watch, c.all = c.watch[:0], true
	for i := range wants {
		c.add(i, wants)
	}
}

// listed is how many tickets the class has.
func (c *class) listed() (tickets int) {
	if c.watcher == nil {
		return 0
	}
	for _, w := range c.watch {
		if w.listed {
			tickets++
		}
	}
	return tickets
}

// unpack appends what the class wants.
func (c *class) unpack(to []workload.Want) []workload.Want {
	if c.watcher == nil {
		return to
	}
	return c.wants.unpack(to)
}

// winnable tells whether something that the class watches may be won by preemption.
func (c *class) winnable(wants []workload.Want) bool {
	for _, w := range c.watch {
		if wants[w.want].Winnable {
			return true
		}
	}
	return false
}

// add watches a want, once an FR, with the least of what is wanted of it.
func (c *class) add(want int, wants []workload.Want) {
	for i := range c.watch {
		if other := &wants[c.watch[i].want]; other.FR == wants[want].FR {
			if threshold(&wants[want]) < threshold(other) {
				c.watch[i].want = uint16(want)
			}
			return
		}
	}
	c.watch = append(c.watch, watch{want: uint16(want)})
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

// chunk is the memory of some classes, and of their watchers from the first that is needed.
// Whether one is free its line says: nobody is in it.
type chunk struct {
	classes  [chunkLen]class
	watchers *[chunkLen]watcher
	used     int32
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
	if c.watcher != nil {
		c.wants.pattern, c.wants.amounts, c.watch = nil, c.wants.amounts[:0], c.watch[:0]
	}
	c.by = nil
	p.spare = append(p.spare, c.slot)
	k := c.slot / chunkLen
	if p.chunks[k].used--; p.chunks[k].used == 0 && len(p.spare) > spares {
		p.chunks[k] = nil
	}
}

// want gives a class its wants. It keeps the tickets that it has if those are the same.
func (p *Pending) want(c *class, wants []workload.Want) {
	switch {
	case c.watcher == nil && len(wants) == 0:
		return
	case c.watcher == nil:
		p.giveWatcher(c)
	case c.wants.same(wants):
		return
	}
	p.takeTickets(c)
	c.watch = c.watch[:0]
	c.wants.pack(wants, p.patterns)
}

func (p *Pending) giveWatcher(c *class) {
	k := p.chunks[c.slot/chunkLen]
	if k.watchers == nil {
		k.watchers = new([chunkLen]watcher)
	}
	c.watcher = &k.watchers[c.slot%chunkLen]
	c.wants.amounts, c.watch = c.few[:0], c.four[:0]
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
