package order

import (
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// class is the line of those that no decision can tell apart but by age. There can be
// as many as there are workloads, so it is small: the line of one sits in first.
type class struct {
	at     int32              // its index among the awake or the parked classes
	parked bool               // which of the two
	line   heap[waiter]       // never empty while the class is in use
	first  [1]waiter          // the memory that line begins with
	wants  packed             // while parked: what has to be met
	watch  []watch            // while on shelves: what it waits for of that
	all    bool               // everything is met one by one: it watches all of it
	stamp  uint32             // of its last ticket
	by     *workload.Workload // while parked: who was looked at
}

func newClass() *class {
	c := &class{}
	c.line = c.first[:0]
	return c
}

func (c *class) head() *workload.Workload { return c.line[0].Workload }

// id is the number of the class.
func (c *class) id() int32 { return c.head().Class }

func (c *class) has(w *workload.Workload) bool {
	return int(w.Spot) < len(c.line) && c.line[w.Spot].Workload == w
}

func (c *class) before(o *class) bool { return c.line[0].before(o.line[0]) }

// seat is the place of an awake class among the others: with its head, which decides
// about that, so that to compare two of them no class has to be visited.
type seat struct {
	waiter
	class *class
}

func (s seat) before(o seat) bool { return s.waiter.before(o.waiter) }

func (s seat) moved(i int) { s.class.at = int32(i) }

// watch is a want that a class has a ticket for.
type watch struct {
	want  int32  // its index
	stamp uint32 // of the ticket
}

// watches returns which of the things that the class watches is fr, if so much of it is
// enough, else −1.
func (c *class) watches(fr resource.FR, available resource.Amount) int32 {
	for i, w := range c.watch {
		if want := c.wants.at(w.want); want.FR == fr && threshold(&want) <= available {
			return int32(i)
		}
	}
	return -1
}

// choose finds what the class has to watch of its wants: what the offers of one clause
// lack that is not met, or everything if all are. What preemption might win may come to be
// had by others being admitted, which is no release, so then any release is to be looked at.
func (c *class) choose(wants []workload.Want, now Figures) {
	if c.watch == nil {
		c.watch = make([]watch, 0, 4)
	}
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
				c.watch[i].want = int32(want)
			}
			return
		}
	}
	c.watch = append(c.watch, watch{want: int32(want)})
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

// ticket is what a parked class has for one thing that it watches: class.watch[watch].
// It is not taken off its shelf when the class no longer needs it, but found to be void
// when it comes first: so that nobody needs to know where it is.
type ticket struct {
	waiter // the head of the class when it was given
	class  *class
	watch  int32
	stamp  uint32
}

func (t *ticket) valid() bool {
	return int(t.watch) < len(t.class.watch) && t.class.watch[t.watch].stamp == t.stamp
}

// before puts those first that come first in line. A class has one valid ticket on a
// shelf.
func (t ticket) before(o ticket) bool {
	if t.Workload == o.Workload {
		return t.stamp > o.stamp
	}
	return t.waiter.before(o.waiter)
}

func (t ticket) moved(int) {}
