package order

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// indexEntry is the entry of a wake condition in a wake index. It counts while its class is
// filed, and stays in the index while the class is active or tried: it is found again by
// its value, which only changes with the head of the class, and is removed before that. It
// has no pointers, so that many entries cost the garbage collector nothing.
type indexEntry struct {
	least resource.Amount // the threshold of the condition
	rank  rank            // of the head
	slot  int32           // of the class
}

// wakeIndex holds the wake conditions on one FR, by LocalQueue line: where a line stands among others is only compared when a
// class is activated, so that it may change at any time.
type wakeIndex struct {
	fr         resource.FR
	unnumbered entries
	others     []entries       // of the numbered lines that had one, by localLine.index − 1
	low        resource.Amount // no threshold in others is lower
}

// len is the number of lines in the index, empty ones included.
func (s *wakeIndex) len() int { return 1 + len(s.others) }

// line returns the entries of the line of an index.
func (s *wakeIndex) line(index int) *entries {
	if index == 0 {
		return &s.unnumbered
	}
	return &s.others[index-1]
}

// isEmpty reports whether there are no entries, of any line.
func (s *wakeIndex) isEmpty() bool {
	return s.unnumbered.first == none && !slices.ContainsFunc(s.others, func(l entries) bool { return l.first != none })
}

// entries are the wake conditions on one FR of the classes of one line, sorted by threshold and then in the order of that line.
// They are a list of blocks, because an insertion into one long list would move
// all of it.
type entries struct {
	first  resource.Amount // threshold of the first entry, or none
	blocks [][]indexEntry  // none is empty, unless it is the only one
}

// noEntries is an empty list.
var noEntries = entries{first: none}

// satisfied reports whether the available amount reaches the threshold of an entry.
func (s *entries) satisfied(available resource.Amount) bool {
	return s.first != none && s.first <= available
}

// blockLen is the most entries in a block. Two neighbors have more than half of that, or
// are merged.
const blockLen = 64

// none is the absence of a threshold.
const none resource.Amount = -1

// place is a position in the entries of a line.
type place struct{ block, i int }

// at returns the entry at a place, nil past the last one.
func (s *entries) at(x place) *indexEntry {
	if x.block >= len(s.blocks) || x.i >= len(s.blocks[x.block]) {
		return nil
	}
	return &s.blocks[x.block][x.i]
}

// past returns the first place behind x with another threshold. It scans the block before it
// searches: sequential reads are faster than a search.
func (s *entries) past(x place) place {
	block := s.blocks[x.block]
	least := block[x.i].least
	for i := x.i + 1; i < len(block); i++ {
		if block[i].least != least {
			return place{x.block, i}
		}
	}
	return s.search(func(t *indexEntry) bool { return t.least > least })
}

// search returns the first place for whose entry, and for every later one, is holds.
func (s *entries) search(is func(*indexEntry) bool) place {
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

// find returns the place of an entry, or the place where it belongs.
func (p *Pending) find(s *entries, t *indexEntry) place {
	if len(s.blocks) == 1 && len(s.blocks[0]) == 0 {
		return place{}
	}
	return s.search(func(o *indexEntry) bool { return p.compareEntries(o, t) >= 0 })
}

// compareEntries is the order of the entries of one line.
func (p *Pending) compareEntries(a, b *indexEntry) int {
	if a.least != b.least {
		return cmp.Compare(a.least, b.least)
	}
	return p.inLine(a, b)
}

// inLine is the order of the heads of two entries, but for the standing of their lines.
func (p *Pending) inLine(a, b *indexEntry) int {
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

// put inserts an entry.
func (p *Pending) put(s *entries, t indexEntry) {
	if len(s.blocks) == 0 {
		s.blocks = append(s.blocks, nil)
	}
	x := p.find(s, &t)
	if x.block == len(s.blocks) { // behind all other entries
		x.block--
		x.i = len(s.blocks[x.block])
	}
	if len(s.blocks[x.block]) == blockLen {
		x = s.split(x)
	}
	s.blocks[x.block] = slices.Insert(s.blocks[x.block], x.i, t)
	s.first = s.blocks[0][0].least
}

// split splits a full block, and returns the new position of a place. If the place is at the
// end, the old block stays full, so that insertions in order fill all blocks.
func (s *entries) split(x place) place {
	full := s.blocks[x.block]
	at := blockLen / 2
	if x.i == blockLen {
		at = blockLen
	}
	s.blocks = slices.Insert(s.blocks, x.block+1, append(make([]indexEntry, 0, blockLen), full[at:]...))
	s.blocks[x.block] = full[:at]
	if x.i > at || at == blockLen {
		return place{x.block + 1, x.i - at}
	}
	return x
}

// remove removes the entry at a place, and returns the place of the next one.
func (s *entries) remove(x place) place {
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

// fewTogether reports whether two blocks are to be merged.
func fewTogether(a, b []indexEntry) bool {
	return len(a) == 0 || len(b) == 0 || len(a)+len(b) <= blockLen/2
}

// merge appends the next block to a block.
func (s *entries) merge(block int) {
	s.blocks[block] = append(s.blocks[block], s.blocks[block+1]...)
	s.blocks = slices.Delete(s.blocks, block+1, block+2)
}

// clear removes all entries, and keeps the memory of one block.
func (s *entries) clear() {
	if len(s.blocks) > 0 {
		clear(s.blocks[1:])
		s.blocks[0], s.blocks = s.blocks[0][:0], s.blocks[:1]
	}
	s.first = none
}

// wakeIndex returns the wake index of an FR, nil if there is none.
func (p *Pending) wakeIndex(fr resource.FR) *wakeIndex {
	if at, found := p.findIndex(fr); found {
		return &p.indexes[at]
	}
	return nil
}

// findIndex returns the place of a wake index: measures are behind the FRs of quota, the newest number last.
func (p *Pending) findIndex(fr resource.FR) (at int, found bool) {
	number := func(fr resource.FR) uint32 {
		if fr < 0 {
			return 1<<31 | uint32(^fr)
		}
		return uint32(fr)
	}
	lo, hi := 0, len(p.indexes)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); number(p.indexes[mid].fr) < number(fr) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(p.indexes) && p.indexes[lo].fr == fr
}

// make returns the entries of the line of an index, empty ones on first use.
func (s *wakeIndex) make(index int32) *entries {
	for s.len() <= int(index) {
		s.others = append(s.others, noEntries)
	}
	return s.line(int(index))
}

// entryFor returns the index entry of a condition, and its FR.
func (c *class) entryFor(w *condition) (resource.FR, indexEntry) {
	want := c.want(w.want)
	return want.FR, indexEntry{least: threshold(&want), rank: c.members[0].rank, slot: c.slot}
}

// addEntry adds a condition to its wake index.
func (p *Pending) addEntry(c *class, w *condition) {
	fr, t := c.entryFor(w)
	at, found := p.findIndex(fr)
	if !found {
		p.indexes = slices.Insert(p.indexes, at, wakeIndex{fr: fr, unnumbered: noEntries})
	}
	s := &p.indexes[at]
	p.put(s.make(p.lineOf(c).index), t)
	s.low = min(s.low, t.least)
	p.thresholds.lower(fr, t.least)
	w.listed = true
}

// addEntries adds all conditions of a class to their wake indexes, if it is filed.
func (p *Pending) addEntries(c *class) {
	if c.stage != filed {
		return
	}
	watched := c.conditions()
	for i := range watched {
		if !watched[i].listed {
			p.addEntry(c, &watched[i])
		}
	}
}

// removeEntry removes a condition from its wake index.
func (p *Pending) removeEntry(c *class, w *condition) {
	if !w.listed {
		return
	}
	fr, t := c.entryFor(w)
	s := p.wakeIndex(fr).line(int(p.lineOf(c).index))
	s.remove(p.find(s, &t))
	w.listed = false
	if c.stage != filed {
		p.idle--
	}
}

// removeEntries removes a class from all wake indexes, before its head or its wants change.
func (p *Pending) removeEntries(c *class) {
	watched := c.conditions()
	for i := range watched {
		p.removeEntry(c, &watched[i])
	}
}

// discard removes an entry on fr that does not count now, and returns the place of the next one.
func (p *Pending) discard(fr resource.FR, s *entries, x place) place {
	c := p.class(s.at(x).slot)
	c.conditions()[c.conditionOn(fr)].listed = false
	p.idle--
	return s.remove(x)
}

// threshold is the available amount from which a release matters for a want: any amount, if
// preemption may win the rest.
func threshold(w *workload.Want) resource.Amount {
	if w.Winnable {
		return 0
	}
	return w.Least
}
