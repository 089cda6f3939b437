package order

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// ticket is what a class has for one thing that it watches. It counts while the class is
// filed. It stays on its shelf while the class is awake or in the pen, and is found again
// there by what it says, which changes with the head of the class only: until then it is
// taken off, at the latest. There are no pointers in it, so that many of them cost the
// garbage collector nothing, and nobody has to be visited to find out whether it counts.
type ticket struct {
	least resource.Amount // the threshold of what is watched
	rank  rank            // of the head
	slot  int32           // of the class
}

// shelf holds the tickets for one FR, sorted by how much has to be available, and then by
// the order of the line: those that want the same stand side by side, who is next first.
// It is cut into blocks, for one long list would have to be moved for each of a crowd.
type shelf struct {
	fr     resource.FR
	first  resource.Amount // least of the first ticket, or none
	blocks [][]ticket      // none of them empty but the only one
}

// blockLen is the most tickets in a block. Two neighbors have more than half of that, or
// are made one.
const blockLen = 64

// none is no threshold.
const none resource.Amount = -1

// place is where on a shelf a ticket is.
type place struct{ block, i int }

// at returns the ticket at a place, nil past the last one.
func (s *shelf) at(x place) *ticket {
	if x.block >= len(s.blocks) || x.i >= len(s.blocks[x.block]) {
		return nil
	}
	return &s.blocks[x.block][x.i]
}

// past returns the first place behind x with another threshold. In the block it goes from
// ticket to ticket: memory that is read in order is there sooner than the next of a search.
func (s *shelf) past(x place) place {
	block := s.blocks[x.block]
	least := block[x.i].least
	for i := x.i + 1; i < len(block); i++ {
		if block[i].least != least {
			return place{x.block, i}
		}
	}
	return s.search(func(t *ticket) bool { return t.least > least })
}

// search returns the first place whose ticket, and every one behind it, is as asked for.
func (s *shelf) search(is func(*ticket) bool) place {
	lo, hi := 0, len(s.blocks)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); is(&s.blocks[mid][len(s.blocks[mid])-1]) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == len(s.blocks) {
		return place{lo, 0}
	}
	block := s.blocks[lo]
	i, end := 0, len(block)
	for i < end {
		if mid := int(uint(i+end) / 2); is(&block[mid]) {
			end = mid
		} else {
			i = mid + 1
		}
	}
	return place{lo, i}
}

// find returns the place of a ticket, or where it would be.
func (p *Pending) find(s *shelf, t *ticket) place {
	if len(s.blocks) == 1 && len(s.blocks[0]) == 0 {
		return place{}
	}
	return s.search(func(o *ticket) bool { return p.compare(o, t) >= 0 })
}

// compare is the order on a shelf.
func (p *Pending) compare(a, b *ticket) int {
	if a.least != b.least {
		return cmp.Compare(a.least, b.least)
	}
	return p.inLine(a, b)
}

// inLine is the order in which those of two tickets come.
func (p *Pending) inLine(a, b *ticket) int {
	switch {
	case a.slot == b.slot:
		return 0
	case a.rank.priority != b.rank.priority:
		return cmp.Compare(b.rank.priority, a.rank.priority)
	case a.rank.since != b.rank.since:
		return cmp.Compare(a.rank.since, b.rank.since)
	}
	return cmp.Or(strings.Compare(p.class(a.slot).head().UID, p.class(b.slot).head().UID), cmp.Compare(a.slot, b.slot))
}

// put puts a ticket at its place.
func (p *Pending) put(s *shelf, t ticket) {
	if len(s.blocks) == 0 {
		s.blocks = append(s.blocks, nil)
	}
	x := p.find(s, &t)
	if x.block == len(s.blocks) { // behind all others
		x.block--
		x.i = len(s.blocks[x.block])
	}
	if len(s.blocks[x.block]) == blockLen {
		x = s.split(x)
	}
	s.blocks[x.block] = slices.Insert(s.blocks[x.block], x.i, t)
	s.first = s.blocks[0][0].least
}

// split makes two blocks of a full one, and returns where in them a place is then. What is
// put behind all others finds no block half full.
func (s *shelf) split(x place) place {
	full := s.blocks[x.block]
	at := blockLen / 2
	if x.i == blockLen {
		at = blockLen
	}
	s.blocks = slices.Insert(s.blocks, x.block+1, append(make([]ticket, 0, blockLen), full[at:]...))
	s.blocks[x.block] = full[:at]
	if x.i > at || at == blockLen {
		return place{x.block + 1, x.i - at}
	}
	return x
}

// remove takes away the ticket at a place, and returns the place of the one that followed.
func (s *shelf) remove(x place) place {
	block := slices.Delete(s.blocks[x.block], x.i, x.i+1)
	s.blocks[x.block] = block
	switch last := len(s.blocks) - 1; {
	case x.block < last && fewTogether(block, s.blocks[x.block+1]):
		s.merge(x.block)
	case x.block > 0 && fewTogether(s.blocks[x.block-1], block):
		x = place{x.block - 1, len(s.blocks[x.block-1]) + x.i}
		s.merge(x.block)
	}
	if s.first = none; len(s.blocks[0]) > 0 {
		s.first = s.blocks[0][0].least
	}
	if x.i == len(s.blocks[x.block]) {
		return place{x.block + 1, 0}
	}
	return x
}

// fewTogether reports whether two blocks are to be made one.
func fewTogether(a, b []ticket) bool {
	return len(a) == 0 || len(b) == 0 || len(a)+len(b) <= blockLen/2
}

// merge makes one block of two.
func (s *shelf) merge(block int) {
	s.blocks[block] = append(s.blocks[block], s.blocks[block+1]...)
	s.blocks = slices.Delete(s.blocks, block+1, block+2)
}

// clear takes away everything, and keeps memory for a few.
func (s *shelf) clear() {
	if len(s.blocks) > 0 {
		clear(s.blocks[1:])
		s.blocks[0], s.blocks = s.blocks[0][:0], s.blocks[:1]
	}
	s.first = none
}

// shelf returns the shelf of an FR, nil if there is none.
func (p *Pending) shelf(fr resource.FR) *shelf {
	if at, found := p.shelfIndex(fr); found {
		return &p.shelves[at]
	}
	return nil
}

func (p *Pending) shelfIndex(fr resource.FR) (at int, found bool) {
	lo, hi := 0, len(p.shelves)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); p.shelves[mid].fr < fr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(p.shelves) && p.shelves[lo].fr == fr
}

// ticketFor is the ticket of a class for one thing that it watches, and its FR.
func (c *class) ticketFor(w *watch) (resource.FR, ticket) {
	want := c.want(w.want)
	return want.FR, ticket{least: threshold(&want), rank: c.line[0].rank, slot: c.slot}
}

// giveTicket puts a class on the shelf of one thing that it watches.
func (p *Pending) giveTicket(c *class, w *watch) {
	fr, t := c.ticketFor(w)
	at, found := p.shelfIndex(fr)
	if !found {
		p.shelves = slices.Insert(p.shelves, at, shelf{fr: fr, first: none})
	}
	p.put(&p.shelves[at], t)
	w.listed = true
}

// giveTickets puts a class on the shelves of all that it watches, if it is filed.
func (p *Pending) giveTickets(c *class) {
	if c.stage != filed {
		return
	}
	watched := c.watch()
	for i := range watched {
		if !watched[i].listed {
			p.giveTicket(c, &watched[i])
		}
	}
}

// takeTicket takes a class off the shelf of one thing that it watches.
func (p *Pending) takeTicket(c *class, w *watch) {
	if !w.listed {
		return
	}
	fr, t := c.ticketFor(w)
	s := p.shelf(fr)
	s.remove(p.find(s, &t))
	w.listed = false
	if c.stage != filed {
		p.idle--
	}
}

// takeTickets takes a class off all shelves, before it gets another head or other wants.
func (p *Pending) takeTickets(c *class) {
	watched := c.watch()
	for i := range watched {
		p.takeTicket(c, &watched[i])
	}
}

// discard takes away a ticket that does not count at present, since it is in the way of
// others, and returns the place of the one that followed.
func (p *Pending) discard(s *shelf, x place) place {
	c := p.class(s.at(x).slot)
	c.watch()[c.watching(s.fr)].listed = false
	p.idle--
	return s.remove(x)
}

// threshold is how much has to be available for a release to be worth a thought. What
// may be won in part can be met with anything.
func threshold(w *workload.Want) resource.Amount {
	if w.Winnable {
		return 0
	}
	return w.Least
}
