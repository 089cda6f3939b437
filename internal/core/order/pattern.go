package order

import (
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Patterns is what the wants of parked classes have in common, kept once for all lines
// that share it. Most classes differ in the amounts that they want and in nothing else.
// The zero value is ready to use.
type Patterns struct {
	known map[uint64]*pattern // by hash; of those of one hash the last
	wants []workload.Want     // memory of unpack
	had   []watch             // memory of watchAnew
}

// maxPatterns is how many patterns are known at most. Those that are forgotten live on
// with the classes that have them.
const maxPatterns = 1024

// pattern is wants without amounts.
type pattern struct {
	each []slot
}

// slot is a want: of the amounts it says which one.
type slot struct {
	fr       resource.FR
	offer    uint16
	least    uint16
	clause   uint8
	winnable bool
}

// packed is wants in little memory.
type packed struct {
	pattern *pattern          // nil for none
	amounts []resource.Amount // each once
}

// pack makes p the same as wants, in the memory that it has.
func (p *packed) pack(wants []workload.Want, in *Patterns) {
	p.amounts, p.pattern = p.amounts[:0], nil
	if len(wants) == 0 {
		return
	}
	hash := uint64(0)
	for i := range wants {
		s := p.slot(&wants[i])
		hash = (hash ^ uint64(s.fr)<<32 ^ uint64(s.offer)<<16 ^ uint64(s.least)) * 0x9e3779b97f4a7c15
		hash ^= hash>>32 ^ uint64(s.clause)<<1
		if s.winnable {
			hash++
		}
	}
	if known := in.known[hash]; known != nil && p.has(known, wants) {
		p.pattern = known
		return
	}
	p.pattern = &pattern{make([]slot, len(wants))}
	for i := range wants {
		p.pattern.each[i] = p.slot(&wants[i])
	}
	if in.known == nil || len(in.known) == maxPatterns {
		in.known = map[uint64]*pattern{}
	}
	in.known[hash] = p.pattern
}

// slot is a want without its amount, which is one of p's from then on.
func (p *packed) slot(w *workload.Want) slot {
	at := 0
	for at < len(p.amounts) && p.amounts[at] != w.Least {
		at++
	}
	if at == len(p.amounts) {
		p.amounts = append(p.amounts, w.Least)
	}
	return slot{fr: w.FR, offer: w.Offer, least: uint16(at), clause: w.Clause, winnable: w.Winnable}
}

// has tells whether wants with the amounts of p have a pattern.
func (p *packed) has(of *pattern, wants []workload.Want) bool {
	if len(of.each) != len(wants) {
		return false
	}
	for i := range wants {
		if of.each[i] != p.slot(&wants[i]) {
			return false
		}
	}
	return true
}

// len returns how many wants there are.
func (p *packed) len() int {
	if p.pattern == nil {
		return 0
	}
	return len(p.pattern.each)
}

// at returns the ith want.
func (p *packed) at(i int) workload.Want {
	s := &p.pattern.each[i]
	return workload.Want{Least: p.amounts[s.least], FR: s.fr, Offer: s.offer, Clause: s.clause, Winnable: s.winnable}
}

// same tells whether these are the wants.
func (p *packed) same(wants []workload.Want) bool {
	if p.len() != len(wants) {
		return false
	}
	for i := range wants {
		if p.at(i) != wants[i] {
			return false
		}
	}
	return true
}

// unpack appends the wants.
func (p *packed) unpack(to []workload.Want) []workload.Want {
	for i := range p.len() {
		to = append(to, p.at(i))
	}
	return to
}
