package order

import (
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Patterns are the wants of inadmissible classes without their amounts, kept once for all
// lines that share them: most classes differ in the amounts only. The zero value is ready to
// use.
type Patterns struct {
	known map[uint64]*pattern // by hash; of several with one hash the latest

	// Scratch memory.
	slots   []slot            // of pack
	amounts []resource.Amount // of pack
	wants   []workload.Want   // of wantsOf
	had     []condition       // of watchAnew

	promised []promised // of searchMeasures
}

// maxPatterns is how many patterns are known at most. Classes keep their pattern when it is
// forgotten.
const maxPatterns = 1024

// pattern is a list of wants without amounts.
type pattern struct {
	each    []slot
	amounts int // their number
}

// slot is a want with the index of its amount.
type slot struct {
	fr       resource.FR
	offer    uint16
	least    uint16
	clause   uint8
	winnable bool
}

// pack stores the wants of a class.
func (p *Patterns) pack(wants []workload.Want, c *class) {
	c.pattern = nil
	if len(wants) == 0 {
		return
	}
	p.slots, p.amounts = p.slots[:0], p.amounts[:0]
	hash := uint64(0)
	for i := range wants {
		s := p.slot(&wants[i])
		p.slots = append(p.slots, s)
		hash = (hash ^ uint64(s.fr)<<32 ^ uint64(s.offer)<<16 ^ uint64(s.least)) * 0x9e3779b97f4a7c15
		hash ^= hash>>32 ^ uint64(s.clause)<<1
		if s.winnable {
			hash++
		}
	}
	if c.pattern = p.known[hash]; c.pattern == nil || !slices.Equal(c.pattern.each, p.slots) {
		if p.known == nil || len(p.known) == maxPatterns {
			p.known = map[uint64]*pattern{}
		}
		c.pattern = &pattern{slices.Clone(p.slots), len(p.amounts)}
		p.known[hash] = c.pattern
	}
	if len(p.amounts) <= len(c.few) {
		copy(c.few[:], p.amounts)
		return
	}
	m := c.spill()
	m.amounts = append(m.amounts[:0], p.amounts...)
}

// packedWants is wants as a pattern and amounts.
type packedWants struct {
	pattern *pattern           // nil for none
	few     [3]resource.Amount // the distinct amounts, unless there are more
	more    *more
}

// clone returns a copy that shares nothing that changes.
func (c packedWants) clone() packedWants {
	if c.more != nil {
		c.more = &more{amounts: slices.Clone(c.more.amounts)}
	}
	return c
}

// spill returns the memory of lists that do not fit.
func (c *packedWants) spill() *more {
	if c.more == nil {
		c.more = &more{}
	}
	return c.more
}

// slot adds the amount of a want to p.amounts, and returns the rest.
func (p *Patterns) slot(w *workload.Want) slot {
	at := slices.Index(p.amounts, w.Least)
	if at < 0 {
		at = len(p.amounts)
		p.amounts = append(p.amounts, w.Least)
	}
	return slot{fr: w.FR, offer: w.Offer, least: uint16(at), clause: w.Clause, winnable: w.Winnable}
}

// want returns the ith want.
func (c *packedWants) want(i uint16) workload.Want {
	s := &c.pattern.each[i]
	return workload.Want{Least: c.amounts()[s.least], FR: s.fr, Offer: s.offer, Clause: s.clause, Winnable: s.winnable}
}

func (c *packedWants) amounts() []resource.Amount {
	if c.pattern.amounts > len(c.few) {
		return c.more.amounts
	}
	return c.few[:]
}

// wants reports whether they equal these.
func (c *packedWants) wants(wants []workload.Want) bool {
	if c.pattern == nil {
		return len(wants) == 0
	}
	if len(c.pattern.each) != len(wants) {
		return false
	}
	for i := range wants {
		if c.want(uint16(i)) != wants[i] {
			return false
		}
	}
	return true
}

// unpack appends the wants to to.
func (c *packedWants) unpack(to []workload.Want) []workload.Want {
	if c.pattern == nil {
		return to
	}
	for i := range c.pattern.each {
		to = append(to, c.want(uint16(i)))
	}
	return to
}
